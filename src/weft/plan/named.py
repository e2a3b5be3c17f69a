"""Strategies by name, as constructors of plans; and any plan as people write it."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.errors import ConfigError
from weft.plan.plan import Plan, options_of
from weft.plugins import PLACEMENTS


def gdp(depth: int, **options: Any) -> Plan:
    """Data parallelism: every worker computes all that its seeds need."""
    return Plan(("local",) * depth, **options)


def nfp(depth: int, **options: Any) -> Plan:
    """Node-feature parallelism: layer 1 on slices of the columns."""
    return Plan(("columns",) + ("local",) * (depth - 1), **options)


def snp(depth: int, **options: Any) -> Plan:
    """Source-node parallelism: layer 1 at the owners of the sources."""
    return Plan(("push",) + ("local",) * (depth - 1), **options)


def dnp(depth: int, **options: Any) -> Plan:
    """Destination-node parallelism: layer 1 at the owners of the destinations."""
    options = {"seeds": "home" if depth == 1 else "spread"} | options
    return Plan(("pull",) + ("local",) * (depth - 1), **options)


def split(depth: int, placement: str = "cover", **options: Any) -> Plan:
    """Split parallelism: every vertex computed once, at its owner, in every layer."""
    options = {"seeds": "home"} | options
    return Plan((placement,) * depth, **options)


def leap(depth: int, **options: Any) -> Plan:
    """Feature-centric: every seed is computed at home, where most of its neighbours are."""
    return Plan(("local",) * depth, **({"seeds": "home"} | options))


def migrate(depth: int, **options: Any) -> Plan:
    """LeapGNN's own schedule: models visit the workers where their seeds are at home, carrying their gradients."""
    return Plan(("local",) * depth, **({"seeds": "home", "models": "migrate"} | options))


def halo(depth: int, placement: str = "cover", **options: Any) -> Plan:
    """The whole graph, every vertex at its owner: rows of neighbours beyond come, or partial sums go, in every layer.

    Of the inputs rows come: once, for they stay.
    """
    return Plan(("pull", *[placement] * (depth - 1)), **({"scope": "graph", "seeds": "home"} | options))


def tp(depth: int, **options: Any) -> Plan:
    """The whole graph by tensor parallelism: every layer aggregates slices of all rows' columns; dense parts at owners."""
    return Plan(("columns",) * depth, **({"scope": "graph", "seeds": "home"} | options))


def tp_decoupled(depth: int, **options: Any) -> Plan:
    """Tensor parallelism of the decoupled model: dense layers apart from aggregations, which are between two exchanges."""
    return tp(depth, **({"decoupled": True} | options))


def mixed(*layers: str, **options: Any) -> Plan:
    """A placement for each layer."""
    return Plan(layers, **({"seeds": usual_seeds(layers, options.get("scope"))} | options))


def usual_seeds(layers: Sequence[str], scope: object = None) -> str:
    """Where seeds are unless it is said: at home where the last layer leaves their rows with their owners."""
    return "home" if scope == "graph" or (layers and "request" not in PLACEMENTS.get(layers[-1]).leaves) else "spread"


NAMED: dict[str, Callable[..., Plan]] = {
    "gdp": gdp,
    "nfp": nfp,
    "snp": snp,
    "dnp": dnp,
    "split": split,
    "leap": leap,
    "migrate": migrate,
}
OF_GRAPH: dict[str, Callable[..., Plan]] = {"halo": halo, "tp": tp, "tp-decoupled": tp_decoupled}


def plan_of(text: str, depth: int, options: Mapping[str, object] | None = None) -> Plan:
    """The plan of a text such as `split cache=5%` or `pull+push+pull seeds=home`, for so many layers.

    `options`: more of them, said elsewhere.
    """
    head, *words = re.sub(r"\s*[+,]\s*", "+", text.strip()).split()
    more, written = dict(options or {}), options_of(words)
    for name in written.keys() & more.keys():
        if written[name] != more[name]:
            raise ConfigError(
                f"plan = {text!r} has {name} = {written[name]!r}, and {name} = {more[name]!r} is set besides: drop one"
            )
    make = NAMED.get(head) or OF_GRAPH.get(head)
    if make is not None:
        return Plan.from_dict(make(depth).as_dict() | more | written)
    layers, options = tuple(head.split("+")), more | written
    if len(layers) == 1 and depth > 1:
        known = ", ".join(OF_GRAPH if options.get("scope") == "graph" else NAMED)
        raise ConfigError(
            f"plan = {text!r} is not known: choose one of {known}, or a placement for each of {depth} layers"
        )
    if len(layers) != depth:
        raise ConfigError(f"plan = {text!r} has {len(layers)} placements for {depth} convolutions: give one for each")
    return Plan.from_dict({"layers": layers, "seeds": usual_seeds(layers, options.get("scope"))} | options)
