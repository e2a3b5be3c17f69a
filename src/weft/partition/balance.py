"""What parts must have their shares of, each by itself, and the most of it that they may have."""

import numpy as np

from weft.graph import Graph
from weft.partition.aim import Aim, Training, limits
from weft.partition.mesh import training_of

_UNITS = 1000  # of work that a vertex has on average: limits are whole numbers


def balance(graph: Graph, aim: Aim, task: Training, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is to be balanced, a row each, and the most that each part may have of it: [kinds, vertices], [kinds, parts].

    Weights as everywhere; where they count, training vertices by themselves, as far above their share as those allow; and
    where owners compute and some are to do more than others, the work of batches: `draws` of each in-edge of a vertex.
    """
    weighing = aim.weighing
    kinds, slack = [aim.weights(graph)], [weighing.imbalance]
    if weighing.training and graph.split is not None:
        whole = weighing.vertices + weighing.training + weighing.edges + weighing.work
        kinds.append(training_of(graph))
        slack.append(weighing.imbalance * whole / weighing.training)
    if aim.shares is not None and task.lowest_local:
        work = draws * np.diff(graph.indptr)
        kinds.append(np.rint(work * (_UNITS / max(float(work.mean()), 1e-300))).astype(np.int64))
        slack.append(weighing.imbalance)
    each = [limits(kind, aim.targets, most) for kind, most in zip(kinds, slack, strict=True)]
    return np.stack(kinds), np.ceil(each).astype(np.int64)
