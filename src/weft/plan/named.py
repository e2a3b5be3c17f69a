"""Strategies by name, as constructors of plans; and any plan as people write it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import ConfigError
from weft.plan.plan import Plan, options_of, usual_seeds


def mixed(*layers: str, **options: Any) -> Plan:
    """A placement for each layer."""
    return Plan(layers, **({"seeds": usual_seeds(layers, options.get("scope"))} | options))


@dataclass(frozen=True)
class Strategy:
    """A way to place layers that has a name: called with a number of layers, it gives the plan."""

    others: str  # the placement of all layers
    first: str | None = None  # that of the one nearest the inputs, if it is another one
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, depth: int, placement: str | None = None, **options: Any) -> Plan:
        """The plan for so many layers; `placement`: in place of the usual one."""
        others = placement or self.others
        return mixed(*(self.first or others, *[others] * (depth - 1))[:depth], **{**self.options, **options})


_HOME: dict[str, Any] = {"seeds": "home"}
_GRAPH = _HOME | {"scope": "graph"}

gdp = Strategy("local")  # data parallelism: every worker computes all that its seeds need
nfp = Strategy("local", "columns")  # node-feature parallelism: layer 1 on slices of the columns
snp = Strategy("local", "push")  # source-node parallelism: layer 1 at the owners of the sources
dnp = Strategy("local", "pull")  # destination-node parallelism: layer 1 at the owners of the destinations
split = Strategy("cover", options=_HOME)  # split parallelism: every vertex computed once, at its owner, in every layer
leap = Strategy("local", options=_HOME)  # feature-centric: every seed at home, where most of its neighbours are
# LeapGNN's own schedule: models visit the workers where their seeds are at home, carrying their gradients.
migrate = Strategy("local", options=_HOME | {"models": "migrate"})
# The whole graph, every vertex at its owner: rows of neighbours beyond come, or partial sums go, in every layer. Of the
# inputs rows come: once, for they stay.
halo = Strategy("cover", "pull", _GRAPH)
# The whole graph by tensor parallelism: every layer aggregates slices of all rows' columns; dense parts at owners.
tp = Strategy("columns", options=_GRAPH)
# Tensor parallelism of the decoupled model: dense layers apart from aggregations, which are between two exchanges.
tp_decoupled = Strategy("columns", options=_GRAPH | {"decoupled": True})

NAMED = {"gdp": gdp, "nfp": nfp, "snp": snp, "dnp": dnp, "split": split, "leap": leap, "migrate": migrate}
OF_GRAPH = {"halo": halo, "tp": tp, "tp-decoupled": tp_decoupled}


def plan_of(text: str, depth: int, options: Mapping[str, object] | None = None) -> Plan:
    """The plan of a text such as `split cache=5%` or `pull+push+pull seeds=home`, for so many layers.

    `options`: more of them, said elsewhere.
    """
    head, *words = re.sub(r"\s*[+,]\s*", "+", text.strip()).split() or [""]
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
