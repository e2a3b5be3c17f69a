"""The machine that work is priced by before anything is known of one's own: this one, into src/weft/planner/reference.toml.

python benchmarks/reference.py --rounds 3        # root: four hosts of a sandbox

Run it again where the planner's kinds of work change. `weft probe` rehearses; a piece of work that waits for memory is
timed besides, for other machines to be told from this one by.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import weft.planner
from weft.lab import Sandbox
from weft.planner import KINDS, read_cluster
from weft.planner.priors import far_rows

FILE = Path(weft.planner.__file__).with_name("reference.toml")
HEAD = """\
# What work costs on the machine below, by which plans are chosen where nothing was measured yet (planner/priors.py).
# `python benchmarks/reference.py{arguments}` wrote this on {date}.
machine = "{machine}"
rows = {rows!r}  # processor seconds a byte of rows picked from far away

[work]  # of `weft probe`: {rounds} rehearsals
"""


def main() -> None:
    """Rehearse, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--link", default="1gbit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Sandbox(hosts=4, link=args.link) as sandbox:
        file = Path(folder, "cluster.toml")
        os.environ["WEFT_CACHE"] = "off"
        command = [sys.executable, "-m", "weft.cli", "probe", "--rounds", str(args.rounds), "--out", str(file)]
        if sandbox.run(command):
            raise SystemExit("the sandbox could not be probed: see above")
        work = read_cluster(file).work
    arguments = "".join(f" {argument}" for argument in sys.argv[1:])
    date = time.strftime("%Y-%m-%d", time.gmtime())
    text = HEAD.format(arguments=arguments, date=date, machine=machine(), rows=far_rows(), rounds=args.rounds)
    FILE.write_text(text + "".join(f"{kind} = {work[kind]!r}  # {KINDS[kind]}\n" for kind in KINDS))
    print(f"written to {FILE}")


def machine() -> str:
    """This machine in words."""
    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{named[1].strip() if named else 'an unnamed processor'}, {os.cpu_count()} of its threads"


if __name__ == "__main__":
    main()
