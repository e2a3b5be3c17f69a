"""Seeds to blocks: keyed sampling of neighbours. One file a sampler; `ListSampler` is the base class for others'."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.sampling.balance import SeedBalance, balance_seeds, of_full_homes
    from weft.sampling.block import Block, BlockRange, Sample, Topology, are_few, edge_values, keys_of, turned
    from weft.sampling.device_sampler import DeviceLists, DeviceSampler
    from weft.sampling.labor import LaborSampler
    from weft.sampling.layer import LayerSampler
    from weft.sampling.lists import ListSampler, counted
    from weft.sampling.negatives import VerticesByType, batch_negatives, uniform_negatives
    from weft.sampling.sampler import (
        Batches,
        MakeSampler,
        NeighborSampler,
        Numbering,
        Sampler,
        WholeBatch,
        check_options,
        dealt,
        make_sampler,
    )
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["Block", "ListSampler", "Sampler", "counted"]
