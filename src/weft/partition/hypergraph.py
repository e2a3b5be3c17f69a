"""The rows that will really cross: batches sampled as training will sample them, and who needs each of their rows.

A row that a batch reads becomes a net: the vertex whose owner holds it, and the vertices whose owners need it. Draws are
pure functions of keys, so these are the very rows that training with the same seed will move.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

import weft.placements
import weft.sampling
from weft import _kernels
from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback, running_sum
from weft.partition.goal import TrainingTask, keyed_order, unheard
from weft.partition.simulator import seeds_of

_ID = np.int32
_ROWS = 1  # the phase of the full graph's rows: they cross in all layers alike
_FETCH = 0  # the phase in which inputs come; layers have a phase each, in which their rows come and their sums go
_CERTAIN = 1 - 1e-6  # a chance above this counts as this: its logarithm must be a number
_MOST_VERTICES = np.iinfo(_ID).max


def sampled_hypergraph(
    graph: Graph,
    task: TrainingTask,
    *,
    pins: int | None = None,
    count: int | None = None,
    epochs: range,
    like: np.ndarray | None = None,
    kept: np.ndarray | None = None,
    threads: int = 1,
    progress: ProgressCallback = unheard,
) -> _kernels.Nets:
    """Nets of whole batches, until they have enough pins, or are so many (`count`), or the epochs are through.

    `like`: an allocation that the wanted one is like, by which layers under `cover` choose what to pull and what to push.
    `kept`: of which rows every part keeps a copy, [vertices] bool.
    """
    check_count(graph)
    if task.whole:
        return _nets_of_all(graph, task, pins)
    nets, each = _kernels.Nets(graph.num_vertices), range(threads)
    samplers = [task.drawn_from(graph) for _ in each]
    batches = weft.sampling.Batches(seeds_of(graph), graph.original_ids, task.batch_size, task.seed)
    todo = ((batch, epoch, number) for epoch in epochs for number, batch in enumerate(batches.of(epoch)))
    pieces = [_kernels.Nets(graph.num_vertices) for _ in each]
    if kept is not None:
        for one in (nets, *pieces):
            one.keep_copies(kept)

    def sample(thread: int, which: tuple[np.ndarray, int, int]) -> _kernels.Nets:
        pieces[thread].clear()
        add_batch(pieces[thread], samplers[thread].sample(*which), task, like)
        return pieces[thread]

    done, most = 0, len(epochs) * len(batches) if count is None else count
    wanted = math.inf if pins is None else pins

    def left() -> int:
        """How many batches are to come, by the pins of those that came; none after an epoch of which no row can cross."""
        if not nets.pins():
            return int(done < len(batches))
        return math.ceil(min(most, done * wanted / nets.pins())) - done

    with ThreadPoolExecutor(threads) as pool:
        while nets.pins() < wanted and done < most:
            together = list(islice(todo, min(threads, left())))
            if not together:
                break
            if len(together) == 1:  # no piece beside the whole
                add_batch(nets, samplers[0].sample(*together[0]), task, like)
            else:
                for piece in pool.map(sample, each, together):
                    if nets.pins() < wanted:
                        nets.append(piece)
            if not done and nets.pins():
                nets.reserve(min(1 + wanted / nets.pins(), most))  # the last batch may go beyond
            done += len(together)
            progress("sampling", *((done, most) if pins is None else (min(nets.pins(), pins), pins)))
    return nets


def _nets_of_all(graph: Graph, task: TrainingTask, pins: int | None) -> _kernels.Nets:
    """Nets of the full graph: a row is needed wherever a neighbour of it is. Of some rows, where all have more pins."""
    nets, vertices = _kernels.Nets(graph.num_vertices), np.arange(graph.num_vertices, dtype=_ID)
    indptr, src = graph.indptr, graph.indices
    if pins is not None and graph.num_edges > pins:
        some = np.zeros(graph.num_vertices, dtype=bool)
        some[keyed_order(graph, task.seed)[: graph.num_vertices * pins // graph.num_edges]] = True
        taken = some[src]
        indptr, src = running_sum(taken)[indptr], src[taken]
    nets.start(vertices)
    nets.hop(np.ascontiguousarray(indptr, dtype=np.int64), np.ascontiguousarray(src, dtype=_ID), len(vertices))
    nets.finish(vertices, sum(task.crossing(layer) for layer in range(len(task.fanouts))), _ROWS)
    return nets


def add_batch(
    nets: _kernels.Nets, sample: weft.sampling.Sample, task: TrainingTask, like: np.ndarray | None = None
) -> None:
    """The rows that cross in a batch, layer by layer, as far as that hangs on who owns what.

    Local layers of seeds that are dealt out need the same rows from anywhere. Partial sums go to the owners of destinations.
    """
    like = np.zeros(nets.vertices(), dtype=_ID) if like is None else like
    vertices = np.ascontiguousarray(sample.vertices.numpy(), dtype=_ID)
    lowest = task.lowest_local
    if lowest < len(sample.blocks) and task.seeds == "home":
        nets.start(vertices[: sample.num_seeds])
        for block in reversed(sample.blocks[lowest:]):
            nets.hop(block.indptr.numpy(), block.src.numpy(), block.num_src)
        nets.finish(vertices[: sample.blocks[lowest].num_src], task.crossing(lowest), lowest + 1 if lowest else _FETCH)
    for layer, (block, placement) in enumerate(zip(sample.blocks[:lowest], task.placements, strict=False)):
        pull, push = task.crossing(layer), task.crossing_sums(layer)
        indptr, src, rows = block.indptr.numpy(), block.src.numpy(), vertices[: block.num_src]
        come, go = (layer + 1 if layer else _FETCH), layer + 1
        kind = weft.placements.placement_named(placement)
        if not kind.splits:  # sources' rows come to the destinations' owners
            nets.start(rows[: block.num_dst])
            nets.hop(indptr, src, block.num_src)
            nets.finish(rows, pull, come)
        elif not kind.pulls:  # partial sums go there from the sources' owners
            nets.start(rows)
            nets.gather(indptr, src)
            nets.finish(rows[: block.num_dst], push, go)
        else:  # either, as is cheaper
            nets.cover(indptr, src, rows, like, int(like.max(initial=0)) + 1, (pull, push), (come, go))


def rows_between_hosts(nets: _kernels.Nets, owners: np.ndarray, hosts: np.ndarray) -> np.ndarray:
    """What each host needs of each other one, [hosts, hosts]: inputs come once for all its workers, other rows to each.

    `hosts`: of each part.
    """
    count = int(hosts.max()) + 1
    each, inputs = rows_by_phase(nets, owners, len(hosts)), rows_by_phase(nets, hosts[owners], count)[:, _FETCH]
    each[:, _FETCH] = 0
    np.add.at(inputs, (hosts[:, None], hosts[None, :]), each.sum(1))
    return inputs


def rows_by_phase(nets: _kernels.Nets, owners: np.ndarray, parts: int) -> np.ndarray:
    """The same phase by phase, as each of them waits for its own busiest link: [parts, phases, parts]."""
    rows = np.empty((parts, nets.phases(), parts))
    nets.rows(np.ascontiguousarray(owners, dtype=_ID), rows)
    return rows


def kept_rows(reads: np.ndarray, share: float, parts: int) -> np.ndarray | None:
    """The rows that caches of such a share will hold, [vertices] bool, as far as is known before owners are; None: no rows.

    Each worker's are those that others own and it reads most; where batches reach them at random, these are the same ones
    for all workers. A worker has no need to keep what it owns itself.
    """
    count = min(len(reads), round(share * len(reads) * parts / max(1, parts - 1)))
    if not count:
        return None
    kept = np.zeros(len(reads), dtype=bool)
    kept[np.argsort(-reads, kind="stable")[:count]] = True
    return kept


def expected_draws(graph: Graph, task: TrainingTask, threads: int = 1) -> np.ndarray:
    """How often each in-edge of a vertex is drawn in an average batch, [vertices] float64, without sampling."""
    return draws_and_reads(graph, task, threads)[0]


def draws_and_reads(graph: Graph, task: TrainingTask, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """How often each in-edge of a vertex is drawn in an average batch, and how likely that the vertex's row is read.

    The chance that a vertex is reached is carried from the seeds outwards, a hop at a time, as if its neighbours were
    reached independently of each other. Where a layer's sample is one for all who draw, a vertex is read if it is in that.
    """
    if task.whole:
        return np.full(graph.num_vertices, float(len(task.fanouts))), np.ones(graph.num_vertices)
    check_count(graph)
    vertices, seeds = graph.num_vertices, seeds_of(graph)
    indptr, out = np.empty(vertices + 1, dtype=np.int64), np.empty(graph.num_edges, dtype=graph.indices.dtype)
    _kernels.out_lists(graph.indptr, graph.indices, indptr, out, threads)
    reached = np.zeros((vertices, 1), dtype=np.float32)
    reached[seeds] = min(1.0, task.batch_size / len(seeds))
    draws, degrees = np.zeros(vertices), np.maximum(np.diff(graph.indptr), 1)
    sampler = task.drawn_from(graph)
    for hop, fanout in enumerate(task.fanouts):
        shared = sampler.shared_chances(hop)
        if shared is None:
            drawn = chance = np.ones(vertices) if fanout < 0 else np.minimum(1.0, fanout / degrees)
        else:
            drawn, chance = _mean_of_sources(graph, shared, threads), np.ones(vertices)
        draws += reached[:, 0] * drawn
        missed = np.log1p(-np.minimum(reached * chance[:, None], _CERTAIN)).astype(np.float32)
        sums = np.empty_like(missed)
        _kernels.sum_rows(indptr, out, None, None, missed, sums, False, False, threads)
        if shared is not None:
            sums = np.log1p(np.expm1(sums) * np.minimum(shared, _CERTAIN)[:, None]).astype(np.float32)
        reached = -np.expm1(sums + np.log1p(-np.minimum(reached, _CERTAIN)))
    return draws, reached[:, 0]


def _mean_of_sources(graph: Graph, chances: np.ndarray, threads: int) -> np.ndarray:
    """Over each vertex's in-edges the mean of their sources' chances, [vertices]."""
    means = np.empty((graph.num_vertices, 1), dtype=np.float32)
    each = chances[:, None].astype(np.float32)
    _kernels.sum_rows(graph.indptr, graph.indices, None, None, each, means, True, False, threads)
    return means[:, 0]


def check_count(graph: Graph) -> None:
    """Refuse a graph of more vertices than draws, and the rows that they move, are counted for."""
    if graph.num_vertices > _MOST_VERTICES:
        raise ConfigError(
            f"the graph has {graph.num_vertices:,} vertices, more than what training draws can be foretold of: allocate by "
            f"--method fennel, kaminpar or metis, without --by-draws and --balance-work"
        )
