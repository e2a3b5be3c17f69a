"""AdaGL's Fig. 4: the simulator's seconds against those of real transfers."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.errors import ConfigError
from weft.lab import Sandbox

ERROR, TRANSFERS, ALPHA, BETA = "error, %", "transfers", "alpha, ms", "beta, us a row"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {graph: partial(_measured, bench, graph) for graph in ("debian", "communities")}


def _measured(bench: Bench, graph: str) -> Figures:
    parts = bench.parts(graph, 4, "random")
    with TemporaryDirectory() as folder:
        out, links = Path(folder) / "out.txt", Path(folder) / "links.toml"
        words = ["partition", "fit", str(parts), "--out", str(links), "--batch-size", "256", "--batches", "2", "--json"]
        with Sandbox(hosts=4, link="100mbit") as sandbox, open(out, "wb") as output:
            code = sandbox.run([sys.executable, "-m", "weft.cli", *words], output=output, timeout=300.0)
        lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    if code or not lines:
        raise ConfigError(f"weft partition fit ended with code {code} on {graph}: see above")
    found = json.loads(lines[-1])
    alphas, betas = (max(map(max, found[name])) for name in ("alpha", "beta"))
    return {ERROR: 100 * found["error"], TRANSFERS: found["transfers"], ALPHA: 1e3 * alphas, BETA: 1e6 * betas}


def _compare(measured: Measured) -> Iterator[Finding]:
    worst = max(one[ERROR] for one in measured.values())
    yield Finding(
        "the mean error of simulated seconds is 0.6%",
        ", ".join(f"{graph} {one[ERROR]:.1f}%" for graph, one in measured.items()),
        worst < 5,
        "hosts of a sandbox share this machine's processors, which adds time that is no link's",
    )


SHEET = Sheet(
    "Fig. 4",
    "the simulator against real transfers",
    "`weft partition fit` on four hosts with links of 100 Mbit/s: alpha and beta of each worker by least squares "
    "over rows that it fetches, under allocations of L from 0 to 0.3 and batches of three sizes; and the mean "
    "error over these transfers.",
    _cases,
    _compare,
    root=True,
)
