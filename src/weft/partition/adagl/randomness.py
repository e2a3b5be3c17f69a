"""Where AdaGL's randomness comes from: the seed and what it is for."""

import numpy as np

from weft.keys import Stream, key


def generator(*parts: int) -> np.random.Generator:
    """A stream of its own for each purpose."""
    return np.random.Generator(np.random.Philox(key(Stream.PARTITION, *parts)))
