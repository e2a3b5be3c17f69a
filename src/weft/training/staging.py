"""The device that a worker computes on, how what is made ready in host memory gets there, and where neighbours are drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from weft.devices import memory_of, used_here
from weft.errors import ConfigError, reason_of
from weft.exchange import World
from weft.features import DeviceStore
from weft.graph import Graph
from weft.operations import has_kernels, why_no_kernels
from weft.plan import Settings
from weft.quantities import as_size
from weft.sampling import DeviceLists, MakeSampler, NeighborSampler, make_sampler
from weft.threads import usual_threads
from weft.training.batches import Order, Part, PrefetchingFeed, Prepared, give, inputs_of

Span = tuple[int, int] | None  # the vertices whose lists are read; None: all


def lanes_of(settings: Settings, workers: int, on_device: bool) -> int:
    """Threads of each worker that prepare batches.

    With other workers two: a link has work while others wait. Alone, a device computes faster than one prepares.
    """
    alone = min(settings.plan.prefetch + 1, usual_threads()) if on_device else 1
    return settings.parallel.loaders or (alone if workers == 1 else 2)


def threads_of(settings: Settings, world: World) -> int:
    """Threads that a worker trains with."""
    return settings.parallel.threads or max(1, int(world.processors))


@dataclass(eq=False)
class DeviceFeed(PrefetchingFeed):
    """Mini-batches that are copied to a device.

    To CUDA's, parts and their rows go on a stream of their own, from pinned memory, while the one before is computed.
    """

    store: DeviceStore

    def __post_init__(self) -> None:
        self._cuda = self.device.type == "cuda"
        super().__post_init__()

    def _begin_thread(self) -> Callable[[], None]:
        return partial(_begin, self.team.begin_thread, torch.cuda.Stream(self.device) if self._cuda else None)

    def _prepare(self, order: Order, lane: int) -> Prepared:
        with self.meter.stage("sample"):
            parts = self._drawn(order, lane)
        with self.meter.stage("fetch"):
            inputs, here = inputs_of(parts)
            rows = self.store.begin_all(inputs, lane, here)
            parts = [part.to(self.device, non_blocking=self._cuda) for part in parts]
            if self._cuda:
                torch.cuda.current_stream(self.device).synchronize()  # this thread has nothing better to do
        if not self.store.exchanges:
            give(parts, rows())
        return partial(self._handed_over, parts, rows)

    def _handed_over(self, parts: list[Part], rows: Callable[[], list[Tensor]]) -> list[Part]:
        """Only the thread that computes exchanges rows with other devices."""
        if self.store.exchanges:
            give(parts, rows())
        used_here([[part.x, part] for part in parts])
        return parts


def _begin(begin_thread: Callable[[], None] | None, stream: torch.cuda.Stream | None) -> None:
    """What a thread that prepares parts does before all else."""
    if begin_thread is not None:
        begin_thread()
    if stream is not None:
        torch.cuda.set_stream(stream)


def device_of(wanted: str | torch.device, world: World) -> torch.device:
    """The device that a worker computes on; auto: CUDA's, where each has its own. A host's workers take turns at its."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() and not world.lacking else "cpu"
    try:
        found = torch.device(wanted)
        if found.type == "cuda" and torch.cuda.is_available():
            if world.lacking:
                raise ConfigError(f"{world.lacking}: start as many workers as there are devices, or set device = 'cpu'")
            of_host = world.members("host")
            own = torch.device("cuda", of_host.index(world.rank) % torch.cuda.device_count())
            if len(of_host) > 1 and found.index not in (None, own.index):
                raise ConfigError(
                    f"device = {str(wanted)!r} is for a host's one worker, and worker {world.rank} has {own} for itself: "
                    f"set device = 'cuda', by which the workers of a host take turns at its devices"
                )
            found = own if found.index is None else found
        torch.zeros(1, device=found).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device {str(wanted)!r} is not here ({reason_of(error)}): choose device = 'cpu'") from None
    if has_kernels(found) and (why := why_no_kernels()):
        raise ConfigError(
            f"Triton can't start its kernels on {found} ({why}): install gcc and Python's headers (python3-dev), and let "
            f"TRITON_CACHE_DIR be a folder that can be written to; or set device = 'cpu'"
        )
    return found


def name_of(device: torch.device) -> str:
    """A device for a person."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


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
