"""What the records of planner.py say: regret, errors of prediction, the price of planning, speed-ups; plain text."""

from collections import Counter, defaultdict
from statistics import mean, median

NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap", "push", "pull")
ALWAYS = ("gdp", "nfp", "snp", "dnp", "split")
RUN = 30  # epochs of a run that planning is held against


def report(records):
    """All tables."""
    if not records:
        print("nothing was measured yet")
        return
    records = sorted(records, key=lambda record: record["name"])
    asked = [record for record in records if record["planner"]]
    print_tasks(records)
    if asked:
        print_errors(asked)
        print_planning(asked)
    print_speedups(records)
    print_winners(records)
    off = noise(records)
    print(
        f"\nnoise: an epoch is {median(off):.1%} off its plan's median (median; mean {mean(off):.1%}, worst {max(off):.0%})"
    )


def seconds(record, name):
    return record["plans"][name]["seconds"]


def best(record):
    """The plan measured fastest."""
    return min(record["plans"], key=lambda name: seconds(record, name))


def used(record):
    """The plan that the planner chose; the best, where it was not asked."""
    return record["planner"]["chosen"] if record["planner"] else best(record)


def regret(record, name=None):
    """How much longer the chosen plan, or another, takes than the best."""
    return seconds(record, name or used(record)) / seconds(record, best(record)) - 1


def trying(record):
    """Seconds that a run's first epochs took longer than by the plan that then goes on, because others were tried."""
    trial = record["planner"]["trial"]
    return trial["seconds"] - trial["epochs"] * seconds(record, used(record))


def errors(record):
    """Predicted over measured, less one, by plan; without those that the planner says can't be used."""
    usable = {name: plan for name, plan in record["plans"].items() if not plan["predicted"]["excluded"]}
    return {name: plan["predicted"]["seconds"] / plan["seconds"] - 1 for name, plan in usable.items()}


def noise(records):
    plans = [plan for record in records for plan in record["plans"].values()]
    return [abs(epoch / plan["seconds"] - 1) for plan in plans for epoch in plan["epochs"]]


def twice(record):
    """Plans by what the first half of their epochs took and what the second did, of those that have both."""
    epochs = {name: plan["epochs"] for name, plan in record["plans"].items() if len(plan["epochs"]) > 1}
    return {name: (median(of[: len(of) // 2]), median(of[len(of) // 2 :])) for name, of in epochs.items()}


def unsteady(record):
    """How far the first half of a plan's epochs is off the second: no prediction can be expected to come nearer."""
    return [first / second - 1 for first, second in twice(record).values()]


def blind(record):
    """Regret if all plans were measured by half of their epochs and the fastest chosen: by the other half, both ways."""
    halves = [*twice(record).values()]
    ways = [halves, [(second, first) for first, second in halves]] if len(halves) > 1 else []
    return [min(way)[1] / min(after for _, after in way) - 1 for way in ways]


def calibration(records):
    """A line for each task, plan, worker and stage: medians of an epoch."""
    for record in records:
        for name, plan in record["plans"].items():
            for rank, worker in enumerate(plan["workers"]):
                for stage in worker["stages"]:
                    figures = {what: worker[what].get(stage, 0) for what in ("processor", "sent")}
                    where = {"plan": name, "worker": rank, "stage": stage, "seconds": worker["stages"][stage]}
                    yield record["task"] | record["scale"] | {"batches": record["batches"]} | where | figures


def print_tasks(records):
    print(f"\n{'task':49} {'chosen':22}{'s':>7}  {'best measured':22}{'s':>7}{'regret':>8}")
    for r in records:
        chosen, least = used(r) if r["planner"] else "-", best(r)
        figures = f"{chosen:22.22}{seconds(r, used(r)):7.2f}  {least:22.22}{seconds(r, least):7.2f}"
        print(f"{r['name']:49} {figures}{f'{regret(r):.1%}' if r['planner'] else '':>8}")
    asked = [record for record in records if record["planner"]]
    for what, regrets in (
        ("", [*map(regret, asked)]),
        (", as predicted", [regret(record, record["planner"]["first"]) for record in asked]),
    ):
        if asked:
            print(
                f"regret{what} over {len(asked)} tasks: mean {mean(regrets):.1%}, worst {max(regrets):.1%} (aims: 3%, 15%)"
            )
    measured = [off for record in records for off in blind(record)]
    if measured:
        print(f"regret, had half of the epochs been measured: mean {mean(measured):.1%}, worst {max(measured):.1%}")


def print_errors(records):
    """Predicted against measured epochs, over all, by plan and by links."""
    groups = defaultdict(list)
    for record in records:
        for name, error in errors(record).items():
            link = f"links {record['task']['link']}"
            chosen = ["chosen"] if name == used(record) else []
            for group in ("all (aim: median 8%)", link, name if name in NAMED else "others", *chosen):
                groups[group].append(error)
        groups["measured, by measuring again"] += unsteady(record)
    print(f"\n{'predicted against measured':30}{'plans':>7}{'median':>9}{'mean':>9}{'worst':>9}{'median, signed':>17}")
    links = sorted(group for group in groups if group.startswith("links "))
    order = ["all (aim: median 8%)", "measured, by measuring again", "chosen", *NAMED, "others", *links]
    for group in (group for group in order if groups[group]):
        signed = groups[group]
        sizes = [abs(error) for error in signed]
        figures = f"{median(sizes):9.1%}{mean(sizes):9.1%}{max(sizes):9.1%}{median(signed):17.1%}"
        print(f"{group:30}{len(signed):7}{figures}")


def print_planning(records):
    """What the planner takes, against an epoch of gdp and a run by the plan that it chose."""
    print(f"\n{'planning':30}{'median':>9}{'mean':>9}{'worst':>9}")
    took = {r["name"]: r["planner"]["seconds"] for r in records}
    epochs = [took[r["name"]] / seconds(r, "gdp") for r in records]
    runs = [took[r["name"]] / (RUN * seconds(r, used(r))) for r in records]
    for title, values, form in (
        ("seconds", list(took.values()), ".2f"),
        ("of an epoch of gdp (aim: 1)", epochs, ".2f"),
        (f"of {RUN} epochs, chosen (aim: 5%)", runs, ".1%"),
        ("plans tried besides", [r["planner"]["trial"]["plans"] for r in records], ".1f"),
        (f"that took longer, of {RUN} epochs", [trying(r) / (RUN * seconds(r, used(r))) for r in records], ".1%"),
    ):
        print(f"{title:30}" + "".join(f"{of(values):9{form}}" for of in (median, mean, max)))


def print_speedups(records):
    """How much faster the chosen plan is than always the same, at most and on average: the shape of APT's Table 4."""
    whose = "the chosen plan" if any(record["planner"] for record in records) else "the best plan"
    print(f"\n{f'speed-up of {whose} over always':40}" + "".join(f"{name:>12}" for name in ALWAYS))
    for graph in [*sorted({record["task"]["graph"] for record in records}), "all"]:
        of_graph = [record for record in records if graph in (record["task"]["graph"], "all")]
        ratios = {name: [seconds(r, name) / seconds(r, used(r)) for r in of_graph] for name in ALWAYS}
        for word, of in (("max", max), ("mean", mean)):
            print(f"{f'{graph}, {word}':40}" + "".join(f"{of(ratios[name]):11.2f}x" for name in ALWAYS))


def print_winners(records):
    fastest = Counter(map(best, records))
    chosen = Counter(used(record) for record in records if record["planner"])
    print(f"\n{'tasks':40}{'fastest':>9}{'chosen':>9}")
    for name in sorted(fastest | chosen, key=lambda name: (-fastest[name], -chosen[name], name)):
        print(f"{name:40}{fastest[name]:9}{chosen[name]:9}")
