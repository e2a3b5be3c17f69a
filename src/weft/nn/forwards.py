"""What forwards take, of a model and of its convolutions; and what is said where one gives or gets no rows."""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from weakref import WeakKeyDictionary

from torch import Tensor, nn

LEARNED_ROWS = (
    "Where rows are learned for each vertex, its number is its feature, data.x = torch.arange(n)[:, None] (up to 16 "
    "million), and the model begins with nn.Embedding(n, width)(x[:, 0].long())"
)

Arguments = Mapping[str, inspect.Parameter]  # by name
_KNOWN: WeakKeyDictionary[Callable[..., object], Arguments] = WeakKeyDictionary()  # by a class's function


def taken_by(model: nn.Module) -> Arguments:
    """What its forward takes, by name; of a wrapper that takes anything, as AveragedModel does, what its model takes."""
    method = getattr(model.forward, "__func__", None)  # None: a function was set on the module
    accepted = inspect.signature(model.forward).parameters if method is None else _bound(method)
    within, kinds = [*model.children()], {one.kind for one in accepted.values()}
    anything = kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    if anything and len(within) == 1 and type(within[0]).forward is not nn.Module.forward:
        return taken_by(within[0])
    return accepted


def _bound(method: Callable[..., object]) -> Arguments:
    """What a class's function takes besides its object: kept, as reading it takes longer than a small convolution."""
    if isinstance(method, FunctionType) and method in _KNOWN:
        return _KNOWN[method]
    found = inspect.signature(MethodType(method, method)).parameters
    if isinstance(method, FunctionType):
        _KNOWN[method] = found
    return found


def arguments_of(forward: Callable[..., object]) -> list[str]:
    """The names of what the forward of a class of convolutions takes behind `self`."""
    return list(_bound(forward))


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
        f"rows, even if it is undone: leave it out; a table is looked up by F.embedding(ids, table), not by table[ids] or "
        f"index_select; a map by type of vertices is sum((node_type == kind)[:, None] * "
        f"linear(x) for kind, linear in enumerate(linears)))"
    )


def of_edges(name: str, values: Tensor) -> str:
    """Why a convolution can't have values of edges that a model holds itself, and what to do."""
    return (
        f"{name} ({[*values.shape]}) that does not come of the graph, whose edges are in another order here "
        f"than in edge_index, and some of them at a time: give these values to the graph (edge_weight, edge_attr or "
        f"edge_type), let the model's forward take them by that name, and hand them on"
    )


def of_vertices(name: str, values: Tensor) -> str:
    """The same of values of vertices, where these have other numbers than they were given."""
    return (
        f"{name} ({[*values.shape]}) that does not come of its vertices' rows, but has one for each of the "
        f"graph's vertices, which partitioning has numbered anew: make these values features of the graph, and hand on "
        f"columns of the rows that come into the model's forward"
    )
