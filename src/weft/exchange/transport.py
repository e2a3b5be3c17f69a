"""What carries rows between workers: sockets (kernels/links.cpp), or a process group of torch.distributed."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from weft import _kernels
from weft.errors import ClusterError


class Transport(Protocol):
    """All workers of a group call the same methods in the same order; each call returns what waits for its end."""

    header: int  # bytes that go before each message

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        """The first send[0] rows of x go to worker 0, the next send[1] to worker 1, ...; `out` is filled likewise."""

    def start_any(self, data: np.ndarray, send: Sequence[int]) -> Callable[[], list[np.ndarray]]:
        """Bytes whose number the receivers do not know; the result is those of each sender."""

    def close(self) -> None:
        """Close its connections. Other workers still receive what was sent before."""


class Connections(Protocol):
    """One worker's connections to the others. All workers create the same transports in the same order."""

    def transport(self, ranks: Sequence[int]) -> Transport:
        """A new transport among some workers, this one too."""

    def close(self) -> None:
        """Send nothing more; workers that still wait for this one fail."""


class SocketTransport:
    """Sockets, for what is in host memory (kernels/links.cpp)."""

    header = 16

    def __init__(
        self,
        sockets: Sequence[int],
        timeout: float,
        ranks: Sequence[int],
        disconnect: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        self._open: _kernels.Links | None = _kernels.Links(list(sockets), timeout)
        self._sockets, self._ranks, self._disconnect = sockets, ranks, disconnect

    @property
    def _links(self) -> "_kernels.Links":
        assert self._open is not None, "this communicator was closed"  # its sockets' numbers may be others' by now
        return self._open

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        width = x.element_size() * math.prod(x.shape[1:])
        self._links.begin(_bytes(x), [count * width for count in send])

        def wait() -> None:
            self._check(self._links.finish_into(_bytes(out), [count * width for count in receive]))

        return wait

    def start_any(self, data: np.ndarray, send: Sequence[int]) -> Callable[[], list[np.ndarray]]:
        self._links.begin(data, list(send))

        def wait() -> list[np.ndarray]:
            lost, messages = self._links.finish_any()
            self._check(lost)
            return messages

        return wait

    def close(self) -> None:
        """Close the sockets, once."""
        if self._open is not None and self._disconnect is not None:
            self._disconnect(self._sockets)
        self._open = None

    def _check(self, lost: list[int]) -> None:
        if lost:
            workers = ", ".join(f"worker {self._ranks[member]}" for member in lost)
            raise ClusterError(f"{workers} stopped answering")


class ProcessGroupTransport:
    """A process group of torch.distributed: NCCL for what is on a device, or Gloo."""

    header = 0

    def __init__(self, group: "dist.ProcessGroup | None", size: int) -> None:
        self._group, self._size, self._closed = group, size, False

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        assert not self._closed, "this communicator was closed"
        with _named_loss():
            work = dist.all_to_all_single(out, x, list(receive), list(send), self._group, async_op=True)

        def wait() -> None:
            with _named_loss():
                work.wait()

        return wait

    def start_any(self, data: np.ndarray, send: Sequence[int]) -> Callable[[], list[np.ndarray]]:
        counts = torch.empty(self._size, dtype=torch.int64)
        one = [1] * self._size
        self.start(torch.tensor(send), one, counts, one)()
        out = torch.empty(int(counts.sum()), dtype=torch.uint8)
        wait_for_all = self.start(torch.from_numpy(data), send, out, counts.tolist())

        def wait() -> list[np.ndarray]:
            wait_for_all()
            return [part.numpy() for part in out.split(counts.tolist())]

        return wait

    def close(self) -> None:
        """Leave the group, once; all its workers do, in the same order. The group of all workers stays."""
        if self._group is None or self._closed:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # NCCL's calls return before they are done
        dist.destroy_process_group(self._group)
        self._group, self._closed = None, True


class _named_loss:
    """Turns the failure of a collective into the error of a lost worker."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            raise ClusterError("another worker stopped answering") from error


def _bytes(x: Tensor) -> np.ndarray:
    return x.detach().view(-1).numpy().view(np.uint8)
