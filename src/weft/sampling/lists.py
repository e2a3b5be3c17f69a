"""Samplers written in Python: each says where in their lists vertices take neighbours, and the rest is done here."""

from abc import abstractmethod

import numpy as np

from weft.errors import InputError
from weft.graph import edge_arrays, running_sum
from weft.keys import mix64_array
from weft.sampling.sampler import DrawnHop, Numbering, Sampler
from weft.threads import cached_property


class ListSampler(Sampler):
    """Derive a sampler from this class, give it a name and a line of help, and write `draw` with numpy.

    What a vertex draws may depend only on the key, the vertex's original id and its own list: then any number of workers
    draw the same, each for other vertices and maybe from a part of the graph that is numbered otherwise. `random` gives
    numbers that are made so. A list keeps its order, whoever holds it.
    """

    @cached_property
    def _tried(self) -> set[int]:
        """The hops whose draws were looked at."""
        return set()

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering(len(self._graph.indptr) - 1, self._graph.indices.dtype)

    @abstractmethod
    def draw(self, vertices: np.ndarray, hop: int, key: int) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours that vertices draw in a hop, 0 being the seeds'; its fanout is `self.fanouts[hop]`.

        How many each vertex draws, [vertices], and vertex after vertex their places in its list, from 0, [sum of these].
        """

    def degrees(self, vertices: np.ndarray) -> np.ndarray:
        """The lengths of the vertices' lists, [vertices] int64."""
        at = vertices - self._first
        if len(at) and not 0 <= at.min() <= at.max() < self._end - self._first:
            elsewhere = vertices[(at < 0) | (at >= self._end - self._first)]
            raise InputError(
                f"sampler {self.name!r} asked for the list of vertex {elsewhere[0]}, but lists are here of vertices "
                f"{self._first} to {self._end - 1}: ask for those of vertices that draw, or take topology = 'replicated', "
                f"by which all workers have all lists"
            )
        return self._indptr[at + 1] - self._indptr[at]

    def neighbours(self, vertices: np.ndarray) -> np.ndarray:
        """The vertices' lists one after the other, [sum of degrees]."""
        degrees = self.degrees(vertices)
        return self._graph.indices[self._edges(vertices, degrees, counted(degrees))]

    def edge_values(self, name: str, vertices: np.ndarray) -> np.ndarray:
        """The edge_weight, edge_type or edge_features of the vertices' lists one after the other, [sum of degrees, ...]."""
        of_all = edge_arrays(self._graph).get(name)
        if of_all is None:
            raise InputError(
                f"sampler {self.name!r} asks for {name}, which this graph's edges lack: import it with them"
            )
        degrees = self.degrees(vertices)
        return of_all[self._edges(vertices, degrees, counted(degrees))]

    def original(self, vertices: np.ndarray) -> np.ndarray:
        """The vertices' ids at import, [vertices]: this graph's are others where partitioning has renumbered it."""
        return vertices if self._graph.original_ids is None else self._graph.original_ids[vertices]

    def random(self, key: int, vertices: np.ndarray, places: np.ndarray | int = 0) -> np.ndarray:
        """A number from 0 to below 1 for each vertex and place, [vertices] float64, that depends on original ids alone."""
        of_vertex = mix64_array(key, self.original(vertices)).view(np.int64)
        return (mix64_array(key, of_vertex ^ places) >> np.uint64(11)) * 2.0**-53

    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        """Some hops by their keys: what `draw` gives, as blocks."""
        unique, (places,) = self._numbering.number(seeds)
        if len(unique) < len(seeds):
            raise InputError(f"seed {unique[np.bincount(places) > 1][0]} comes twice: seeds must be distinct")
        vertices, drawn = seeds, []
        for hop, key in zip(hops, keys, strict=True):
            lengths, edges = self._drawn(vertices, hop, key)
            vertices, (_, src) = self._numbering.number(vertices, self._graph.indices[edges])
            drawn.append((running_sum(lengths), src, len(vertices), edges if self._want_edges else None))
        return vertices, drawn

    def _drawn(self, vertices: np.ndarray, hop: int, key: int) -> tuple[np.ndarray, np.ndarray]:
        """How many neighbours vertices draw, and the drawn edges' places in the graph's arrays."""
        lengths, places = self._whole_numbers(self.draw(vertices, hop, key))
        if len(lengths) != len(vertices) or lengths.sum() != len(places):
            raise InputError(
                f"sampler {self.name!r} gave {len(lengths)} lengths that sum to {lengths.sum()}, and {len(places)} places, "
                f"for {len(vertices)} vertices: draw must give a length for each vertex, and as many places as they sum to"
            )
        if self.by_several and hop not in self._tried and len(vertices) > 1:
            self._tried.add(hop)
            self._check_draws_by_vertex(vertices, hop, key, lengths, places)
        outside = (places < 0) | (places >= np.repeat(self.degrees(vertices), lengths))
        if outside.any():
            raise InputError(
                f"sampler {self.name!r} drew place {places[outside][0]}, beyond a vertex's list: places run from 0 to its "
                f"degree - 1"
            )
        return lengths, self._edges(vertices, lengths, places)

    def _check_draws_by_vertex(
        self, vertices: np.ndarray, hop: int, key: int, lengths: np.ndarray, places: np.ndarray
    ) -> None:
        """Refuse a vertex that draws otherwise where others draw beside it: half of them are tried without the others."""
        half = len(vertices) // 2
        some, drawn = self._whole_numbers(self.draw(vertices[half:].copy(), hop, key))
        same = np.array_equal(some, lengths[half:]) and some.sum() == len(drawn)
        if same:  # in whatever order
            of_vertex, before = np.repeat(np.arange(len(some)), some), places[lengths[:half].sum() :]
            one, other = (each[np.lexsort((each, of_vertex))] for each in (before, drawn))
            same = np.array_equal(one, other)
        if not same:
            raise InputError(
                f"sampler {self.name!r} draws otherwise for a vertex if it draws for others beside it, of which each worker "
                f"(or micro-batch) has some: take self.random(key, vertices, places), no generator of its own, or train on "
                f"one worker"
            )

    def _whole_numbers(self, drawn: object) -> list[np.ndarray]:
        """Refuse what is none of the two arrays that `draw` is to give."""
        pair = [np.asarray(each) for each in drawn] if isinstance(drawn, tuple | list) else []
        if len(pair) != 2 or any(each.ndim != 1 or (len(each) and each.dtype.kind not in "iu") for each in pair):
            found = ", ".join(f"{each.dtype} of shape {each.shape}" for each in pair) or type(drawn).__name__
            raise InputError(
                f"sampler {self.name!r} drew {found}: draw must give two arrays of whole numbers, [vertices] and [their sum]"
            )
        if len(pair[0]) and pair[0].min() < 0:
            raise InputError(
                f"sampler {self.name!r} drew {pair[0].min()} neighbours of a vertex: give 0 where there are none"
            )
        return [each.astype(np.int64, copy=False) for each in pair]

    def _edges(self, vertices: np.ndarray, lengths: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Places in the vertices' lists as places in the graph's arrays, [sum of lengths] int64."""
        return np.repeat(self._indptr[vertices - self._first], lengths) + places.astype(np.int64)


def counted(lengths: np.ndarray) -> np.ndarray:
    """0, 1, 2... for each list, one after the other, [sum of lengths] int64."""
    starts = running_sum(lengths)
    return np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
