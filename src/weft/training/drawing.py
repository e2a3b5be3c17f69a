"""Where neighbours are drawn: in host memory, or on the device. Decided once for a plan; who asks for draws can't tell."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from weft.devices import memory_of
from weft.errors import ConfigError
from weft.graph import Graph
from weft.operations import has_kernels
from weft.plan import Settings
from weft.quantities import as_size
from weft.sampling import DeviceLists, NeighborSampler, Sampler, make_sampler

MakeSampler = Callable[..., Sampler]  # as `make_sampler`
Span = tuple[int, int] | None  # the vertices whose lists are read; None: all


@dataclass(frozen=True)
class Drawing:
    """What makes the samplers, and what a person is told of it."""

    make: MakeSampler = make_sampler
    told: str = ""


def drawing_on(device: torch.device, settings: Settings, graph: Graph, span: Span) -> Drawing:
    """On the device where the settings say so, or leave it open and it is possible."""
    wanted = settings.parallel.sample_on
    if device.type == "cpu":
        return Drawing()
    reason = "as sample_on says" if wanted == "cpu" else _against(device, settings, graph, span)
    if not reason:
        return Drawing(DeviceLists(graph, device, span).make_sampler, f"drawn on {device}")
    if wanted == "device":
        raise ConfigError(f"sample_on = 'device' is not possible: {reason}; set sample_on = 'auto'")
    return Drawing(told=f"drawn on the CPU ({reason})")


def _against(device: torch.device, settings: Settings, graph: Graph, span: Span) -> str:
    """Why neighbours can't be drawn on a device; nothing, where they can."""
    sampling = settings.sampling
    if sampling.sampler != NeighborSampler.name or sampling.weighted:
        how = "by weight" if sampling.weighted else f"by sampler {sampling.sampler!r}"
        return f"devices draw uniformly, not {how}"
    if not has_kernels(device):
        return f"there is no Triton for {device}"
    asked, fanout = settings.parallel.sample_on == "device", max(sampling.fanouts or (0,))
    if fanout > (most := DeviceLists.most if asked else DeviceLists.unasked):
        return f"{'' if asked else 'unasked, '}devices draw up to {most:,} neighbours of a vertex, not {fanout:,}"
    needed, room = DeviceLists.nbytes(graph, span), int(DeviceLists.share * memory_of(device))
    if needed > room:
        return f"the lists take {as_size(needed)}, and half of the device's free memory is {as_size(room)}"
    return ""
