"""Vertex ids to rows of features."""

from weft.features.store import FeatureStore, gather

__all__ = ["FeatureStore", "gather"]
