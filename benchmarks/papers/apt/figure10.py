"""APT's Fig. 10: the strategies for GAT."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from papers.apt.task import ABOUT, chart, volumes
from papers.bench import Bench
from papers.sheet import Chart, Figures, Finding, Measured, Sheet

GRAPH = "communities"
WIDTHS = (8, 32, 128, 512)  # of all four heads together
MODELS: Mapping[str, Mapping[str, Any]] = {"sage": {}, "gat": {"heads": 4}}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {
        f"{GRAPH}, {model}, hidden {width}": partial(volumes, bench, GRAPH, model=model, hidden=width, **more)
        for model, more in MODELS.items()
        for width in WIDTHS
    }


def _compare(measured: Measured) -> Iterator[Finding]:
    def more(name: str, width: int) -> float:
        return measured[f"{GRAPH}, gat, hidden {width}"][name] / measured[f"{GRAPH}, sage, hidden {width}"][name]

    usual = {name: more(name, 32) for name in ("gdp", "dnp", "snp", "nfp")}
    yield Finding(
        "attention costs SNP and NFP communication that GDP and DNP, who see all sources of a destination, do not have",
        "GAT in place of GraphSAGE, hidden 32: "
        + ", ".join(f"{name} {times:.2f} times" for name, times in usual.items()),
        min(usual["snp"], usual["nfp"]) > max(usual["gdp"], 1.0),
        "the logits of attention are linear in slices and partial sums, so that only two numbers a head travel besides",
    )
    each = {width: measured[f"{GRAPH}, gat, hidden {width}"] for width in WIDTHS}
    best = {width: sorted(figures, key=figures.__getitem__)[:2] for width, figures in each.items()}
    theirs = [set(two) == {"gdp", "dnp"} for two in best.values()]
    yield Finding(
        "for GAT GDP and DNP are generally best, SNP and NFP are not; NFP runs out of memory at large widths",
        "the best two: "
        + ", ".join(f"{' and '.join(two)} at {width}" for width, two in best.items())
        + "; at 512: "
        + ", ".join(f"{name} {sent:,.0f} MB" for name, sent in each[512].items()),
        all(theirs),
        "narrow partial sums are less than the features that GDP fetches",
        partly=any(theirs),
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    yield chart(measured, GRAPH, "hidden", {f"gat, hidden {width}": width for width in WIDTHS})


SHEET = Sheet("Fig. 10", "GAT", f"{ABOUT} Here of GAT with four heads beside it.", _cases, _compare, _charts)
