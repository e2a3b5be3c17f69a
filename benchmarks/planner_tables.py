"""What the records of planner.py say: regret, errors of prediction, the price of planning, speed-ups; plain text.

Regret is told of runs of RUN epochs, in seconds: what planning took, what trying other plans took longer, getting ready for
the chosen one (its cache is filled) and its epochs, beside the least that any plan takes to get ready and for its epochs.
"""

from collections import Counter, defaultdict
from contextlib import redirect_stdout
from io import StringIO
from statistics import mean, median

from weft.plan import Plan

NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap", "push", "pull")
ALWAYS = ("gdp", "nfp", "snp", "dnp", "split")
RUN = 30  # epochs of a run that planning is held against
FINALISTS, NEAR = 4, 1.35  # plans that are measured again beside what was chosen: so many, so much slower at most


def report(records):
    """All tables."""
    if not records:
        print("nothing was measured yet")
        return
    records = sorted(records, key=lambda record: record["name"])
    print_tasks(records)
    print_errors(records)
    print_planning(records)
    print_speedups(records)
    print_winners(records)
    print_flips(records)
    print_sheet(records)
    off = noise(records)
    print(
        f"\nnoise: an epoch is {median(off):.1%} off its plan's median (median; mean {mean(off):.1%}, worst {max(off):.0%})"
    )


def tell(file, title, command, records, tables):
    """Print what `tables` says of records, and write it as a page of the docs; `command` prints it again."""
    with redirect_stdout(StringIO()) as out:
        tables(records)
    print(out.getvalue(), end="")
    commits = defaultdict(Counter)  # the records of each, by day and machine
    for record in records:
        if "date" in record:
            commits[f"{record['date'][:10]}, {record['machine']}"][record["commit"]] += 1
    made = [
        f"{when}, commit {', '.join(f'{name} ({count})' for name, count in sorted(of.items()))}"
        for when, of in sorted(commits.items())
    ]
    where = f"Measured {'; '.join(made)}: of each commit so many tasks. " if made else ""
    about = f"# {title}\n\n{where}`{command}` makes this page from the records in the project.\n"
    file.write_text(f"{about}\n```\n{out.getvalue().strip()}\n```\n", encoding="utf-8")


def brief(record):
    """What these tables and --finals need of a record: short enough to be kept in the project."""
    plans = {name: _brief(plan) for name, plan in record["plans"].items()}
    planner = {key: value for key, value in record["planner"].items() if key != "reasons"}
    return record | {"planner": planner, "plans": plans}


def _brief(plan):
    options = {key: value for key, value in plan["plan"].items() if value != getattr(Plan, key, None)}
    figures = {key: plan[key] for key in ("ready", "seconds", "cpu", "bytes") if key in plan}
    kept = {key: float(f"{value:.4g}") for key, value in figures.items()}
    if "epochs" in plan:
        kept["epochs"] = [float(f"{epoch:.4g}") for epoch in plan["epochs"]]
    of = plan["predicted"]
    predicted = {"seconds": float(f"{of['seconds']:.4g}"), "excluded": of["excluded"]}
    return {"plan": options, **kept, "predicted": predicted}


def seconds(record, name):
    return record["plans"][name]["seconds"]


def best(record):
    """The plan by which a run takes least, of those that fit."""
    times = runs(record)
    return min(times, key=times.__getitem__)


def runs(record):
    """Seconds of a run by each plan that fits, if it were known: to get ready, and of its epochs."""
    plans = {name: record["plans"][name] for name in final(record)}
    fitting = [name for name, plan in plans.items() if not plan["predicted"]["excluded"]]
    return {name: plans[name]["ready"] + RUN * final(record)[name] for name in fitting}


def final(record):
    """Seconds by plan that say which is the fastest: those of the finals, if the task has them."""
    if "finals" in record:
        return {name: median(epochs) for name, epochs in record["finals"].items()}
    return {name: seconds(record, name) for name in record["plans"]}


def used(record):
    """The plan that a run goes on by after its trial."""
    return record["planner"]["chosen"]


def finalists(record):
    """What was chosen, as predicted and after the trial, and the plans that may be the fastest."""
    times = runs(record)
    ranked = sorted(times, key=times.__getitem__)
    near = [name for name in ranked if times[name] <= NEAR * times[ranked[0]]]
    return [*dict.fromkeys([record["planner"]["first"], used(record), *near[:FINALISTS]])]


def regret(record):
    """How much longer a run takes than by the best plan, with planning and what was tried."""
    planning = record["planner"]["seconds"] + max(0.0, trying(record))
    return (planning + runs(record)[used(record)]) / min(runs(record).values()) - 1


def regret_of_later(record):
    """The same of the next run of the task, which has what this one kept; None: it was not asked for."""
    again = record["planner"].get("again")
    if again is None or again["chosen"] not in runs(record):
        return None
    return (again["seconds"] + runs(record)[again["chosen"]]) / min(runs(record).values()) - 1


def regret_of_plan(record, name=None):
    """How much longer a run by the chosen plan, or another, takes than by the best, were it known."""
    return runs(record)[name or used(record)] / min(runs(record).values()) - 1


def choices(record):
    """The plans that were chosen each time the planner was asked, and measured."""
    asked = [*record.get("before", ()), record["planner"]]
    return [one["chosen"] for one in asked if one["chosen"] in runs(record)]


def trying(record):
    """Seconds that a run's first epochs took longer than by the plan that then goes on, because others were tried."""
    trial = record["planner"]["trial"]
    return trial["seconds"] - trial["epochs"] * final(record)[used(record)]


def placements(record):
    """Errors by placement, of the plans that have it in some layer."""
    found = defaultdict(list)
    for name, error in errors(record).items():
        for placement in {*record["plans"][name]["plan"]["layers"]}:
            found[placement].append(error)
    return found


def errors(record):
    """Predicted over measured (in the finals, if the task has them), less one, by plan that the planner says can be used."""
    predicted = {name: record["plans"][name]["predicted"] for name in final(record)}
    usable = {name: of["seconds"] for name, of in predicted.items() if not of["excluded"]}
    return {name: foreseen / final(record)[name] - 1 for name, foreseen in usable.items()}


def errors_among(record):
    """Errors but for what all of the task's plans are off by together, as where machines became faster or slower meanwhile:
    that moves no plan past another."""
    found = errors(record).values()
    shared = 1 + median(found) if found else 1
    return [(1 + error) / shared - 1 for error in found]


def noise(records):
    plans = [plan for record in records for plan in record["plans"].values()]
    return [abs(epoch / plan["seconds"] - 1) for plan in plans for epoch in plan["epochs"]]


def split(epochs):
    """What the first half of some epochs took and what the second did."""
    return median(epochs[: len(epochs) // 2]), median(epochs[len(epochs) // 2 :])


def halves(record):
    """Both halves of plans' epochs, of the finals if the task has them."""
    of = record.get("finals") or {name: plan["epochs"] for name, plan in record["plans"].items()}
    return {name: split(epochs) for name, epochs in of.items() if len(epochs) > 1}


def unsteady(record):
    """How far the first half of a plan's epochs is off the second: no prediction can be expected to come nearer."""
    many = [plan["epochs"] for plan in record["plans"].values() if len(plan["epochs"]) > 1]
    return [first / second - 1 for first, second in map(split, many)]


def by_halves(record):
    """The plan that a half of the epochs says is fastest, and what plans took by the other half: both ways."""
    both = halves(record)
    ways = ((0, 1), (1, 0)) if both else ()
    return [(min(both, key=lambda name: both[name][a]), {name: of[b] for name, of in both.items()}) for a, b in ways]


def blind(record):
    """Regret if the plans were measured by half of their epochs and the fastest chosen: by the other half."""
    return [times[fastest] / min(times.values()) - 1 for fastest, times in by_halves(record) if len(times) > 1]


def beside_measuring(record):
    """How much longer the chosen plan takes than the one that half of the epochs say is fastest: by the other half.

    Without the luck of the fastest, which `regret` counts as the planner's fault: below zero where measuring chose worse.
    """
    name = used(record)
    return [times[name] / times[fastest] - 1 for fastest, times in by_halves(record) if name in times]


def print_tasks(records):
    """By task: what was chosen, a run by it without planning, the best plan, and regret of the whole run and of the plan."""
    print(f"\n{'task':63} {'chosen':16}{'s':>7}  {'best measured':16}{'regret':>7}{'of plan':>8}")
    for r in records:
        chosen = used(r)
        figures = f"{chosen:16.16}{runs(r)[chosen]:7.1f}  {best(r):16.16}"
        print(f"{r['name']:63} {figures}{regret(r):7.1%}{regret_of_plan(r):8.1%}")


def print_flips(records):
    """Tasks that were asked about several times: which plans were chosen, and how far they are from the best."""
    several = [record for record in records if len(choices(record)) > 1]
    if several:
        print(f"\n{'asked again and again':62} {'times':>6}{'plans':>7}{'worst regret of a plan':>25}")
    for record in several:
        chosen = choices(record)
        worst = max(regret_of_plan(record, name) for name in chosen)
        print(f"{record['name']:62} {len(chosen):6}{len({*chosen}):7}{worst:25.1%}")


def print_sheet(records):
    """The planner in some lines: regret, and by how much predictions are off, by placement."""
    again = sum("finals" in record for record in records)
    print(f"\n{len(records)} tasks, runs of {RUN} epochs")
    for title, of in (
        ("regret (aims: 2%, 10%)", [*map(regret, records)]),
        ("regret of the plan alone", [*map(regret_of_plan, records)]),
        ("regret of the plan as predicted", [regret_of_plan(r, r["planner"]["first"]) for r in records]),
        ("epochs, had half of them been measured", [off for r in records for off in blind(r)]),
        ("epochs, beside what half of them say is fastest", [off for r in records for off in beside_measuring(r)]),
    ):
        if of:
            print(f"{title:47} mean {mean(of):6.1%}, worst {max(of):6.1%}")
    if again:
        print(f"by the finals of {again} of {len(records)} tasks")
    by_placement = defaultdict(list)
    for record in records:
        for placement, found in placements(record).items():
            by_placement[placement] += found
    every = [error for record in records for error in errors(record).values()]
    among = [error for record in records for error in errors_among(record)]
    ways = {"all plans (aim: 6%)": every, "a task's plans, among them": among, **dict(sorted(by_placement.items()))}
    for name, found in ways.items():
        off = median(map(abs, found))
        print(
            f"{'error of prediction, ' + name:47} median {off:6.1%}, signed {median(found):+7.1%}, plans {len(found):5}"
        )


def print_errors(records):
    """Predicted against measured epochs, over all, by plan and by links."""
    groups = defaultdict(list)
    for record in records:
        for name, error in errors(record).items():
            link = f"links {record['task']['link']}"
            chosen = ["chosen"] if name == used(record) else []
            for group in ("all", link, name if name in NAMED else "others", *chosen):
                groups[group].append(error)
        groups["measured, by measuring again"] += unsteady(record)
    print(f"\n{'predicted against measured':30}{'plans':>7}{'median':>9}{'mean':>9}{'worst':>9}{'median, signed':>17}")
    links = sorted(group for group in groups if group.startswith("links "))
    order = ["all", "measured, by measuring again", "chosen", *NAMED, "others", *links]
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
    later = [r for r in records if regret_of_later(r) is not None]
    for title, of_record, form in (
        ("seconds, next run", lambda r: r["planner"]["again"]["seconds"], ".2f"),
        (f"of {RUN} epochs, next run", lambda r: r["planner"]["again"]["seconds"] / (RUN * seconds(r, used(r))), ".1%"),
        ("regret of this run", regret, ".1%"),
        ("regret of the next run", regret_of_later, ".1%"),
    ):
        if values := list(map(of_record, later)):
            print(f"{title:30}" + "".join(f"{of(values):9{form}}" for of in (median, mean, max)))
    together = sum(took.values()) / sum(seconds(r, "gdp") for r in records)
    print(f"{'of gdp, all tasks together':30}{together:9.2f}")


def print_speedups(records):
    """How much faster the chosen plan is than always the same, at most and on average: the shape of APT's Table 4."""
    print(f"\n{'speed-up of the chosen plan over always':40}" + "".join(f"{name:>12}" for name in ALWAYS))
    for graph in [*sorted({record["task"]["graph"] for record in records}), "all"]:
        of_graph = [record for record in records if graph in (record["task"]["graph"], "all")]
        ratios = {name: [seconds(r, name) / seconds(r, used(r)) for r in of_graph] for name in ALWAYS}
        for word, of in (("max", max), ("mean", mean)):
            print(f"{f'{graph}, {word}':40}" + "".join(f"{of(ratios[name]):11.2f}x" for name in ALWAYS))


def print_winners(records):
    fastest = Counter(map(best, records))
    chosen = Counter(map(used, records))
    print(f"\n{'tasks':40}{'fastest':>9}{'chosen':>9}")
    for name in sorted(fastest | chosen, key=lambda name: (-fastest[name], -chosen[name], name)):
        print(f"{name:40}{fastest[name]:9}{chosen[name]:9}")
