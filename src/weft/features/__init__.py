"""Vertex ids to rows of features."""

from weft.features.remote import Sharing
from weft.features.store import FeatureStore, gather

__all__ = ["FeatureStore", "Sharing", "gather"]
