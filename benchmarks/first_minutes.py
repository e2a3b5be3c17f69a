"""From a wheel to predictions, by the commands of the docs, in a fresh environment without a compiler: seconds of each.

    python benchmarks/first_minutes.py dist/*-cp311-*.whl                    those of docs/installing.md
    python benchmarks/first_minutes.py dist/*-cp311-*.whl --on slurm         those of docs/clusters.md, on four nodes (root)
    python benchmarks/first_minutes.py dist/*-cp311-*.whl --record           and keep them: the docs' table is made of these

What is not on this machine is fetched from the index that pip is set to. Slurm's nodes are namespaces of this machine.
"""

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from papers.records import Record, Records, commit, machine

from weft.lab import Sandbox
from weft.report.formats import seconds as as_seconds

sys.path += [str(Path(__file__).parents[1] / name) for name in ("tests", "tests/slurm")]
from first_steps import PAGES, bare_environment, first_steps, run_here, write_tables
from slurm_nodes import Slurm

ROOT = Path(__file__).resolve().parents[1]
NAME, FOLDER, PAGE = "first_minutes", ROOT / "benchmarks" / "records", ROOT / "docs" / "installing.md"
COMMAND = f"python benchmarks/{NAME}.py WHEEL --on {'|'.join(PAGES)}"
TITLES = {"local": "one machine", "slurm": "Slurm, four nodes"}
TABLE = re.compile(r"(?<=<!-- made by benchmarks/first_minutes.py -->\n).*?(?=<!-- end -->)", re.DOTALL)


def timed_steps(wheel, python, where, folder):
    """Seconds of each command of the docs, as they come."""
    shutil.copy(wheel, folder)
    environment = bare_environment(folder / "bin", python) | {"XDG_CACHE_HOME": str(folder / "cache")}
    with ExitStack() as stack:
        if where == "slurm":
            nodes = Slurm(stack.enter_context(Sandbox(hosts=4)))
            stack.callback(nodes.close)
        for name, line in first_steps(where).items():
            start = time.perf_counter()
            if line.startswith("srun "):
                words = ["env", "-uPYTHONPATH", "-uPYTHONHOME", *shlex.split(line)]
                if nodes.start(*words, folder=folder).wait():
                    sys.exit(f"{line}\n{nodes.said()}")
            else:
                run_here(line, folder, environment)
            yield name, time.perf_counter() - start


def table(records):
    """The records as the docs show them."""
    columns = {where: records.of(where, "whole") for where in PAGES}
    columns = {TITLES[where]: {one.case: one for one in rows} for where, rows in columns.items() if rows}
    if not columns:
        return f"None are on record yet: `{COMMAND} --record`\n"
    steps = dict.fromkeys(step for rows in columns.values() for step in rows)
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for step in steps:
        shown = (as_seconds(rows[step].figures["seconds"]) if step in rows else "" for rows in columns.values())
        lines.append(f"| {step} | {' | '.join(shown)} |")
    last = [one for rows in columns.values() for one in rows.values()][-1]
    size = "{vertices:,.0f} vertices and {edges:,.0f} edges".format_map(last.figures)
    load = "a load of {load:.1f} in its last five minutes".format_map(last.figures)
    origin = f"Tables of {size}; {last.date[:10]}, {last.machine}, {load}, commit {last.commit}: `{last.command}`"
    return "\n".join([*lines, "", origin, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--python", default=sys.executable, help="for which the wheel is (default: the one that runs this)"
    )
    parser.add_argument("--on", choices=tuple(PAGES), default="local")
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument(
        "--record", action="store_true", help="keep the figures, and make the docs' table of all that are kept"
    )
    args = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), args.vertices, args.edges)
        for name, seconds in timed_steps(args.wheel, args.python, args.on, Path(folder)):
            print(f"{name:12} {seconds:6.1f} s", flush=True)
            found[name] = seconds
    if args.record:
        records = Records(NAME, FOLDER)
        origin = datetime.now(UTC).isoformat(timespec="seconds"), machine(), commit(), COMMAND
        for name, seconds in found.items():
            figures = {"seconds": seconds, "vertices": args.vertices, "edges": args.edges, "load": os.getloadavg()[1]}
            records.add(Record(args.on, name, "whole", figures, seconds, *origin))
        PAGE.write_text(TABLE.sub(lambda _: table(records), PAGE.read_text()))


if __name__ == "__main__":
    main()
