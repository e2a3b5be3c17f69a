"""Training for a long time while it is noted what each worker holds; `make soak` runs this file for an hour.

python tests/soak/soaking.py [--seconds 3600] [--workers 4] [--out build/soak.svg]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELD = ("memory", "threads", "files")
PLANS = ("split", "gdp", "leap", "snp", "dnp", "nfp")
SWITCH = 7  # epochs between changes of plans
_MOST = 4 << 20  # bytes that a worker may grow by; more is a leak
_OF_EPOCH = 1 << 10  # and for each epoch: its line of the history, which checkpoints repeat, and what is noted here


def held() -> dict[str, int]:
    """What this process holds."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return {"memory": resident} | {
        name: len(list(Path(f"/proc/self/{entry}").iterdir())) for name, entry in (("threads", "task"), ("files", "fd"))
    }


def noting(trainer: Any, plans: tuple[str, ...], until: Callable[[], bool] = lambda: False) -> list[dict[str, int]]:
    """What is held after each epoch; a watch over the run notes it, changes plans, and stops the run when it is time."""
    import torch

    from weft.plan import plan_of
    from weft.planner import Prediction
    from weft.training.watch import Change, Watch

    notes: list[dict[str, int]] = []
    others = [plan_of(name, len(trainer.parallel.layers)) for name in plans]

    class Notes(Watch):
        def look(self, epoch: int, steps: Any, batches: int, comm: Any, rest: Callable[[], None]) -> Change | None:
            notes.append(held())
            if comm.sum(torch.tensor([float(until())])).item():
                trainer.progress.stopped = True
            if len(others) < 2 or epoch % SWITCH:
                return None
            return Change(others[epoch // SWITCH % len(others)], "another plan")

    trainer.watch = Notes(Prediction.none("", trainer.parallel, ""), lambda left: None)
    return notes


def soaked(world: Any, graph: str, epochs: int, plans: tuple[str, ...], seconds: float = 1e9) -> list[dict[str, int]]:
    """What this worker held after each epoch of a run, with an evaluation and a checkpoint each."""
    from weft.graph import Graph
    from weft.plan import Settings
    from weft.training import Trainer, make_model

    opened, end = Graph.open(graph), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        given = {"hidden": 8, "fanouts": (4, 4), "batch_size": 64, "threads": 1, "epochs": epochs, "checkpoint": folder}
        settings = Settings.of(**given, **({"plan": plans[0]} if plans else {}))
        trainer = Trainer(opened, make_model(settings, opened), settings, world=world)
        notes = noting(trainer, plans, lambda: time.monotonic() > end)
        trainer.fit()
    return notes


def growth(notes: list[dict[str, int]]) -> dict[str, str]:
    """What grew from the second quarter of a run to its last, in words; nothing: all stayed flat."""
    quarter = len(notes) // 4
    early, late = notes[quarter : 2 * quarter], notes[-quarter:]
    found = {}
    for name in HELD:
        before, after = (min(note[name] for note in some) for some in (early, late))  # between checkpoints
        if after > before + (_MOST + _OF_EPOCH * 2 * quarter if name == "memory" else 0):
            found[name] = f"{before:,.0f} -> {after:,.0f} over {len(notes)} epochs"
    return found


def drawn(series: list[list[dict[str, int]]]) -> str:
    """Each worker's memory, threads and files over epochs, as an SVG picture: a strip each, from 0 to the most."""
    width, height, parts = 800, 160, []
    for row, name in enumerate(HELD):
        most, top = max(note[name] for notes in series for note in notes), row * (height + 30)
        shown = f"{most / 1e6:,.0f} MB" if name == "memory" else f"{most}"
        parts.append(f'<text x="4" y="{top + 14}">{name}: 0 to {shown}, by epoch (1 to {len(series[0])})</text>')
        for rank, notes in enumerate(series):
            at = range(0, len(notes), max(1, len(notes) // (width // 5)))
            points = " ".join(
                f"{k * width / len(notes):.1f},{top + 20 + height - height * notes[k][name] / most:.1f}" for k in at
            )
            colour = f"hsl({rank * 80} 70% 45%)"
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    size = f'width="{width}" height="{len(HELD) * (height + 30)}" font-family="sans-serif" font-size="13"'
    label = f"{', '.join(HELD)} of {len(series)} workers over {len(series[0])} epochs"
    ground = '<rect width="100%" height="100%" fill="white"/>'  # where pages are dark, too
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return f"{begin}{ground}{''.join(parts)}</svg>"


def main() -> int:
    """Soak; 1 where something grew."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import launcher

    from weft.graph import communities
    from weft.partition import allocate, write_partitioned

    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("build/soak.svg"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graph = communities(f"{folder}/g", vertices=2000, edges=20_000, width=16, classes=4, train=0.3, block=100)
        write_partitioned(graph, allocate(graph, given.workers, "metis"), given.workers, Path(folder) / "parts")
        work = (f"{folder}/parts", 10**6, PLANS, given.seconds)
        series = launcher.start(given.workers, soaked, *work, hosts=[rank // 2 for rank in range(given.workers)])
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(drawn(series))
    grew = [growth(notes) for notes in series]
    for rank, (notes, more) in enumerate(zip(series, grew, strict=True)):
        print(f"worker {rank}: {len(notes)} epochs; at the end {json.dumps(notes[-1])}; grew: {more or 'nothing'}")
    print(f"drawn in {given.out}")
    return int(any(grew))


if __name__ == "__main__":
    sys.exit(main())
