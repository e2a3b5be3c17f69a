"""Vertex ids to rows of features."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.features.cache import (
        LEAST,
        ByDegree,
        by_reads,
        dealt_among,
        edges_from,
        hottest,
        hottest_of_each,
        left_out,
        rooms,
    )
    from weft.features.device_store import DeviceStore, SharedDeviceStore, joined_tiers
    from weft.features.store import PLACES, FeatureStore, Sharing, gather, lost_as_half
else:
    __getattr__ = lazy_face(__name__)
