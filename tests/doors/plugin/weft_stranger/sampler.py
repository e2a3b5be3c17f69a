"""A sampler that draws neighbours who stand in a row: one random number a vertex, and reads that are close together."""

import numpy as np

from weft.sampling import ListSampler, counted


class WindowSampler(ListSampler):
    """Each vertex takes neighbours in a row, from a random place in its list on, around the end if need be."""

    name = "window"
    help = "each vertex takes neighbours that stand in a row in its list"

    def draw(self, vertices: np.ndarray, hop: int, key: int) -> tuple[np.ndarray, np.ndarray]:
        degrees, fanout = self.degrees(vertices), self.fanouts[hop]
        lengths = degrees if fanout < 0 else np.minimum(degrees, fanout)
        start = (self.random(key, vertices) * degrees).astype(np.int64)
        places = np.repeat(start, lengths) + counted(lengths)
        return lengths, places % np.repeat(degrees, lengths)
