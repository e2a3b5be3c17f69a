"""Which rows a worker keeps where it computes: those most read, of such as are not there already."""

from collections.abc import Iterable, Iterator

import numpy as np

from weft.exchange import Owners
from weft.sampling import Block

LEAST = 1e-9  # that any row is worth on a device, so that room that is left is for whatever may be read


def left_out(near: frozenset[int], owners: Owners, member: int, on_device: bool, at_owners: bool) -> frozenset[int]:
    """The owners whose rows a worker's cache leaves out.

    In host memory these are the host's (`near`), whose rows are there already. On a device no rows are: but where the
    first layer uses each row where it is owned (`at_owners`: edges go to their sources), the host's other workers have
    those that this one (`member`) does not answer for on their own devices, so that none is cached twice.
    """
    if not on_device:
        return near
    return near - owners.parts_of(member) if at_owners else frozenset()


def hottest(worth: np.ndarray, owners: Owners, without: frozenset[int], room: int) -> np.ndarray:
    """The vertices most worth keeping, at most `room` of them: of any worth, and owned by others than those `without`."""
    return next(hottest_of_each(worth, owners, without, [room]))


def hottest_of_each(
    worth: np.ndarray, owners: Owners, without: frozenset[int], rooms: Iterable[int]
) -> Iterator[np.ndarray]:
    """The same for each of several rooms."""
    wanted = worth > 0  # by themselves: an array with zeros in one piece takes long to partition
    for worker in without:
        first, end = owners.bounds[worker : worker + 2]
        wanted[first:end] = False
    found = np.flatnonzero(wanted)
    values = worth[found]
    yield from (found[most_of(values, room)] for room in rooms)


def most_of(values: np.ndarray, room: int) -> np.ndarray:
    """Where the largest of some values are, at most `room` of them, rising; those from all over of such as are equal."""
    least = len(values) - room
    if least <= 0 or not room:
        return np.arange(min(room, len(values)))
    limit = np.partition(values, least)[least]
    chosen = values > limit
    chosen[_some_of(np.flatnonzero(values == limit), room - int(chosen.sum()))] = True
    return np.flatnonzero(chosen)


def _some_of(found: np.ndarray, number: int) -> np.ndarray:
    """So many of what was found, from all over: they are as good as the others."""
    return found[np.arange(number) * len(found) // max(1, number)]


class ByDegree:
    """Which rows a cache holds of many, few of which were read: these, and where there is room those of most out-edges."""

    def __init__(self, out_degrees: np.ndarray, owners: Owners, least: int) -> None:
        """`least`: out-edges of a row that is worth anything though it was not read."""
        self._degrees, self._owners, self._least = out_degrees, owners, least
        self._most = float(out_degrees.max(initial=0))
        self._found: dict[frozenset[int], tuple[np.ndarray, np.ndarray]] = {}

    def worth(self, reads: np.ndarray, vertices: np.ndarray | slice) -> np.ndarray:
        """What rows are worth that were read (`by_reads`)."""
        return by_reads(reads, self._degrees[vertices], self._most)

    def of_others(self, vertices: np.ndarray, without: frozenset[int]) -> np.ndarray:
        """Which of some vertices, in rising order, are owned by others than those `without`: a mask."""
        others = np.ones(len(vertices), dtype=bool)
        for first, end in self._spans(without):
            others[slice(*np.searchsorted(vertices, (first, end)))] = False
        return others

    def hottest(self, read: np.ndarray, worth: np.ndarray, without: frozenset[int], room: int) -> np.ndarray:
        """What `hottest` finds, as a mask of all vertices; `read`: those that were, but for what is `without`."""
        if room <= len(read):
            kept = np.zeros(len(self._degrees), dtype=bool)
            kept[read[most_of(worth, room)]] = True
            return kept
        limit, number = self._limit(self._degrees[read], without, room - len(read))
        kept, tied = self._degrees > limit, self._degrees == limit
        for first, end in self._spans(without):
            kept[first:end] = tied[first:end] = False
        kept[read] = tied[read] = False
        kept[_some_of(np.flatnonzero(tied), number)] = True
        kept[read] = True
        return kept

    def _limit(self, read: np.ndarray, without: frozenset[int], room: int) -> tuple[int, int]:
        """The out-edges of rows of which some are kept, all with more being so; and how many. `read`: those of rows read."""
        degrees, there = self._numbers(without)
        there = there - np.bincount(np.searchsorted(-degrees, -read), minlength=len(degrees) + 1)[:-1]
        there[degrees < self._least] = 0
        ends = np.cumsum(there)
        at = int(np.searchsorted(ends, room))
        if at == len(ends):
            return self._least - 1, 0
        return int(degrees[at]), int(room - ends[at] + there[at])

    def _numbers(self, without: frozenset[int]) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of out-edges that there are, falling, and of how many rows, but for those `without`; found once."""
        if without not in self._found:
            there = np.bincount(self._degrees, minlength=1)
            for first, end in self._spans(without):
                there -= np.bincount(self._degrees[first:end], minlength=len(there))
            degrees = np.flatnonzero(there)[::-1]
            self._found[without] = degrees, there[degrees]
        return self._found[without]

    def _spans(self, without: frozenset[int]) -> list[tuple[int, int]]:
        return [(int(self._owners.bounds[worker]), int(self._owners.bounds[worker + 1])) for worker in without]


def dealt_among(kept: np.ndarray, worth: np.ndarray, mates: Owners, room: int) -> list[np.ndarray]:
    """Rows that a host keeps once, device by device, at most `room` on each: with who answers for them among its workers.

    Of what is too much for one, the rows of least worth go where there is room. Given alike, all workers find the same.
    """
    member, parts, rest = mates.member_of(kept), [], []
    for mate in range(mates.size):
        own = kept[member == mate]
        more = len(own) - room
        if more > 0:
            own = own[np.argpartition(worth[own], more)]
            rest.append(own[:more])
        parts.append(own[max(0, more) :])
    ends = np.cumsum([room - len(part) for part in parts])
    added = np.split(np.concatenate([kept[:0], *rest]), ends)
    return [np.concatenate(both) for both in zip(parts, added[:-1], strict=True)]


def edges_from(block: Block) -> np.ndarray:
    """How many edges each of a block's sources has, and one more, for it is read: what a dry run counts.

    More telling than whether a batch reads it, where few batches were looked at; and what pushed edges cost depends on it.
    """
    return 1 + np.bincount(block.src.numpy(), minlength=block.num_src)


def by_reads(reads: np.ndarray, out_degrees: np.ndarray, most: float | None = None) -> np.ndarray:
    """What rows are worth by how often a dry run read them; among those read as often, by their out-edges.

    A dry run of few batches reaches only a part of what training will. `most`: out-edges of any row, where these are some.
    """
    return reads + out_degrees / (1.0 + (out_degrees.max(initial=0) if most is None else most))


def rooms(cache: float, vertices: int, row: int) -> int:
    """How many rows (of so many bytes) a cache holds that is given as a share of all, or in bytes."""
    return min(int(cache * vertices) if cache <= 1 else int(cache) // row, vertices)
