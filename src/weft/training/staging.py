"""The device that a worker computes on, and how what is made ready in host memory gets there."""

from typing import TYPE_CHECKING

import torch

from weft.devices import tensors_of
from weft.errors import ConfigError, reason_of
from weft.exchange import World

if TYPE_CHECKING:
    from weft.training.batches import Part


class Staging:
    """What becomes of parts between the thread that prepares them and the one that computes: nothing, on the CPU."""

    def begin_thread(self) -> None:
        """Called by each thread that prepares parts, before all else."""

    def bring(self, part: "Part") -> "Part":
        """The part where it is to be computed, as its rows are already; called by the thread that prepared it."""
        return part

    def hand_over(self, part: "Part") -> None:
        """Called by the thread that computes, before it does."""


class DeviceStaging(Staging):
    """Parts are copied to a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def bring(self, part: "Part") -> "Part":
        return part.to(self._device)


class StreamStaging(DeviceStaging):
    """They and their rows are copied on a stream of their own, from pinned memory, while the one before is computed."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(device)

    def begin_thread(self) -> None:
        torch.cuda.set_stream(self._stream)

    def bring(self, part: "Part") -> "Part":
        there = part.to(self._device, non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()  # this thread has nothing better to do
        return there

    def hand_over(self, part: "Part") -> None:
        """Its memory is the copying stream's: it may not be used again there before this thread's stream is done with it."""
        for tensor in [part.x, *tensors_of(part)]:
            tensor.record_stream(torch.cuda.current_stream(self._device))


def staging_to(device: torch.device) -> Staging:
    """How parts get to a device."""
    if device.type == "cpu":
        return Staging()
    return (StreamStaging if device.type == "cuda" else DeviceStaging)(device)


def device_of(wanted: str | torch.device, world: World) -> torch.device:
    """The device that a worker computes on; auto: CUDA's, where there is one. A host's workers take turns at its devices."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(wanted)
        if found.type == "cuda" and found.index is None and torch.cuda.is_available():
            mates = [rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank]]
            found = torch.device("cuda", mates.index(world.rank) % torch.cuda.device_count())
        torch.zeros(1, device=found).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device {str(wanted)!r} is not here ({reason_of(error)}): choose device = 'cpu'") from None
    return found


def name_of(device: torch.device) -> str:
    """A device for a person."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
