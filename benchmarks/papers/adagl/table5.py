"""AdaGL's Table V: the coefficients of what the search minimises."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.adagl.task import ABOUT, ONE, UNEVEN, WAITING, figures, told
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.lab.adagl import AdaglMethod

SECONDS = {
    (1.0, 0.0, 0.0): 12.6,
    (0.0, 1.0, 0.0): 10.8,
    (0.05, 0.05, 0.9): 10.1,
    (0.3, 0.3, 0.4): 9.2,
}  # the paper's T_comm
ALL = "0.3, 0.3, 0.4"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {
        ", ".join(f"{one:g}" for one in by): partial(figures, bench, ONE, AdaglMethod(coefficients=by).allocate)
        for by in SECONDS
    }


def _compare(measured: Measured) -> Iterator[Finding]:
    least = min(measured, key=lambda case: measured[case][WAITING])
    yield Finding(
        f"balancing all three communicates least: {', '.join(f'{seconds} s' for seconds in SECONDS.values())}",
        f"{told(measured)}: least by {least}",
        least == ALL,
        "what weighs communication most waits least, and pays with parts that are less even",
    )
    balance = measured["1, 0, 0"]
    yield Finding(
        "balance alone communicates most",
        f"{balance[WAITING]:,.0f} rows, parts at most {balance[UNEVEN]:.0f}% above their share",
        balance[WAITING] == max(one[WAITING] for one in measured.values()),
    )


SHEET = Sheet(
    "Table V",
    "the objective's coefficients",
    f"Of L, L of training vertices, and T. Debian's packages; all else is AdaGL's. {ABOUT}",
    _cases,
    _compare,
)
