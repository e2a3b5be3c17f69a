"""What may differ between a run and the one that goes on from its checkpoint: each setting says so where it is declared.

With what may differ set from the start, the run would have come to the same checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from weft.config import key_of
from weft.errors import TrainingError
from weft.plan.groups import FIELDS, GROUPS, PLACES

if TYPE_CHECKING:
    from weft.plan.settings import Settings


@dataclass(frozen=True)
class Rule:
    """When a setting may be changed: in words, and as far as the new settings tell."""

    words: str
    allows: Callable[["Settings"], bool]


RULES = {
    "same": Rule("never", lambda now: False),
    "free": Rule("", lambda now: True),
    "total": Rule("if workers x batch_size stays", lambda now: True),  # the loader knows
    "longer": Rule(
        "where schedule is constant, to no less than is trained", lambda now: now.optimisation.schedule == "constant"
    ),
    "impatient": Rule("without patience", lambda now: not now.evaluation.patience),
    "replayed": Rule("if it would not have stopped the run before", lambda now: True),  # the figures know
}


def rule_of(key: str) -> str:
    """The name of the rule that a setting is changed by."""
    return str(FIELDS[key].metadata["resumed"] or GROUPS[PLACES[key][0]].resumed)


def fixed_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Those of a run's settings, as plain data, that a run which goes on from it never changes."""
    return {key: value for key, value in settings.items() if key in FIELDS and rule_of(key) == "same"}


def may_change() -> str:
    """All that may be changed, in words; groups with their tables' names."""
    said = []
    for group, kind in GROUPS.items():
        keys = [key_of(one) for one in fields(kind)]
        if kind.resumed == "free":
            fixed = [key for key in keys if rule_of(key) == "same"]
            said.append(f"[{group}]{' but ' if fixed else ''}{', '.join(fixed)}")
        else:
            said += [f"{key} {RULES[rule_of(key)].words}".strip() for key in keys if rule_of(key) != "same"]
    return ", ".join(said)


def check_resumed(then: "Settings", now: "Settings", name: str) -> None:
    """Refuse what a run that goes on from the checkpoint of this name may not change."""
    before, after = then.flat(), now.flat()
    different = [key for key in after if after[key] != before[key] and not RULES[rule_of(key)].allows(now)]
    if now.decoupled != then.decoupled:  # the one plan that trains another model
        different.append("plan")
    if different:
        changes = ", ".join(f"{key} = {before[key]} (now {after[key]})" for key in different)
        raise TrainingError(
            f"the checkpoint {name} was written with other settings: {changes}; use the same, or another folder (what may "
            f"change: {may_change()})"
        )
