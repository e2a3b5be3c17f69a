"""Made-up answers of the planner, for tests of what shows them."""

from dataclasses import replace

from weft.plan import NAMED, Plan
from weft.planner import Answer, Prediction, Sweep

GB, MBIT = 1e9, 1e6 / 8
BY_COLUMN = "layer 1 is a GATConv, which can't be split by columns"
NASTY = "<script>document.title='broken'</script>\"'&[bold]"


def prediction(name, seconds, stages, *, sent=300e6, memory=1.2 * GB, excluded=None, plan=None):
    """A plan's prediction: stages in the order of STAGES."""
    named = dict(zip(("sample", "fetch", "exchange", "compute", "sync"), stages, strict=True))
    return Prediction(
        name=name,
        plan=plan or (NAMED[name](3) if name in NAMED else Plan(("local",) * 3)),
        seconds=seconds,
        stages=named,
        limits={"processors": seconds * 0.6, "links": seconds, "training": seconds * 0.9, "preparing": seconds * 0.5},
        sent={"fetch": sent * 0.7, "exchange": sent * 0.25, "sync": sent * 0.05},
        memory=memory,
        room=16 * GB,
        excluded=excluded,
    )


def answer(**changes):
    """Several plans, excluded ones, two that were measured, three sweeps."""
    plans = [
        prediction("split", 3.21, (0.52, 0.41, 1.35, 1.62, 0.21), sent=310e6, memory=1.24 * GB),
        prediction(
            "cover+local+local", 3.58, (0.61, 0.48, 1.44, 1.71, 0.22), sent=402e6, plan=Plan(("cover", "local", "local"))
        ),
        prediction("dnp", 4.02, (0.64, 0.51, 1.83, 1.78, 0.22), sent=455e6),
        prediction("snp", 4.35, (0.66, 0.52, 2.10, 1.78, 0.22), sent=512e6),
        prediction("leap", 5.07, (0.71, 2.86, 0.0, 1.94, 0.22), sent=940e6),
        prediction("gdp", 6.48, (0.74, 4.31, 0.0, 2.02, 0.22), sent=1.61e9, memory=2.1 * GB),
        prediction("nfp", 9.7, (1.3, 0.0, 6.9, 2.8, 0.22), sent=3.4e9, excluded=BY_COLUMN),
        prediction("migrate", 0.0, (0.0,) * 5, sent=0.0, excluded="the model has dropout"),
    ]  # fmt: skip
    usual = Answer(
        title="reddit: GraphSAGE, 3 layers of 256, fanouts 15,10,5, batches of 4 x 1,024",
        best=plans[0],
        predictions=plans,
        reasons=[
            "split sends 310 MB an epoch where gdp sends 1.6 GB: 81% of the rows that a batch needs are needed once.",
            "The links of h2 (1 Gbit/s) hold it up; with 10 Gbit/s an epoch would take 2.1 s and gdp would be as fast.",
            "Its peak of 1.2 GB leaves 92% of the memory of h3, so a cache of 10% of the rows would fit.",
        ],
        batches=37,
        looked_at=4,
        error=0.006,
        took=0.31,
        sweeps=sweeps(),
        measured={
            "split": {"seconds": 3.40, "sample": 0.55, "fetch": 0.44, "exchange": 1.48, "compute": 1.6, "sync": 0.2},
            "gdp": {
                "seconds": 6.1,
                "sample": 0.7,
                "route": 0.1,
                "fetch": 4.1,
                "compute": 2.0,
                "sync": 0.2,
                "wait": 0.3,
            },
        },
    )
    return replace(usual, **changes)


def sweeps():
    """Links from 50 Mbit/s to 25 Gbit/s, hidden sizes, hosts."""
    links = [mbit * MBIT for mbit in (50, 100, 250, 500, 1000, 2500, 10000, 25000)]
    volumes = {"split": (310e6, 2.1), "cover+local+local": (402e6, 1.95), "dnp": (455e6, 2.0), "snp": (512e6, 2.05)}
    volumes |= {"leap": (940e6, 1.8), "gdp": (1.61e9, 1.5)}
    hidden = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0]
    by_hidden = {
        "gdp": [4.9, 4.95, 5.1, 5.4, 6.48, 8.1],
        "leap": [4.0, 4.05, 4.2, 4.5, 5.07, 6.6],
        "split": [1.6, 1.75, 2.0, 2.4, 3.21, 5.2],
        "snp": [1.1, 1.4, 2.0, 2.9, 4.35, 7.9],
    }
    by_link = {
        name: [max(fixed, sent / 4 / link + 0.4 * fixed) for link in links] for name, (sent, fixed) in volumes.items()
    }
    return [
        Sweep("link", links, by_link, here=1000 * MBIT),
        Sweep("hidden", hidden, by_hidden, here=256.0, best=["snp", "snp", "split", "split", "split", "split"]),
        Sweep("hosts", [1.0, 2.0, 4.0, 8.0], {"split": [11.0, 6.0, 3.21, 1.9], "gdp": [9.8, 7.4, 6.48, 6.0]}, here=4.0),
    ]  # fmt: skip


def alone():
    """One plan, nothing to compare it with."""
    only = prediction("gdp", 0.0321, (0.01, 0.0, 0.0, 0.03, 0.0), sent=0.0)
    return answer(best=only, predictions=[only], reasons=[], sweeps=[], measured={})


def nasty():
    """Names and sentences that are markup, numbers that are none, a reason without end."""
    best = prediction(NASTY, 1.0, (0.2, 0.3, 0.4, 0.5, 0.1))
    endless = prediction("x" * 90, 2.0, (0.2, 0.3, 1.4, 0.5, 0.1), excluded="y" * 300)
    broken = replace(prediction("gdp", float("inf"), (float("nan"),) * 5), limits={}, room=float("inf"))
    times = {NASTY: [1.0, 2.0], "x" * 90: [2.0, 1.0], "gdp": [float("inf"), float("nan")]}
    return answer(
        title=NASTY,
        best=best,
        predictions=[best, broken, endless],
        reasons=[NASTY],
        sweeps=[
            Sweep(NASTY, [1.0, 2.0], times, here=1.5),
            Sweep("link", [1e8], {"gdp": [1.0]}),
            Sweep("hosts", [], {}),
        ],
        measured={NASTY: {"seconds": 0.0}, "gdp": {"seconds": 1.0}},
    )
