"""A batch's seeds, and from them blocks, hop by hop, all by keys: what samplers share, and the usual one.

The batches of an epoch are slices of one global permutation, the same whoever makes it and however vertices are numbered.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.graph import Graph, edge_arrays, whole_numbers
from weft.keys import Stream, hashes, key
from weft.plugins import SAMPLERS
from weft.sampling.block import Block, Sample, Topology, keys_of
from weft.threads import cached_property

# Up to here an array of 4 bytes a vertex renumbers faster than a hash table: it stays within a large last-level cache.
ARRAY_UP_TO = 1 << 23
WIDE = np.dtype(np.int64)  # of ids, where 32 bits do not hold them

# indptr, local sources, their number, places of the edges
DrawnHop = tuple[np.ndarray, np.ndarray, int, np.ndarray | None]


def dealt(count: int, shares: np.ndarray) -> np.ndarray:
    """The worker of each seed of a row of them, [count] int64: round-robin, or by shares (that sum to 1) where uneven.

    A worker's seeds come as evenly as can be, so that it has its share of the first ones too, however many these are.
    """
    if shares.min() == shares.max():
        return np.arange(count) % len(shares)
    most = min(count, int((count + len(shares)) * float(shares.max())) + 1)
    turns = np.round(
        (np.arange(most)[:, None] + 0.5) / shares, 6
    )  # when each seed is due; ties stay ties, if just about
    return np.argsort(turns, axis=None, kind="stable")[:count] % len(shares)


class WholeBatch:
    """All training seeds as the one batch of each epoch."""

    def __init__(self, seeds: np.ndarray) -> None:
        self._batches = [seeds]

    def __len__(self) -> int:
        return 1

    def of(self, epoch: int) -> list[np.ndarray]:
        """The batch of an epoch: always the same."""
        return self._batches


class Batches:
    """The training seeds, cut into batches; the last one may be smaller, none is dropped."""

    def __init__(self, seeds: np.ndarray, original_ids: np.ndarray | None, batch_size: int, seed: int) -> None:
        self._seeds = seeds
        self._ids = seeds if original_ids is None else original_ids[seeds]
        self._batch_size = batch_size
        self._seed = seed
        self._made: dict[int, list[np.ndarray]] = {}  # of the last two epochs: one ends while the next is begun

    def __len__(self) -> int:
        return -(-len(self._seeds) // self._batch_size)

    def of(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch: vertices in the order of a hash of (seed, epoch, original id)."""
        if epoch not in self._made:
            self._made = dict([*self._made.items(), (epoch, self._cut(epoch))][-2:])
        return self._made[epoch]

    def _cut(self, epoch: int) -> list[np.ndarray]:
        rank = hashes(self._ids, Stream.PERMUTE, self._seed, epoch)
        order = np.argsort(rank)
        ranks = rank[order]
        if (ranks[1:] == ranks[:-1]).any():  # of two that are alike the lower id comes first
            order = np.lexsort((self._ids, rank))
        shuffled = self._seeds[order]
        return [shuffled[first : first + self._batch_size] for first in range(0, len(shuffled), self._batch_size)]


class Common(TypedDict, total=False):
    """What all samplers are given besides a graph and fanouts."""

    seed: int
    threads: int
    span: tuple[int, int] | None  # the vertices whose lists a sampler reads, if not all


class Sampler(ABC):
    """Draws blocks of in-neighbours by keys of (seed, epoch, batch, hop, original id) alone.

    Fanouts are listed from the seeds outwards, one a layer; -1 takes all neighbours. A sampler serves one thread at a
    time; make one for each thread that samples at once. `span`: the vertices whose lists it reads, if not all.
    To write one in Python, derive it from `ListSampler`.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()  # of replace and weighted: those that the constructor takes
    budgets: ClassVar[bool] = False  # are fanouts numbers of vertices that a layer draws from the whole graph?
    equal_edges: ClassVar[bool] = True  # if not, `source_weights` says what edges count for, and convolutions must sum

    weighted = False  # are neighbours drawn with other chances than equal ones, as by the weights of their edges?
    by_several = False  # do several draw for a batch, each for some of its vertices?

    def __init__(
        self,
        graph: Topology,
        fanouts: Sequence[int],
        *,
        seed: int = 0,
        threads: int = 1,
        span: tuple[int, int] | None = None,
    ) -> None:
        if bad := [f for f in fanouts if f < -1 or f == 0]:
            raise ConfigError(f"fanout {bad[0]} is not possible: give a positive number, or -1 for all neighbours")
        self.fanouts = list(fanouts)
        self._graph = graph
        self._seed = seed
        self._threads = threads
        self._want_edges = bool(edge_arrays(graph))
        self._first, self._end = span or (0, len(graph.indptr) - 1)
        self._indptr = graph.indptr[self._first : self._end + 1]

    @classmethod
    def check_class(cls) -> None:
        """Refuse a constructor that does not take what samplers are given."""
        try:
            inspect.signature(cls).bind(None, [], **dict.fromkeys([*Common.__annotations__, *cls.options]))
        except TypeError as error:
            raise ConfigError(
                f"{cls.__name__}: its constructor {error}: let it be __init__(self, graph, fanouts, *, ..., **common), with "
                f"its options, and hand common on"
            ) from None

    @classmethod
    def fanouts_like(cls, graph: Graph, fanouts: Sequence[int]) -> list[int]:
        """The fanouts of this sampler by which a vertex draws as many neighbours, on average, as these say."""
        return list(fanouts)

    def sample(self, seeds: Tensor | np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> Sample:
        """The blocks that compute the seeds (distinct ids), nearest the input first."""
        ids = whole_numbers("seeds", np.asarray(seeds))
        vertices, blocks = self._blocks(ids, range(len(self.fanouts)), epoch, batch, stream)
        sources = [self.counted_for(hop, vertices[: block.num_src]) for hop, block in enumerate(blocks)]
        return Sample(
            torch.from_numpy(vertices),
            blocks[::-1],
            keys_of(self._graph, vertices),
            self._graph,
            self.weighted,
            sources[::-1],
        )

    def hop(
        self, destinations: np.ndarray, number: int, epoch: int, batch: int, stream: Stream = Stream.SAMPLE
    ) -> tuple[np.ndarray, Block]:
        """One hop of a sample, the `number`-th from the seeds: the block's sources, destinations first, and the block."""
        vertices, blocks = self._blocks(destinations, range(number, number + 1), epoch, batch, stream)
        return vertices, blocks[0]

    def source_weights(self, number: int, vertices: np.ndarray) -> Tensor | None:
        """What an edge from each vertex counts for in the `number`-th hop, [n] float64; None: all the same."""
        return None

    def counted_for(self, number: int, vertices: np.ndarray) -> Tensor | None:
        """The same as a tensor; refused where it is not a number for each vertex."""
        given = self.source_weights(number, vertices)
        if given is None:
            return None
        weights = torch.as_tensor(given, dtype=torch.float64)
        if weights.shape != (len(vertices),):
            raise InputError(
                f"sampler {self.name!r} gave source_weights of shape {[*weights.shape]} for {len(vertices)} vertices: give "
                f"a number for each"
            )
        return weights

    def shared_chances(self, number: int) -> np.ndarray | None:
        """With which probability each vertex is in the sample that all destinations of the `number`-th hop share.

        [vertices] float64; None: destinations draw for themselves, each as many as the fanout.
        """
        return None

    def rest(self) -> None:
        """Give back tables and buffers that are kept between draws: they are as large as the largest one took."""
        for kept in ("_kernel", "_numbering"):
            self.__dict__.pop(kept, None)

    @abstractmethod
    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        """Some hops, from the seeds outwards, by their keys: all vertices reached, seeds first, and each hop."""

    def _blocks(
        self, seeds: np.ndarray, hops: range, epoch: int, batch: int, stream: Stream
    ) -> tuple[np.ndarray, list[Block]]:
        if len(seeds) and not self._first <= seeds.min() <= seeds.max() < self._end:
            other = seeds[(seeds < self._first) | (seeds >= self._end)][0]
            raise InputError(f"seed {other} is not a vertex of this graph: ids are {self._first} to {self._end - 1}")
        narrow = np.ascontiguousarray(seeds, dtype=self._graph.indices.dtype)
        vertices, drawn = self.draw_hops(narrow, hops, [key(stream, self._seed, epoch, batch, hop) for hop in hops])
        return vertices, [_block(*hop) for hop in drawn]


class KernelSampler(Sampler):
    """Holds the kernel, with its tables and buffers, for graphs of this size."""

    @cached_property
    def _kernel(self) -> _kernels.ArraySampler32:
        vertices = len(self._graph.indptr) - 1
        kind = _kernels.ArraySampler32 if vertices <= ARRAY_UP_TO else _kernels.HashSampler32
        return _kernels.HashSampler64(vertices) if self._graph.indices.dtype == WIDE else kind(vertices)

    def _blocks(
        self, seeds: np.ndarray, hops: range, epoch: int, batch: int, stream: Stream
    ) -> tuple[np.ndarray, list[Block]]:
        with _in_numbers():
            return super()._blocks(seeds, hops, epoch, batch, stream)


class NeighborSampler(KernelSampler):
    """Each vertex draws as many in-neighbours as the fanout says, from its own stream of randomness."""

    name = "neighbor"
    help = "each vertex draws neighbours for itself"
    options = frozenset({"replace", "weighted"})

    def __init__(
        self,
        graph: Topology,
        fanouts: Sequence[int],
        *,
        replace: bool = False,
        weighted: bool = False,
        **common: Unpack[Common],
    ) -> None:
        if weighted and graph.edge_weight is None:
            raise ConfigError("weighted sampling needs edge weights, and this graph has none: import it with --weight")
        super().__init__(graph, fanouts, **common)
        self.weighted = weighted
        self._replace = replace
        self._weights = _checked_weights(graph.edge_weight) if weighted else None
        self._ids = None if graph.original_ids is None else graph.original_ids[self._first : self._end]

    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        return self._kernel.sample(
            self._indptr,
            self._graph.indices,
            seeds,
            [self.fanouts[hop] for hop in hops],
            keys,
            self._ids,
            self._weights,
            self._replace,
            self._want_edges,
            self._first,
            self._threads,
        )


class Numbering:
    """Numbers ids of a graph's vertices; its table is reused between calls, so that it serves one thread at a time."""

    def __init__(self, vertices: int, dtype: np.dtype) -> None:
        kind = _kernels.ArrayNumbering32 if vertices <= ARRAY_UP_TO else _kernels.HashNumbering32
        self._kernel = _kernels.HashNumbering64(vertices) if dtype == WIDE else kind(vertices)

    def number(self, *parts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The distinct ids of all parts, in order of appearance; and each part's places among them, int32."""
        ids = np.concatenate(parts)
        unique, slots = np.empty_like(ids), np.empty(len(ids), dtype=np.int32)
        with _in_numbers():
            count = self._kernel.number(ids, unique, slots)
        return unique[:count].copy(), np.split(slots, np.cumsum([len(part) for part in parts])[:-1])


MakeSampler = Callable[..., Sampler]  # as `make_sampler`


def make_sampler(
    sampler: str,
    graph: Topology,
    fanouts: Sequence[int],
    *,
    replace: bool = False,
    weighted: bool = False,
    **common: Unpack[Common],
) -> Sampler:
    """The sampler of this name, with the options that it takes."""
    kind = check_options(sampler, replace, weighted)
    options = {name: True for name, given in (("replace", replace), ("weighted", weighted)) if given}
    made = kind(graph, fanouts, **options, **common)
    made.weighted = made.weighted or weighted
    return made


def check_options(sampler: str, replace: bool, weighted: bool) -> type[Sampler]:
    """The sampler's class; refused: a name that is not known, options that it lacks."""
    kind = SAMPLERS.get(sampler)
    for name, given in (("replace", replace), ("weighted", weighted)):
        if given and name not in kind.options:
            able = " or ".join(repr(other) for other in SAMPLERS.names() if name in SAMPLERS.get(other).options)
            raise ConfigError(
                f"{name} = true is not possible with sampler = {sampler!r}: drop it, or set sampler = {able}"
            )
    return kind


@contextmanager
def _in_numbers() -> Iterator[None]:
    """What is more than local numbers of 32 bits hold is refused by the kernel, which says what to do."""
    try:
        yield
    except OverflowError as error:
        raise ConfigError(str(error)) from None


def _block(indptr: np.ndarray, src: np.ndarray, num_src: int, edge_ids: np.ndarray | None) -> Block:
    edges = None if edge_ids is None else torch.from_numpy(edge_ids)
    return Block(torch.from_numpy(indptr), torch.from_numpy(src), num_src, edges)


def _checked_weights(weights: np.ndarray | None) -> np.ndarray | None:
    """Weights as float32, refused when one could not be a rate."""
    if weights is None:
        return None
    if len(weights) and not (weights.min() >= 0 and weights.max() < np.inf):  # NaN is neither
        at = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
        raise InputError(f"edge weight {weights[at]} at edge {at} can't be sampled by: weights must be finite and >= 0")
    return np.ascontiguousarray(weights, dtype=np.float32)
