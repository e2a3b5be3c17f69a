"""Vertex ids to rows of features."""

from weft.features.store import FeatureStore, Sharing, gather

__all__ = ["FeatureStore", "Sharing", "gather"]
