"""Synthetic graphs: R-MAT (skewed degrees, no structure) and communities (blocks in classes, informative features)."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from weft import _kernels
from weft.errors import ConfigError
from weft.graph.edges_to_csr import EdgeChunk, EdgeOptions, ProgressCallback
from weft.graph.feature_tables import FeatureTable
from weft.graph.graph import Graph
from weft.graph.importing import import_graph
from weft.graph.source import Source
from weft.graph.storage import check_free
from weft.keys import Stream, generator, key

_CHUNK = 1 << 22
_INSIDE = 1e-4  # of drawn edges, at least: others are drawn again
_CELL = 8  # vertices, on average, among which one is searched by its weight


def rmat(
    out: Path,
    *,
    vertices: int,
    edges: int,
    width: int = 0,
    classes: int = 16,
    train: float = 0.1,
    skew: tuple[float, float, float] = (0.57, 0.19, 0.19),
    seed: int = 0,
    threads: int = 1,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> Graph:
    """An R-MAT graph of directed edges, with random features (if width > 0), labels and a split."""
    _check(vertices, edges, train, classes, width)
    _check_room(out, vertices, edges, width)
    if min(skew) < 0 or sum(skew) > 1:
        raise ConfigError(
            f"skew {skew} is not possible: the shares of three quarters must be positive and sum to at most 1"
        )
    if _share_inside(vertices, skew) < _INSIDE:  # draws beyond the last vertex are made again
        raise ConfigError(
            f"skew {skew} is not possible for {vertices:,} vertices: next to no edge would fall among them; give the first "
            f"quarter a share, or the second and the third"
        )
    random = _random(seed, 0)
    relabel = random.permutation(vertices).astype(np.int32)
    edge_key = key(Stream.GENERATE, seed, 1)

    def read() -> Iterator[EdgeChunk]:
        for first in range(0, edges, _CHUNK):
            src, dst = (np.empty(min(_CHUNK, edges - first), dtype=np.int32) for _ in range(2))
            _kernels.rmat_edges(edge_key, first, vertices, *skew, relabel, src, dst, threads)
            yield EdgeChunk(src, dst)

    labels = random.integers(0, classes, vertices).astype(np.int32)
    split = _split(vertices, train, random)
    features = (FeatureTable(vertices, width, lambda: _noise(vertices, width, seed)),) if width else ()
    source = Source(vertices, read, features, labels, split, num_edges=edges)
    import_graph(source, out, EdgeOptions(), overwrite=overwrite, progress=progress)
    return Graph.open(out)


def communities(
    out: Path,
    *,
    vertices: int,
    edges: int,
    width: int = 100,
    classes: int = 47,
    train: float = 0.08,
    block: int = 500,
    in_block: float = 0.7,
    in_class: float = 0.15,
    signal: float = 0.2,
    seed: int = 0,
    threads: int = 1,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> Graph:
    """Degree-corrected blocks inside classes: most edges stay in a block, some in its class, few go anywhere.

    Every edge is there both ways. Degrees follow a power law. A vertex's features are its class's centre times `signal`,
    plus noise of unit variance: weak by themselves, informative when averaged over neighbours.
    """
    source = communities_source(
        vertices=vertices,
        edges=edges,
        width=width,
        classes=classes,
        train=train,
        block=block,
        in_block=in_block,
        in_class=in_class,
        signal=signal,
        seed=seed,
        threads=threads,
    )
    _check_room(out, vertices, edges, width)
    import_graph(source, out, EdgeOptions(), overwrite=overwrite, progress=progress)
    return Graph.open(out)


def communities_source(
    *,
    vertices: int,
    edges: int,
    width: int = 100,
    classes: int = 47,
    train: float = 0.08,
    block: int = 500,
    in_block: float = 0.7,
    in_class: float = 0.15,
    signal: float = 0.2,
    seed: int = 0,
    threads: int = 1,
) -> Source:
    """The graph of `communities` as it is made, edges a piece at a time."""
    _check(vertices, edges, train, classes, width)
    if in_block < 0 or in_class < 0 or in_block + in_class > 1:
        raise ConfigError(f"in_block = {in_block} and in_class = {in_class} must be positive and sum to at most 1")
    random = _random(seed, 0)
    class_bounds = np.linspace(0, vertices, min(classes, vertices) + 1).astype(np.int64)
    blocks = [np.linspace(low, high, max(1, (high - low) // block) + 1)[:-1] for low, high in _pairs(class_bounds)]
    block_bounds = np.append(np.concatenate(blocks).astype(np.int64), vertices)
    weights = np.minimum((1 - random.random(vertices)) ** (-1 / 1.5), vertices**0.5)
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    cells = np.linspace(0.0, sums[-1], max(1, vertices // _CELL) + 1)
    guide = np.searchsorted(sums, cells, side="right")
    relabel = random.permutation(vertices).astype(np.int32)
    labels = np.empty(vertices, dtype=np.int32)
    labels[relabel] = np.repeat(np.arange(len(class_bounds) - 1, dtype=np.int32), np.diff(class_bounds))
    edge_key, pairs = key(Stream.GENERATE, seed, 1), edges // 2

    @lru_cache(1)  # edges are read twice, and often there is only one chunk
    def chunk(first: int) -> EdgeChunk:
        src, dst = (np.empty(min(_CHUNK, pairs - first), dtype=np.int32) for _ in range(2))
        bounds = (sums, guide, block_bounds, class_bounds, in_block, in_class)
        _kernels.community_edges(edge_key, first, *bounds, relabel, src, dst, threads)
        return EdgeChunk(np.stack([src, dst], 1).reshape(-1), np.stack([dst, src], 1).reshape(-1))

    def read() -> Iterator[EdgeChunk]:
        return map(chunk, range(0, pairs, _CHUNK))

    centres = random.standard_normal((classes, width), dtype=np.float32) * np.float32(signal)

    def rows() -> Iterator[np.ndarray]:
        first = 0
        for noise in _noise(vertices, width, seed):
            yield noise + centres[labels[first : first + len(noise)]]
            first += len(noise)

    split = _split(vertices, train, random)
    features = (FeatureTable(vertices, width, rows),) if width else ()
    return Source(vertices, read, features, labels, split, num_edges=2 * pairs)


def _pairs(bounds: np.ndarray) -> Iterator[tuple[int, int]]:
    return zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)


def _noise(vertices: int, width: int, seed: int) -> Iterator[np.ndarray]:
    """Standard normal rows; each piece has a key of its own."""
    rows = max(1, _CHUNK // width)
    for piece, first in enumerate(range(0, vertices, rows)):
        yield _random(seed, 2, piece).standard_normal((min(rows, vertices - first), width), dtype=np.float32)


def _split(vertices: int, train: float, random: np.random.Generator) -> np.ndarray:
    """`train` of the vertices to train on, a fifth of the rest each to validate and to test on."""
    rest = (1 - train) / 5
    split = np.full(vertices, 3, dtype=np.uint8)
    order = random.permutation(vertices)
    bounds = np.rint(np.cumsum([train, rest, rest]) * vertices).astype(int)
    for value, part in enumerate(np.split(order, bounds)[:3]):
        split[part] = value
    return split


def _random(*parts: int) -> np.random.Generator:
    return generator(Stream.GENERATE, *parts)


def _share_inside(vertices: int, skew: tuple[float, float, float]) -> float:
    """The share of drawn edges both of whose ends are vertices."""
    levels = max(1, (vertices - 1).bit_length())
    quarters = {(0, 0): skew[0], (0, 1): skew[1], (1, 0): skew[2], (1, 1): 1 - sum(skew)}
    # By whether each end is certain to be below the last vertex by now, or equal to it so far.
    shares = {(False, False): 1.0}
    for level in reversed(range(levels)):
        last, then = (vertices - 1) >> level & 1, dict[tuple[bool, bool], float]()
        for below, share in shares.items():
            for bits, quarter in quarters.items():
                if all(sure or bit <= last for sure, bit in zip(below, bits, strict=True)):
                    now = below[0] or bits[0] < last, below[1] or bits[1] < last
                    then[now] = then.get(now, 0.0) + share * quarter
        shares = then
    return sum(shares.values())


def _check(vertices: int, edges: int, train: float, classes: int, width: int) -> None:
    if not 1 <= vertices < 1 << 31 or edges < 0 or width < 0:
        raise ConfigError(
            f"{vertices} vertices of {width} features and {edges} edges are not possible: give 1 to 2^31 - 1 vertices, "
            f"edges >= 0, a width >= 0"
        )
    if not 0 < train <= 1 or not 1 <= classes < 1 << 31:
        raise ConfigError(
            f"train = {train}, classes = {classes}: train is a share above 0 and at most 1, classes 1 to 2^31 - 1"
        )


def _check_room(out: Path, vertices: int, edges: int, width: int) -> None:
    """Refuse more than the disk holds before edges are drawn, which may take forever."""
    check_free("the graph", 8 * vertices + 4 * (edges + width * vertices), out, Path(out).absolute())
