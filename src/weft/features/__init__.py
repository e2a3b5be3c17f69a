"""Vertex ids to rows of features."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.features.cache import by_reads, edges_from, hottest, hottest_of_each, rooms
    from weft.features.store import FeatureStore, Sharing, gather
else:
    __getattr__ = lazy_face(__name__)
