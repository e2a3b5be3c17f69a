"""What a model's forward takes and gives, and what is said where that can't be."""

import inspect
from collections.abc import Container, Mapping

from torch import Tensor, nn

from weft.errors import ModelError

EDGE_ARGUMENTS = ("edge_weight", "edge_type")
ATTRIBUTES = "edge_attr"  # as PyG's models call what edges weigh, as rows

LEARNED_ROWS = (
    "Where rows are learned for each vertex, its number is its feature, data.x = torch.arange(n)[:, None] (up to 16 "
    "million), and the model begins with nn.Embedding(n, width)(x[:, 0].long())"
)


def taken_by(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """What its forward takes, by name; of a wrapper that takes anything, as AveragedModel does, what its model takes."""
    accepted = inspect.signature(model.forward).parameters
    within, kinds = [*model.children()], {one.kind for one in accepted.values()}
    anything = kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    if anything and len(within) == 1 and type(within[0]).forward is not nn.Module.forward:
        return taken_by(within[0])
    return accepted


def check_arguments(model: nn.Module, accepted: Mapping[str, inspect.Parameter], given: Container[str]) -> None:
    """Refuse a forward that takes no edges, or asks for what it can't be given."""
    if len(accepted) < 2 and not any(one.kind is one.VAR_POSITIONAL for one in accepted.values()):
        one = next(iter(accepted), "nothing")
        remedy = (
            "torch_geometric.nn.Sequential hands it to convolutions"
            if isinstance(model, nn.Sequential)
            else f"write forward(self, x, edge_index), with x and edge_index in place of {one}.x and {one}.edge_index"
        )
        raise ModelError(
            f"{type(model).__name__}.forward takes {one} alone, and no edge_index besides the vertices' rows: {remedy}"
        )
    named = [one for one in [*accepted.values()][2:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if missing := [one.name for one in named if one.default is one.empty and one.name not in given]:
        raise ModelError(
            f"{type(model).__name__}.forward asks for {', '.join(missing)}: besides rows and edge_index, the first two, "
            f"it may be given {', '.join(EDGE_ARGUMENTS)}, {ATTRIBUTES} (what edges weigh, as a column) and node_type, "
            f"where the graph has them; give what else it takes a default"
        )


def no_rows(out: object) -> str:
    """What a forward gave in place of rows, and what to do."""
    if isinstance(out, tuple | list | dict):
        return (
            f"a {type(out).__name__} in place of a row for each vertex: put side by side what is in it, as in "
            f"torch.cat([mu, logstd], 1), and take it apart behind the model, as in mu, logstd = run(batch).chunk(2, 1)"
        )
    if not isinstance(out, Tensor):
        return f"a {type(out).__name__} in place of a row for each vertex"
    return (
        f"a tensor of shape {tuple(out.shape)} in place of a row for each vertex: pooling over vertices can't be trained by "
        f"batches of vertices; and no rows are known that were transposed, even there and back, or stacked by "
        f"torch.stack([x, y]): write torch.stack([x, y], 1).sum(1)"
    )


def not_of_vertices(x: object) -> str:
    """What a convolution got in place of the vertices' rows, and what to do."""
    if isinstance(x, nn.Parameter):
        return f"a parameter in place of the vertices' rows. {LEARNED_ROWS}"
    return (
        f"{type(x).__name__} in place of the vertices' rows: pass it the rows that came into the model's forward, or what "
        f"row-wise operations and convolutions made of them (what transposes or sorts them, or picks some, makes other "
        f"rows, even if it is undone: leave it out; a map by type of vertices is sum((node_type == kind)[:, None] * "
        f"linear(x) for kind, linear in enumerate(linears)))"
    )
