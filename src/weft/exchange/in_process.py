"""Workers as threads of one process, for tests and for trying things out: the same exchanges, the same bits, no network.

losses = simulate(3, lambda world: train(graph, model(), world))
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.errors import ClusterError
from weft.exchange.communicator import SocketTransport
from weft.exchange.world import World

Box = tuple[int, int, int]  # a communicator's number, the sender, the receiver
T = TypeVar("T")
SomeArray = TypeVar("SomeArray", Tensor, np.ndarray)
Mail = Tensor | np.ndarray | None  # None: the sender has left


class Mailboxes:
    """Where the workers of one process leave messages for each other."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._boxes: dict[Box, SimpleQueue[Mail]] = {}
        self._gone: set[int] = set()

    def put(self, box: Box, message: Mail) -> None:
        """Leave a message."""
        self._boxes.setdefault(box, SimpleQueue()).put(message)

    def take(self, box: Box) -> Tensor | np.ndarray:
        """The next message, when it is there."""
        messages, sender = self._boxes.setdefault(box, SimpleQueue()), box[1]
        try:
            message = messages.get(timeout=0 if sender in self._gone else self.timeout)
        except Empty:
            message = None
        if message is None:
            messages.put(None)  # for others that wait
            raise ClusterError(f"worker {sender} stopped answering")
        return message

    def leave(self, rank: int) -> None:
        """A worker sends nothing more: those that wait for it fail, once they have read what it sent."""
        self._gone.add(rank)
        for box in [box for box in list(self._boxes) if box[1] == rank]:
            self.put(box, None)

    def forget(self, boxes: Iterable[Box]) -> None:
        """Nothing is left in these boxes any more."""
        for box in boxes:
            self._boxes.pop(box, None)


class ThreadTransport:
    """Carries rows to other threads."""

    header = SocketTransport.header  # counts bytes as sockets do, so that what is predicted of them can be tested

    def __init__(self, boxes: Mailboxes, number: int, rank: int, ranks: Sequence[int]) -> None:
        self._boxes, self._number, self._rank = boxes, number, rank
        self._others = [(member, other) for member, other in enumerate(ranks) if other != rank]
        self._closed = self._under_way = False

    def start(self, x: Tensor, send: Sequence[int], out: Tensor, receive: Sequence[int]) -> Callable[[], None]:
        self._put([part.clone() for part in x.split(list(send))])

        def wait() -> None:
            for part, message in zip(out.split(list(receive)), self._take(out[:0]), strict=True):
                if part.numel() or message.numel():  # who has no rows may not know how wide they are
                    assert part.shape == message.shape and part.dtype == message.dtype, (part.shape, message.shape)
                    part.copy_(message)

        return wait

    def start_any(self, data: np.ndarray, send: Sequence[int]) -> Callable[[], list[np.ndarray]]:
        self._put([part.copy() for part in np.split(data, np.cumsum(send)[:-1])])
        return lambda: self._take(data[:0])

    def close(self) -> None:
        self._closed = True
        self._boxes.forget((self._number, other, self._rank) for _, other in self._others)

    def _put(self, parts: Sequence[Tensor] | Sequence[np.ndarray]) -> None:
        assert not self._closed, "this communicator was closed"
        assert not self._under_way, "an exchange is still under way"
        self._under_way = True
        for member, other in self._others:
            self._boxes.put((self._number, self._rank, other), parts[member])

    def _take(self, nothing: SomeArray) -> list[SomeArray]:
        """Everyone's message; `nothing` for this worker's."""
        messages = [nothing] * (len(self._others) + 1)
        for member, other in self._others:
            message = self._boxes.take((self._number, other, self._rank))
            assert isinstance(message, type(nothing)), "workers do not do the same exchange"
            messages[member] = message
        self._under_way = False
        return messages


class ThreadConnections:
    """One worker's connections to the others of its process. All make the same transports in the same order."""

    name = "threads"

    def __init__(self, boxes: Mailboxes, rank: int) -> None:
        self._boxes, self._rank, self._made = boxes, rank, 0

    def transport(self, ranks: Sequence[int]) -> ThreadTransport:
        """A new transport among some workers, this one too."""
        self._made += 1
        return ThreadTransport(self._boxes, self._made, self._rank, ranks)

    def reach(self, rank: int, timeout: float) -> int:
        """Threads of one process have no way to go."""
        return 0

    def close(self) -> None:
        """Send nothing any more."""
        self._boxes.leave(self._rank)


@cache
def _name_operations() -> None:
    """Have torch make its objects of operations now, in one thread.

    It makes one where an operation is first met by a dispatch mode, and keeps a bare pointer to it: two threads that meet
    it together may make two, of which the one that is kept is freed.
    """
    for name in torch._C._dispatch_get_all_op_names():
        space, _, said = name.partition("::")
        packet, _, overload = said.partition(".")
        with suppress(AttributeError):  # operations that Python doesn't see
            getattr(getattr(getattr(torch.ops, space), packet), overload or "default")


def simulate(
    size: int, work: Callable[[World], T], hosts: Sequence[int] | None = None, timeout: float = 60.0
) -> list[T]:
    """What `work(world)` gives on each of `size` workers, which are threads of this process.

    `hosts`: the host of each worker; None: all are on one. The first error of a worker ends all, and is raised here.
    A worker that waits for another one longer than `timeout` fails, and names it. What belongs to a process is shared:
    seed torch's generator with `weft.keys.seeded`, and let every worker set the same number of threads.
    """
    boxes, of_devices = Mailboxes(timeout), Mailboxes(timeout)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        carried = ThreadConnections(boxes, rank), ThreadConnections(of_devices, rank)
        world = World(rank, size, None if hosts is None else list(hosts), connections=carried[0], of_devices=carried[1])
        try:
            results[rank] = work(world)
        except BaseException as error:
            errors.append(error)
        finally:
            world.leave()

    if size > 1:
        _name_operations()
    before = torch.get_num_threads()
    workers = [threading.Thread(target=run, args=(rank,), name=f"weft-worker-{rank}") for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(before)
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(size)]
