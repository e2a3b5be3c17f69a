"""The wire: what one worker sends to and gets from the others, over one process group, with its bytes and seconds."""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from weft.errors import ClusterError
from weft.meter import Meter

Part = tuple[Tensor, Sequence[int], Sequence[int]]  # rows, how many go to each worker, and how many come


class Traffic:
    """Bytes that this worker sent, by stage and by receiver; several wires may count at once."""

    def __init__(self, size: int) -> None:
        self._sent: dict[str, list[int]] = defaultdict(lambda: [0] * size)
        self._lock = threading.Lock()

    def count(self, stage: str, peer: int, sent: int) -> None:
        """Add bytes that went to a peer."""
        with self._lock:
            self._sent[stage][peer] += sent

    def sent(self) -> dict[str, list[int]]:
        """Bytes by stage, for each receiver."""
        with self._lock:
            return {stage: list(by_peer) for stage, by_peer in self._sent.items()}


class Wire:
    """The exchanges of one process group. All workers must call the same methods in the same order.

    A worker alone has no group, and what it exchanges stays where it is.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        group: "dist.ProcessGroup | None" = None,
        meter: Meter | None = None,
        traffic: Traffic | None = None,
        half: bool = False,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.rank, self.size = rank, size
        self.traffic = traffic or Traffic(size)
        self._group = group
        self._meter = meter or Meter()
        self._half = half
        self._ranks = list(ranks or range(size))  # of the group's members among all workers

    def counts(self, send: Tensor, stage: str) -> Tensor:
        """Row p of `send` [size, k] int64 goes to worker p; row p of the result came from p."""
        if self.size == 1:
            return send
        send = send.contiguous()
        received = torch.empty_like(send)
        with self._meter.stage(stage), _named_loss("an exchange"):
            dist.all_to_all_single(received, send, group=self._group)
        self._count(stage, [send.shape[1] * 8] * self.size)
        return received

    def rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str) -> Tensor:
        """The first send[0] rows of x go to worker 0, the next send[1] to worker 1, ...; received rows come likewise.

        Nothing goes to oneself: send[rank] and receive[rank] must be 0.
        """
        return self.begin(x, send, receive, stage).wait()

    def begin(self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str) -> "Arriving":
        """`rows`, under way while this worker does something else."""
        assert send[self.rank] == receive[self.rank] == 0
        half = self._half and x.dtype == torch.float32
        y = (x.half() if half else x).contiguous()
        out = y.new_empty(sum(receive), *x.shape[1:])
        work = None
        if self.size > 1:
            with self._meter.stage(stage), _named_loss("an exchange"):
                work = dist.all_to_all_single(out, y, list(receive), list(send), self._group, async_op=True)
            width = math.prod(y.shape[1:]) * y.element_size()
            self._count(stage, [rows * width for rows in send])
        return Arriving(work, y, out, half, self._meter, stage)

    def together(self, parts: Sequence["Part"], stage: str) -> Callable[[], list[tuple[Tensor, ...]]]:
        """Several rows of one width in one message; the result waits for what came: for each part, rows by sender."""
        if len(parts) == 1:
            x, send, receive = parts[0]
        else:
            pieces = [rows.split(list(counts)) for rows, counts, _ in parts]
            x = torch.cat([piece[peer] for peer in range(self.size) for piece in pieces])
            send, receive = ([sum(c) for c in zip(*(part[k] for part in parts), strict=True)] for k in (1, 2))
        arriving = self.begin(x, send, receive, stage)
        counts = [part[2][peer] for peer in range(self.size) for part in parts]

        def wait() -> list[tuple[Tensor, ...]]:
            rows = arriving.wait().split(counts)
            return [rows[k :: len(parts)] for k in range(len(parts))]

        return wait

    def arrays(
        self, parts: Sequence[tuple[np.ndarray, Sequence[int]]], stage: str
    ) -> list[tuple[np.ndarray, list[int]]]:
        """Several arrays in one message, each given with its elements for each receiver; likewise what came."""
        counts = np.array([counts for _, counts in parts], dtype=np.int64).T
        theirs = self.counts(torch.from_numpy(counts), stage).numpy()
        starts = np.cumsum(counts, axis=0) - counts
        pieces = [
            array[starts[peer, k] : starts[peer, k] + counts[peer, k]].view(np.uint8)
            for peer in range(self.size)
            for k, (array, _) in enumerate(parts)
        ]
        sizes = np.array([array.itemsize for array, _ in parts])
        sent = torch.from_numpy(np.concatenate(pieces))
        arrived = self.rows(sent, (counts @ sizes).tolist(), (theirs @ sizes).tolist(), stage).numpy()
        ends = np.cumsum((theirs * sizes).reshape(-1))
        found = np.split(arrived, ends[:-1])
        return [
            (np.concatenate(found[k :: len(parts)]).view(array.dtype), theirs[:, k].tolist())
            for k, (array, _) in enumerate(parts)
        ]

    def sum(self, x: Tensor, stage: str = "sync") -> Tensor:
        """The sum of x over all workers, in place."""
        if self.size > 1:
            with self._meter.stage(stage), _named_loss(stage):
                dist.all_reduce(x, group=self._group)
            # a ring: every byte goes round once to be summed and once to be handed on
            self.traffic.count(
                stage, self._ranks[(self.rank + 1) % self.size], 2 * x.nbytes * (self.size - 1) // self.size
            )
        return x

    def gather(self, x: Tensor, stage: str = "sync") -> list[Tensor]:
        """Every worker's x; all have the same shape."""
        if self.size == 1:
            return [x]
        out = [torch.empty_like(x) for _ in range(self.size)]
        with self._meter.stage(stage), _named_loss(stage):
            dist.all_gather(out, x.contiguous(), group=self._group)
        self._count(stage, [x.nbytes] * self.size)
        return out

    def share(self, data: bytes | None) -> bytes:
        """The first worker's bytes, for all."""
        if self.size == 1:
            assert data is not None
            return data
        length = torch.tensor([len(data) if data is not None else 0])
        buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        with _named_loss("sync"):
            dist.broadcast(length, self._ranks[0], group=self._group)
            buffer = buffer if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(buffer, self._ranks[0], group=self._group)
        return buffer.numpy().tobytes()

    def barrier(self) -> None:
        """Wait for all workers."""
        if self.size > 1:
            with _named_loss("a barrier"):
                dist.barrier(self._group)

    def _count(self, stage: str, sizes: Sequence[int]) -> None:
        for peer, size in enumerate(sizes):
            if peer != self.rank and size:
                self.traffic.count(stage, self._ranks[peer], size)


@dataclass
class Arriving:
    """Rows under way. What is sent must not change before they are here."""

    work: Any
    sent: Tensor
    out: Tensor
    half: bool
    meter: Meter
    stage: str

    def wait(self) -> Tensor:
        """The rows that came, by sender."""
        if self.work is not None:
            with self.meter.stage(self.stage), _named_loss("an exchange"):
                self.work.wait()
        return self.out.float() if self.half else self.out


class _named_loss:
    """Turns the failure of a collective into the error that a lost worker is."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            raise ClusterError(f"another worker stopped answering during {self._doing}") from error
