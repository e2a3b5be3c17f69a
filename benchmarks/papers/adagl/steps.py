"""From AdaGL as written to Weft's own search, a change at a time: why the one is worse than METIS, and the other is not."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from papers.adagl.task import ABOUT, GRAPHS, WAITING, by_name, figures
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.lab.adagl import AdaglMethod, EvolutionMethod

_OURS = EvolutionMethod()
STEPS: Mapping[str, Mapping[str, Any]] = {
    "AdaGL": {},
    "+ nodes of all levels move": {"refining": _OURS.refining},
    "+ balls of bounded weight": {"heaviest": _OURS.heaviest},
    "+ light edges kept": {"pruning": _OURS.pruning, "keep": _OURS.keep},
    "+ aligned parents, the best stays": {"aligned": _OURS.aligned, "elite": _OURS.elite, "beside": _OURS.beside},
    "+ candidates refined": {"polish": _OURS.polish, "one_in": _OURS.one_in},
    "+ a second cycle (evolution)": {"cycles": _OURS.cycles},
}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    found: dict[str, Callable[[], Figures]] = {}
    for graph in GRAPHS:
        found[f"{graph}, METIS"] = partial(figures, bench, graph, by_name("metis"))
        options: dict[str, Any] = {}
        for step, more in STEPS.items():
            options |= more
            found[f"{graph}, {step}"] = partial(figures, bench, graph, AdaglMethod(**options).allocate)
    return found


def _compare(measured: Measured) -> Iterator[Finding]:
    last = [*STEPS][-1]
    for graph in GRAPHS:
        waits = {step: measured[f"{graph}, {step}"][WAITING] for step in STEPS}
        metis = measured[f"{graph}, METIS"][WAITING]
        gains = {after: waits[after] / waits[before] - 1 for before, after in pairwise(STEPS)}
        most = min(gains, key=lambda step: gains[step])
        yield Finding(
            f"(not in the paper) on {graph} the changes make the search as good as METIS",
            f"AdaGL as written waits {waits['AdaGL'] / metis - 1:+.0%} against METIS, with all changes "
            f"{waits[last] / metis - 1:+.0%}; most by '{most}' ({gains[most]:+.0%})",
            waits[last] < 1.02 * metis,
        )


SHEET = Sheet(
    "Steps",
    "from AdaGL as written to Weft's evolution",
    f"Changes one after the other, each with those before it. {ABOUT}",
    _cases,
    _compare,
)
