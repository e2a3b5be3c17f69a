"""Keyed randomness, as in kernels/random.h: to the bit, for keys and numbers are integers of 64 bits."""

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix64(x):
    """The finaliser of splitmix64 on uint64."""
    x += GOLDEN
    x = (x ^ (x >> 30)) * _FIRST
    x = (x ^ (x >> 27)) * _SECOND
    return x ^ (x >> 31)


@triton.jit
def chain(key, part):
    """The key of a part below a key."""
    return mix64(key ^ mix64(part))
