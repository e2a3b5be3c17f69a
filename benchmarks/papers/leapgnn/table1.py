"""LeapGNN's Table 1: how local micrographs are, against subgraphs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from papers.bench import Bench
from papers.leapgnn.task import GRAPHS, SEEDS
from papers.sheet import Figures, Finding, Measured, Sheet, grid_in_turn
from weft.lab import LocalityStudy, locality

METHODS = {
    "debian": "metis",
    "communities": "blocks",
}  # the paper has METIS for two graphs, BGL's heuristic for the others
SAMPLERS = ("neighbor", "layer")
SERVERS = (2, 4, 8, 16)
MICRO, SUB = "R_micro, %", "R_sub, %"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_counted, bench, "{}, {}, {} servers", GRAPHS, SAMPLERS, SERVERS)


def _counted(bench: Bench, graph: str, sampler: str, servers: Sequence[int]) -> list[Figures]:
    study = LocalityStudy(
        parts=tuple(servers),
        methods=(METHODS[graph],),
        layers=bench.first((2, 10)),
        miss_fanouts=(2,),
        roots=bench.fewer(1000),
        batches=2,
        batch_size=SEEDS,
    )
    found = locality(bench.graph(graph), study, (sampler,))
    return [
        {
            f"{len(one.fanouts)} layers, {name}": 100 * value
            for one in found.micrographs
            if one.parts == parts
            for name, value in ((MICRO, one.micro), (SUB, one.sub))
        }
        for parts in servers
    ]


def _compare(measured: Measured) -> Iterator[Finding]:
    def ratio(servers: int) -> list[float]:
        return [
            figures[f"2 layers, {MICRO}"] / figures[f"2 layers, {SUB}"]
            for case, figures in measured.items()
            if case.endswith(f", {servers} servers")
        ]

    few, many = ratio(SERVERS[0]), ratio(SERVERS[-1])
    yield Finding(
        "micrographs are always more local than subgraphs",
        f"{min(few):.2f} to {max(many):.2f} times as local",
        min(map(min, map(ratio, SERVERS))) > 1,
    )
    yield Finding(
        "and ever more so with more servers: from 1.59 times (2) to 10.60 times (16)",
        f"{min(few):.2f} to {max(few):.2f} times on {SERVERS[0]}, {min(many):.2f} to {max(many):.2f} times on "
        f"{SERVERS[-1]}",
        min(many) > max(few),
    )


SHEET = Sheet(
    "Table 1",
    "locality of micrographs",
    "Of what a root (R_micro) or a batch (R_sub) samples, the share at the root's owner, without roots; fanouts "
    "of 10 in two layers, 2 in ten. METIS allocates Debian's packages, blocks of breadth-first search (BGL) the "
    "communities graph.",
    _cases,
    _compare,
)
