"""The exchanges of a group of workers, with their bytes and seconds; and what carries them.

Rows travel over sockets (kernels/links.cpp), or by a process group of torch.distributed.
"""

import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from weft import _kernels, errors
from weft.errors import ClusterError, WeftError, kind_of, reason_of
from weft.exchange.encrypted_links import EncryptedLinks
from weft.memory import is_shortage, lacks_threads
from weft.meter import Meter

_MESSAGE = 1 << 13  # bytes that a fast link carries in the time that a processor needs for a message
_SUMMED_AT_ONCE = 1 << 26  # bytes: what is sent of them, and what comes, is there besides
_SHARED_AT_ONCE = 1 << 16  # bytes that the first worker sends to each other one, at most, when it shares some

SAME_STEPS = "every `run`, every backward pass and every `sync` belongs to all workers"

SocketLinks = _kernels.Links | EncryptedLinks  # connections to the workers of a group
Portion = tuple[Tensor, Sequence[int], Sequence[int]]  # rows, how many go to each worker, and how many come


class SilentWorkersError(ClusterError):
    """Workers that did not send what was waited for, or can't be sent to."""

    def __init__(self, text: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ranks = ranks


class Traffic:
    """Bytes that this worker sent, by stage and by receiver; several communicators may count at once."""

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


class Transport(Protocol):
    """All workers of a group call the same methods in the same order; each call returns what waits for its end."""

    header: int  # bytes that go before each message

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        """The first send[0] rows of x go to worker 0, the next send[1] to worker 1, ...; `out` is filled likewise."""

    def start_any(self, data: np.ndarray, send: Sequence[int]) -> Callable[[], list[np.ndarray]]:
        """Bytes whose number the receivers do not know; the result is those of each sender."""

    def close(self) -> None:
        """Close its connections. Other workers still receive what was sent before."""


class Communicator:
    """The exchanges of one group of workers. All must call the same methods in the same order.

    A single worker has no transport: what it exchanges stays where it is.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        transport: Transport | None = None,
        meter: Meter | None = None,
        traffic: Traffic | None = None,
        half: bool = False,
        ranks: Sequence[int] | None = None,
        device: Transport | None = None,
    ) -> None:
        self.rank, self.size = rank, size
        self.others = [int(member != rank) for member in range(size)]  # 1 for each worker but this one
        self.traffic = traffic or Traffic(size)
        self._transport, self._device = transport, device  # for what is in host memory, and on a device
        self._meter = meter or Meter()
        self._wire = torch.float16 if half else torch.float32  # what rows of float32 travel as
        self._ranks = list(ranks or range(size))  # of the group's members among all workers

    @property
    def half(self) -> bool:
        """Do rows of float32 travel in half precision?"""
        return self._wire != torch.float32

    @property
    def of_gradients(self) -> "Communicator":
        """The same, by which gradients go back: in half precision as bfloat16, for in float16 a large batch's are zero."""
        if not self.half:
            return self
        other = copy(self)
        other._wire = torch.bfloat16
        return other

    def rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str) -> Tensor:
        """The first send[0] rows of x go to worker 0, the next send[1] to worker 1, ...; received rows come likewise.

        Nothing goes to oneself: send[rank] and receive[rank] must be 0.
        """
        return self.begin(x, send, receive, stage)()

    def begin(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str, exact: bool = False
    ) -> Callable[[], Tensor]:
        """`rows` without waiting: the result waits for what arrives.

        `exact`: not in half precision, even on a communicator that is.
        """
        assert send[self.rank] == receive[self.rank] == 0
        wire = x.dtype if exact or x.dtype != torch.float32 else self._wire
        y = x.detach().to(wire).contiguous()
        out = y.new_empty(sum(receive), *x.shape[1:])
        transport = self._transport if x.is_cpu else self._device
        assert self.size == 1 or transport is not None, f"there is no way for rows on {x.device}"
        if transport is not None:
            width = math.prod(y.shape[1:]) * y.element_size()
            with self._measured(stage, [rows * width for rows in send]):
                arrived = transport.start(y, send, out, receive)

        def wait() -> Tensor:
            if transport is not None:
                with self._measured(stage):
                    arrived()
            return out.to(x.dtype)

        return wait

    def together(self, parts: Sequence[Portion], stage: str) -> Callable[[], list[tuple[Tensor, ...]]]:
        """Several parts (rows of one width) in one message; the result waits: for each part, the rows by sender."""
        if len(parts) == 1:
            x, send, receive = parts[0]
        else:
            pieces = [rows.split(list(counts)) for rows, counts, _ in parts]
            x = torch.cat([piece[peer] for peer in range(self.size) for piece in pieces])
            send, receive = ([sum(c) for c in zip(*(part[k] for part in parts), strict=True)] for k in (1, 2))
        arriving = self.begin(x, send, receive, stage)
        counts = [part[2][peer] for peer in range(self.size) for part in parts]

        def wait() -> list[tuple[Tensor, ...]]:
            rows = arriving().split(counts)
            return [rows[k :: len(parts)] for k in range(len(parts))]

        return wait

    def arrays(
        self, parts: Sequence[tuple[np.ndarray, Sequence[int]]], stage: str
    ) -> list[tuple[np.ndarray, list[int]]]:
        """Arrays in one message, each with its number of elements for each receiver; returns what arrived, likewise."""
        if self._transport is None:
            return [(array[:0], [0]) for array, _ in parts]
        counts = np.ascontiguousarray(np.array([counts for _, counts in parts], dtype=np.int64).T)
        starts = np.cumsum(counts, axis=0) - counts
        pieces, sizes = [], [0] * self.size
        for peer in range(self.size):
            if peer != self.rank:  # the numbers of elements go first
                ends = starts[peer] + counts[peer]
                whole = [counts[peer], *(a[s:e] for (a, _), s, e in zip(parts, starts[peer], ends, strict=True))]
                pieces += [array.view(np.uint8) for array in whole]
                sizes[peer] = sum(array.nbytes for array in whole)
        with self._measured(stage, sizes):
            arrived = self._transport.start_any(np.concatenate(pieces), sizes)()
        theirs, found = np.zeros_like(counts), [[array[:0].view(np.uint8)] for array, _ in parts]
        for peer, message in enumerate(arrived):
            if peer != self.rank:
                theirs[peer] = message[: 8 * len(parts)].view(np.int64)
                ends = 8 * len(parts) + np.cumsum(theirs[peer] * [array.itemsize for array, _ in parts])
                for pieces, (start, end) in zip(found, pairwise([8 * len(parts), *ends]), strict=True):
                    pieces.append(message[start:end])
        return [
            (np.concatenate(found[k]).view(array.dtype), theirs[:, k].tolist()) for k, (array, _) in enumerate(parts)
        ]

    def gather_arrays(self, own: Sequence[np.ndarray], stage: str) -> list[list[np.ndarray]]:
        """Every worker's arrays, of any length, in one message: of each of these, by worker."""
        parts = [(np.tile(array, self.size - 1), [len(array) * other for other in self.others]) for array in own]
        found = [np.split(whole, np.cumsum(counts)[:-1]) for whole, counts in self.arrays(parts, stage)]
        for of_workers, array in zip(found, own, strict=True):
            of_workers[self.rank] = array
        return found

    def sum(self, x: Tensor, stage: str = "sync") -> Tensor:
        """The sum of x over all workers, in place; in the workers' order, so that all get the same bits."""
        if self.size == 1:
            return x
        flat = x.detach().reshape(-1)
        if flat.nbytes > _SUMMED_AT_ONCE and x.is_contiguous():
            for piece in flat.split(_SUMMED_AT_ONCE // flat.element_size()):
                self.sum(piece, stage)
            return x
        if sent_whole(flat.nbytes, self.size):
            total = _added(self._to_all(flat, [len(flat)] * self.size, stage))
        else:  # each worker sums a piece, then all get all pieces: the same bits
            mine = list(flat.tensor_split(self.size))
            lengths = [len(piece) for piece in mine]
            own = mine[self.rank]
            mine[self.rank] = own[:0]
            send = [len(piece) for piece in mine]
            receive = [len(own) * other for other in self.others]
            parts = list(self.begin(torch.cat(mine), send, receive, stage, exact=True)().split(receive))
            parts[self.rank] = own
            total = torch.cat(self._to_all(_added(parts), lengths, stage))
        x.copy_(total.view_as(x))
        return x

    def gather(self, x: Tensor, stage: str = "sync") -> list[Tensor]:
        """Every worker's x; all have the same shape."""
        if self.size == 1:
            return [x]
        return [part.view_as(x) for part in self._to_all(x.reshape(-1), [x.numel()] * self.size, stage)]

    def each(self, figure: float, stage: str = "sync") -> list[float]:
        """Every worker's figure, by worker; whole numbers are exact."""
        return [float(of_one) for of_one in self.gather(torch.tensor([figure], dtype=torch.float64), stage)]

    def share(self, data: bytes | None) -> bytes:
        """The first worker's bytes, for all. Many are sent in pieces: one to each worker, then all to all."""
        data = (data if self.rank == 0 else None) or b""
        if self.size == 1:
            return data
        length, mine = np.array([len(data)], dtype=np.int64), np.frombuffer(data, dtype=np.uint8)
        if self.rank == 0:
            self.gather_arrays([length, mine if len(data) <= _SHARED_AT_ONCE else mine[:0]], "sync")
        else:
            none = [0] * self.size
            (length, _), (got, _) = self.arrays([(length, none), (mine, none)], "sync")
            data = got.tobytes()
        return data if length[0] <= _SHARED_AT_ONCE else self._shared_in_pieces(data, int(length[0]))

    def told(self, text: str) -> list[str]:
        """What every worker says."""
        mine = np.frombuffer(text.encode(), dtype=np.uint8)
        (said,) = self.gather_arrays([mine], "sync")
        return [part.tobytes().decode() for part in said]

    def decided(self, decide: Callable[[], Any]) -> Any:
        """What the first worker decides, for all: plain data. What it refuses, all do."""
        if self.rank > 0:
            told = json.loads(self.share(None))
            if "refused" in told:
                raise getattr(errors, told["kind"])(told["refused"])
            return told["decided"]
        try:
            said = json.dumps({"decided": decide()})
        except WeftError as error:
            self.share(json.dumps({"refused": str(error), "kind": kind_of(error).__name__}).encode())
            raise
        return json.loads(self.share(said.encode()))["decided"]

    def barrier(self) -> None:
        """Wait for all workers."""
        self.gather(torch.zeros(1))

    def close(self) -> None:
        """Close its connections; all workers of the group do, when no exchange is under way."""
        for transport in (self._transport, self._device):
            if transport is not None:
                transport.close()

    def _shared_in_pieces(self, data: bytes, length: int) -> bytes:
        """The first worker's bytes: nobody sends or holds more than a few times as many, whatever the number of workers."""
        bounds = [length * worker // self.size for worker in range(self.size + 1)]
        lengths, none = [end - start for start, end in pairwise(bounds)], [0] * self.size
        whole, first = torch.tensor(np.frombuffer(data, dtype=np.uint8)), self.rank == 0
        send = [0, *lengths[1:]] if first else none
        receive = none if first else [lengths[self.rank], *none[1:]]
        came = self.begin(whole[lengths[0] :], send, receive, "sync")()
        pieces = self._to_all(whole[: lengths[0]] if first else came, lengths, "sync")
        return data if first else torch.cat(pieces).numpy().tobytes()

    def _to_all(self, own: Tensor, lengths: Sequence[int], stage: str) -> list[Tensor]:
        """Every worker's numbers, each of a known length."""
        receive = [length * other for length, other in zip(lengths, self.others, strict=True)]
        sent = own.expand(self.size - 1, len(own)).reshape(-1)
        send = [len(own) * other for other in self.others]
        parts = list(self.begin(sent, send, receive, stage, exact=True)().split(receive))
        parts[self.rank] = own
        return parts

    @contextmanager
    def _measured(self, stage: str, sizes: Sequence[int] = ()) -> Iterator[None]:
        """Counts seconds, and the bytes that go to each worker, towards a stage."""
        with self._meter.stage(stage):
            yield
        header = 0 if self._transport is None else self._transport.header
        for peer, size in enumerate(sizes):
            if peer != self.rank:
                self.traffic.count(stage, self._ranks[peer], size)
                self.traffic.count("headers", self._ranks[peer], header)


class Recorded(NamedTuple):
    """What one worker was asked to exchange: rows of so many bytes."""

    sent: int
    came: int
    row: float
    summed: bool = False  # over the workers: none come


class Recorder(Communicator):
    """A comm of workers of whom only one is there: what is sent is written down, what comes is zero."""

    def __init__(self, rank: int = 0, size: int = 2) -> None:
        super().__init__(rank, size)
        self.exchanges: list[Recorded] = []
        self.meanwhile = 0.0  # processor seconds that went by between an exchange's begin and the wait for it

    def begin(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], stage: str, exact: bool = False
    ) -> Callable[[], Tensor]:
        self.exchanges.append(Recorded(sum(send), sum(receive), float(x.element_size() * math.prod(x.shape[1:]))))
        out, begun = x.new_zeros(sum(receive), *x.shape[1:]), time.thread_time()

        def wait() -> Tensor:
            self.meanwhile += time.thread_time() - begun
            return out

        return wait

    def sum(self, x: Tensor, stage: str = "exchange") -> Tensor:
        self.exchanges.append(Recorded(len(x), 0, float(x.element_size() * math.prod(x.shape[1:])), summed=True))
        return x


def sent_whole(size: float, workers: int) -> bool:
    """Does a sum send everything to all? In pieces it sends 2 / workers of the bytes, but in two exchanges."""
    return size - 2 * size / workers <= _MESSAGE


def _added(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


class SocketTransport:
    """Sockets, for what is in host memory: kernels/links.cpp, or encrypted_links.py."""

    header = 16

    def __init__(
        self, links: SocketLinks, ranks: Sequence[int], disconnect: Callable[[], object] = lambda: None
    ) -> None:
        self._open: SocketLinks | None = links
        self._ranks, self._disconnect = ranks, disconnect
        self._lost: list[int] = []  # once a worker is lost, nobody knows what the others' next message is of

    @property
    def _links(self) -> SocketLinks:
        assert self._open is not None, "this communicator was closed"  # its sockets' numbers may be others' by now
        self._check(self._lost)
        return self._open

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        width = x.element_size() * math.prod(x.shape[1:])
        self._links.begin(bytes_of(x).numpy(), [count * width for count in send])

        def wait() -> None:
            with _in_step():
                lost = self._links.finish_into(bytes_of(out).numpy(), [count * width for count in receive])
            self._check(lost)

        return wait

    def start_any(self, data: np.ndarray, send: Sequence[int]) -> Callable[[], list[np.ndarray]]:
        self._links.begin(data, list(send))

        def wait() -> list[np.ndarray]:
            with _in_step():
                lost, messages = self._links.finish_any()
            self._check(lost)
            return messages

        return wait

    def close(self) -> None:
        """Close the sockets, once."""
        if self._open is not None:
            self._disconnect()
        self._open = None

    def _check(self, lost: list[int]) -> None:
        self._lost = lost
        if lost:
            ranks = [self._ranks[member] for member in lost]
            workers = ", ".join(f"worker {rank}" for rank in ranks)
            raise SilentWorkersError(
                f"{workers} stopped answering: look at its output; if it is alive, either the network between them is cut, "
                f"or not all take the same steps ({SAME_STEPS})",
                ranks,
            )


class ProcessGroupTransport:
    """A process group of torch.distributed: NCCL for what is on a device, or Gloo."""

    header = 0

    def __init__(self, group: "dist.ProcessGroup | None", size: int) -> None:
        self._group, self._size, self._closed = group, size, False

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        assert not self._closed, "this communicator was closed"
        with named_loss():
            work = dist.all_to_all_single(out, x, list(receive), list(send), self._group, async_op=True)

        def wait() -> None:
            with named_loss():
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


@contextmanager
def named_loss(who: str = "another worker") -> Iterator[None]:
    """Turns the failure of a collective, or of the store, into the error of a lost worker, with what torch says.

    But where this worker lacks memory: NCCL takes some of the device's.
    """
    try:
        yield
    except RuntimeError as error:
        if is_shortage(error) and not lacks_threads(error):
            raise
        first, _, last = str(error).partition("Last error:")  # of NCCL's
        raise ClusterError(f"{who} stopped answering ({reason_of(RuntimeError(last or first))})") from error


@contextmanager
def _in_step() -> Iterator[None]:
    """Turns messages that are not what this worker waits for into an error that says how they come about."""
    try:
        yield
    except ValueError as error:
        raise ClusterError(
            f"{error}: in a loop of one's own all go through the same batches, and evaluate, sum, save and close together: "
            f"no worker may leave a loop by itself, or call these for itself (`if rank == 0`)"
        ) from None


def bytes_of(x: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, in place; of one number the stride may be any, which torch's own view refuses."""
    return x.detach().view(-1).as_strided((x.numel(),), (1,)).view(torch.uint8)
