"""Programs for pairs: rows are computed for the vertices at their ends, then go where the pairs are scored."""

from collections.abc import Callable

import numpy as np

from weft.exchange import Communicator
from weft.placements.cooperation import Cooperation
from weft.placements.pairs import Pairs, meet
from weft.placements.program import Program


def program_for_pairs(cooperation: Cooperation, pairs: Pairs, epoch: int, batch: int, comm: Communicator) -> Program:
    """This worker's program for a batch of its group's pairs; all members of the comm's group call this together."""
    ends = pairs.ends()
    workers = cooperation.workers(ends, epoch, batch)
    own = ends[workers == comm.rank]
    program = cooperation.program(own, epoch, batch)
    mine = pairs.part(workers[np.searchsorted(ends, pairs.heads)] == comm.rank)
    program.ends = meet(mine, own, lambda ids: workers[np.searchsorted(ends, ids)], comm)
    return program


def program_for_pairs_alone(pairs: Pairs, program_of: Callable[[np.ndarray], Program]) -> Program:
    """The program for pairs whose ends are all computed here; `program_of` makes it for these vertices."""
    ends = pairs.ends()
    program = program_of(ends)
    program.ends = meet(pairs, ends, lambda ids: np.zeros(len(ids), dtype=np.int64), Communicator())
    return program
