"""LeapGNN's Figs 13, 15, 17 and 18: what each of its steps buys, on the clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from papers.bench import SPREAD, Bench, spread
from papers.leapgnn.task import BATCHES, DEEP, GRAPHS, SERVERS, fanouts_of
from papers.sheet import Figures, Finding, Measured, Sheet, by_clock, grid_in_turn, values

LADDER: Mapping[str, Mapping[str, str]] = {
    "DGL": {"plan": "gdp"},
    "+ micrographs": {"plan": "migrate", "gather": "step", "merge": "none"},
    "+ pre-gathering": {"plan": "migrate", "merge": "none"},
    "+ merging": {"plan": "migrate"},
    "merging at random": {"plan": "migrate", "merge": "random"},
    "collapsed": {"plan": "leap"},  # all seeds at home, gradients summed once: the same updates
}
MODELS = ("sage", "gat", "gcn", *DEEP)
LINK = "200mbit"
SECONDS, SENT, FETCHING, STEPS = "seconds an epoch", "MB an epoch", "seconds fetching", "time steps"
KEYS = {SECONDS: "seconds", SENT: "megabytes", FETCHING: "fetch", STEPS: "steps"}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_measured, bench, "{}, {}", bench.first(MODELS), LADDER)


def _measured(bench: Bench, model: str, steps: Sequence[str]) -> list[Figures]:
    settings = {"model": model, "hidden": 16, "batch_size": 256, "fanouts": fanouts_of(model)}
    graph = bench.parts(bench.first(GRAPHS[::-1])[-1], SERVERS)  # the generated one has a quick size
    runs = [{"graph": graph, "options": LADDER[step]} for step in steps]
    every = bench.epochs(settings, runs, hosts=SERVERS, link=LINK, batches=BATCHES, settle=True)
    settled = [epochs[len(epochs) // 2 :] for epochs in every]  # by when merging has settled
    return [
        {name: min(one.get(key, 0.0) for one in last) for name, key in KEYS.items()} | spread(last) for last in settled
    ]


def _compare(measured: Measured) -> Iterator[Finding]:
    models = values(measured)

    def of(model: str, step: str, figure: str = SECONDS) -> float:
        return measured[f"{model}, {step}"][figure]

    noise = max(one[SPREAD] for one in measured.values())
    gains = [of(model, "DGL") / of(model, "+ merging") for model in models]
    yield by_clock(
        "all steps together are up to 2.14 (Products) and 2.72 (UK) times faster than DGL",
        ", ".join(f"{model} {gain:.2f} times" for model, gain in zip(models, gains, strict=True)),
        min(gains),
        1.0,
        noise,
    )
    for before, after in (("DGL", "+ micrographs"), ("+ micrographs", "+ pre-gathering")):
        saved = [1 - of(model, after, SENT) / of(model, before, SENT) for model in models]
        yield Finding(
            f"each step improves it: {after}",
            "bytes " + ", ".join(f"{model} {-gain:+.0%}" for model, gain in zip(models, saved, strict=True)),
            min(saved) > 0,
            "in each time step a model fetches anew what another has read there before: pre-gathering takes that back",
            partly=max(saved) > 0,
        )
    fetching = [of(model, "DGL", FETCHING) / of(model, "+ micrographs", FETCHING) for model in models]
    yield by_clock(
        "micrographs cut the time for remote features by 2.3 times (Fig. 15)",
        ", ".join(f"{model} {time:.2f} times" for model, time in zip(models, fetching, strict=True)),
        min(fetching),
        1.0,
        noise,
        "a time step's rows are waited for when it begins; what is fetched ahead for whole batches is hidden behind work",
    )
    steps = [of(model, "+ merging", STEPS) for model in models]
    yield Finding(
        "of four time steps merging leaves three (GAT on Products, Fig. 17)",
        ", ".join(f"{model} {left:.0f}" for model, left in zip(models, steps, strict=True)),
        max(steps) < SERVERS,
        "where steps were left epochs did not get faster by it",
        partly=min(steps) < SERVERS,
    )
    times = [of(model, "merging at random") / of(model, "+ merging") for model in models]
    stays = all(of(model, step, STEPS) == SERVERS for model in models for step in ("+ merging", "merging at random"))
    yield by_clock(
        "choosing what to merge is 1.4 to 1.9 times faster than at random (Fig. 18)",
        ", ".join(f"{model} {time:.2f} times" for model, time in zip(models, times, strict=True)),
        min(times),
        1.05,
        noise,
        "no merge made epochs faster, whichever step it was of"
        if stays
        else "seeds are so even here that any step is as good to merge",
    )


SHEET = Sheet(
    "Fig. 13",
    "what each step buys",
    f"Epochs of {BATCHES} batches on four hosts with links of {LINK}, {GRAPHS[0]} (in quick size {GRAPHS[-1]}) by METIS, "
    "256 seeds a host, hidden dimension 16, deep models with fanouts of 2: the fastest of the last half of the epochs, "
    "when merging has settled; bytes are the workers' own count.",
    _cases,
    _compare,
    root=True,
)
