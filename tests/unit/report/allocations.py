"""Made-up comparisons of allocations, for tests of what shows them."""

from dataclasses import replace

from answers import NASTY

from weft.planner import PLANS, Compared, Comparison, Flow


def allocation(name, seconds, measured=None, training=True):
    """Flows in the order of PLANS."""
    kinds = ("vertices", "edges", *(["training"] if training else []), "work")
    figures = {"cut": 0.142, "halo_share": 0.47, "balance": dict(zip(kinds, (1.03, 1.27, 0.99, 2.5), strict=False))}
    flows = {plan: Flow(s * 2e5, s * 4e8, s * 1.25e8, s * 1.1e8, s) for plan, s in zip(PLANS, seconds, strict=True)}
    return Compared(name, figures, flows, measured or {})


def comparison(**changes):
    """Four allocations, some of them measured."""
    made = [
        allocation("traffic", (1.1, 0.40, 0.22), {"leap": 0.44, "split": 0.2, "gdp": 1.3}),
        allocation("kaminpar", (1.09, 0.56, 0.38)),
        allocation("metis", (1.08, 0.53, 0.31), {"leap": 0.5}),
        allocation("random", (1.02, 1.01, 1.54)),
    ]
    return replace(Comparison("runs/debian", 4, 4, (10, 10, -1), 4096, 4, 10, made), **changes)


def alone():
    """One allocation, nothing crosses."""
    return comparison(allocations=[allocation("random", (0.0, 0.0, 0.0), training=False)], hosts=2)


def nasty():
    """Names that are markup, names without end, a link that is busy for hours."""
    long = allocation("x" * 90, (1e5, 1e-9, 3.0), {"leap": 0.0})
    return comparison(graph=NASTY, allocations=[allocation(NASTY, (1.0, 2.0, 1e4)), long])


MADE = {"usual": comparison, "alone": alone, "nasty": nasty}
