"""The fault matrix, in pieces: cells that have no record of this commit, as long as there is time; then the table.

python tests/faults/run.py [--seconds 3600] [--only TEXT] [--part 1/3] [--again] [--any-commit] [--records FILE]

Where files were changed since the commit, nothing that was found before counts, unless --any-commit says so.
"""

import argparse
import json
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

from experiment import Experiment
from laboratory import Laboratory
from matrix import CELLS, FAULTS, MODES, STAGES

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from papers.records import CHANGED, commit

RECORDS = Path("build/faults.jsonl")


def read(file: Path, of: str | None) -> dict[str, dict]:
    """The last record of each cell, of a commit or of any (None)."""
    records = map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return {record["cell"]: record for record in records if _counts(record, of)}


def _counts(record: dict, of: str | None) -> bool:
    return record["cell"] in CELLS and of in (None, record.get("commit"))


def table(records: dict[str, dict]) -> str:
    """A line a fault, a column a stage; both modes in each field: e ended, s survived, X something is wrong, . not run."""

    def sign(cell: str) -> str:
        record = records.get(cell)
        return "." if record is None else "X" if not record["ok"] else record["outcome"][0]

    width = max(map(len, FAULTS))
    lines = [f"{'fault':{width}}  " + "  ".join(f"{stage:>11}" for stage in STAGES)]
    for fault in FAULTS:
        fields = ("".join(sign(f"{fault} / {stage} / {mode}") for mode in MODES) for stage in STAGES)
        lines.append(f"{fault:{width}}  " + "  ".join(f"{field:>11}" for field in fields))
    counts = defaultdict(int)
    for cell in CELLS:
        counts[sign(cell)] += 1
    named = {"e": "ended and resumed", "s": "survived", "X": "wrong", ".": "not run"}
    lines.append(f"{len(CELLS)} cells: " + ", ".join(f"{counts[key]} {text}" for key, text in named.items()))
    return "\n".join(lines)


def main() -> int:
    """Run what is to be run; 1 where something is wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no cell after so many")
    parser.add_argument("--only", default="", help="cells whose names contain this")
    parser.add_argument("--part", default="1/1", help="1/3: every third cell, as three may run at once")
    parser.add_argument("--again", action="store_true", help="those that were wrong, too")
    parser.add_argument("--any-commit", action="store_true", help="records of other commits count, too")
    parser.add_argument("--records", type=Path, default=RECORDS)
    given = parser.parse_args()
    given.records.parent.mkdir(parents=True, exist_ok=True)
    now, end = commit(), time.monotonic() + given.seconds
    of = None if given.any_commit else now
    known = {} if of and now.endswith(CHANGED) else read(given.records, of)
    wanted = [name for name in CELLS if given.only in name]
    part, parts = map(int, given.part.split("/"))
    random.Random(0).shuffle(wanted)  # so that an early part of them tells something of all
    wanted = wanted[part - 1 :: parts]
    wanted = [name for name in wanted if name not in known or (given.again and not known[name]["ok"])]
    if wanted:
        with Laboratory() as lab, open(given.records, "a") as records:
            for name in wanted:
                if time.monotonic() > end:
                    break
                known[name] = {"commit": now, **Experiment(lab, CELLS[name]).result()}
                records.write(json.dumps(known[name]) + "\n")
                records.flush()
                print(
                    f"{'ok ' if known[name]['ok'] else 'BAD'} {name}: {known[name]['outcome']} {known[name]['wrong'] or ''}",
                    flush=True,
                )
    known = read(given.records, of)
    print(table(known))
    print(f"of {'any commit' if of is None else f'commit {now}'}")
    return int(any(not record["ok"] for record in known.values()))


if __name__ == "__main__":
    sys.exit(main())
