"""Random generators that a model, or its loss, holds for itself: their states, as JSON has them."""

import random
from typing import Any, TypeGuard

import numpy as np
import torch

GENERATORS = torch.Generator, np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random
BY_ITS_OWN = "a generator of its own (np.random.default_rng, torch.Generator, random.Random)"

OwnGenerator = torch.Generator | np.random.Generator | np.random.RandomState | np.random.BitGenerator | random.Random


def is_own_generator(thing: object) -> TypeGuard[OwnGenerator]:
    """Is it a generator, and neither of torch's, numpy's and Python's global ones, nor the system's?"""
    if not isinstance(thing, GENERATORS) or isinstance(thing, random.SystemRandom):
        return False
    everybodys = (torch.default_generator, *torch.cuda.default_generators, np.random.mtrand._rand, random._inst)
    return not any(thing is one for one in everybodys)


def state_of(generator: OwnGenerator) -> object:
    """Where it is, as JSON has it."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes().hex()
    if isinstance(generator, random.Random):
        return _listed(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return _listed(generator.get_state(legacy=False))
    return _listed((generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state)


def put_state(generator: OwnGenerator, state: Any) -> None:
    """Let it draw on from there; an error where it can't be there."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        version, words, gauss = state
        generator.setstate((version, tuple(words), gauss))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        (generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state = state


def _listed(state: Any) -> object:
    if isinstance(state, dict):
        return {name: _listed(value) for name, value in state.items()}
    if isinstance(state, np.ndarray | np.generic):
        return state.tolist()
    return [_listed(one) for one in state] if isinstance(state, tuple) else state
