"""What crosses in a model's layers between workers: told by a run on a few rows, on a comm that writes down what is sent.

The layer is made up: one worker's, of which another has a part. Rows and partial rows come from there, none go.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product

import torch

from weft.errors import ModelError
from weft.exchange import ColumnSpan, Communicator, Recorder
from weft.graph import Graph
from weft.nn import Met
from weft.placements import OWNER, REQUEST, Placement
from weft.planner.loads import LayerMessages, Message
from weft.planner.made_up import HERE, OWN, PAIRS, PULLED, made_up_layer
from weft.planner.model_cost import go_back, run_forward
from weft.planner.task import shared_out


def messages_of_layers(
    graph: Graph,
    layers: Sequence[Met],
    placements: Sequence[Placement],
    workers: int,
    comm: Communicator | None = None,
) -> LayerMessages:
    """The exchanges of every layer (0 nearest the inputs) under every placement, by request or not, as it may leave rows.

    With a communicator all its workers find some of them, and tell each other.
    """
    wanted = [
        (depth, kind, by_request)
        for depth, kind, by_request in product(range(len(layers)), placements, (True, False))
        if not (depth and kind.only_first) and (REQUEST if by_request else OWNER) in kind.leaves
    ]
    runs = [
        partial(messages_of, graph, layers[depth], depth, kind, by_request, workers)
        for depth, kind, by_request in wanted
    ]
    return {
        (depth, kind.name, by_request): None if some is None else [Message(**one) for one in some]
        for (depth, kind, by_request), some in zip(wanted, shared_out(runs, comm), strict=True)
    }


def messages_of(
    graph: Graph, layer: Met, depth: int, placed: Placement, by_request: bool, workers: int
) -> list[Message] | None:
    """The exchanges of a layer, forward and backward; None where the convolution can't be placed so.

    `by_request`: its destinations' rows are where they were asked for, not at their owners. `workers`: how many share the
    columns of a layer by column. How many rows go or come tells of which kinds they are. Rows from before the layer that the
    model joins with those behind it go where these are.
    """
    columns, comm = ColumnSpan(0, workers, layer.wide), Recorder()
    made = made_up_layer(placed, comm, columns, depth == 0, by_request)
    wide = layer.wide if made.whole_rows else columns.width
    bits = {"pulled": PULLED, "own": OWN, "pairs": PAIRS} if made.whole_rows else {"columns": -1}
    x = torch.randn(HERE, wide, dtype=layer.dtype).requires_grad_(layer.learned)
    try:
        go_back(run_forward(graph, layer, made, x, depth))
        for joined in layer.joined if made.whole_rows else ():
            go_back(made.own(x.new_zeros(HERE, joined.wide).requires_grad_(joined.learned)))
    except ModelError:
        return None
    found = []
    for one in comm.exchanges:
        rows, back = max((one.came, False), (one.sent, True))
        of_kinds = {kind: one.row for kind, bit in bits.items() if rows & bit}
        found.append(Message({"all": one.row}) if one.summed else Message(of_kinds, back))
    return found
