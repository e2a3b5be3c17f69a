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
    """The same for each of several rooms, the largest first: each is found among the ones before."""
    wanted = worth > 0  # by themselves: an array with zeros in one piece takes long to partition
    for worker in without:
        first, end = owners.bounds[worker : worker + 2]
        wanted[first:end] = False
    found = np.flatnonzero(wanted)
    for room in rooms:
        least = max(0, len(found) - room)
        if 0 < least < len(found):
            found = found[np.argpartition(worth[found], least)]
        found = found[least:]
        yield found


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


def by_reads(reads: np.ndarray, out_degrees: np.ndarray) -> np.ndarray:
    """What rows are worth by how often a dry run read them; among those read as often, by their out-edges.

    A dry run of few batches reaches only a part of what training will.
    """
    return reads + out_degrees / (1.0 + out_degrees.max(initial=0.0))


def rooms(cache: float, vertices: int, row: int) -> int:
    """How many rows (of so many bytes) a cache holds that is given as a share of all, or in bytes."""
    return min(int(cache * vertices) if cache <= 1 else int(cache) // row, vertices)
