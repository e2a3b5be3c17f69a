"""How often a reader who follows one batch changes file: counted by running it.

    python tools/reading.py                   # a mini-batch, an epoch by tensor parallelism, planning; of this checkout
    python tools/reading.py -vv               # and which files, and each jump (-v: only how many there are into each)
    python tools/reading.py --source DIR      # of another checkout's src (with its kernels built)

Two workers train a small graph. From the third to the sixth update every call between functions of Weft is noted, in all of
the first worker's threads, each pair of caller and callee once, in the order in which they are met. A file is opened when a
function of it is called from another file: that is a jump. Functions of one file that call each other are read in place.
Planning is what a planner does, from its dry run to its answer, for a described cluster of two hosts.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WORKER = """
import os, sys, threading
from pathlib import Path
import torch
import weft

SRC = str(Path(weft.__file__).parent) + os.sep
edges, armed, steps = set(), False, 0


def note(frame, event, argument):
    if not armed or event != "call":
        return
    callee = frame.f_code
    if not callee.co_filename.startswith(SRC):
        return
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(SRC):
        caller = caller.f_back
    origin = ("", "") if caller is None else (caller.f_code.co_filename, caller.f_code.co_name)
    edges.add((origin, (callee.co_filename, callee.co_name)))


def arm(step):
    def stepped(*given, **more):
        global armed, steps
        out = step(*given, **more)
        steps += 1
        armed = ALWAYS or FIRST <= steps < LAST
        return out
    return stepped


def report():
    of = lambda file: file.removeprefix(SRC)
    jumps = {(a, b) for a, b in edges if a[0] and a[0] != b[0]}
    folders = [1 for a, b in jumps if of(a[0]).split(os.sep)[0] != of(b[0]).split(os.sep)[0]]
    print(len({b[0] for _, b in edges}), len(jumps), len(folders))
    for file in sorted({of(b[0]) for _, b in edges}) if "-v" in sys.argv or "-vv" in sys.argv else []:
        into = sorted(f"{of(a[0])} {a[1]} -> {b[1]}" for a, b in jumps if of(b[0]) == file)
        print(f"    {len(into):2} {file}")
        for jump in into if "-vv" in sys.argv else []:
            print("          ", jump)
"""

BATCH = """
ALWAYS, FIRST, LAST = False, 3, 6
torch.optim.Adam.step = arm(torch.optim.Adam.step)
threading.setprofile(note)
sys.setprofile(note)
from torch_geometric.nn.models import GraphSAGE
graph = weft.Graph.open(sys.argv[1])
model = GraphSAGE(graph.num_features, 16, num_layers=2, out_channels=graph.num_classes)
common = dict(epochs=8, evaluate_every=0, plan=sys.argv[2])
more = dict(full_graph=True) if sys.argv[2].startswith("tp") else dict(fanouts=[5, 5], batch_size=64)
weft.train(graph, model, **common, **more)
sys.setprofile(None)
if os.environ["RANK"] == "0":
    report()
"""

MAKE = """
import sys
from pathlib import Path
try:
    from weft.graph import communities
except ImportError:
    from weft.graph.generate import communities
communities(Path(sys.argv[1]), vertices=600, edges=3000, width=12, classes=3, block=50)
try:
    from weft.planner import KINDS
except ImportError:
    from weft.planner.work import KINDS
text = "version = 1\\n"
for name in ("h1", "h2"):
    text += f'[[host]]\\nname = "{name}"\\nworkers = 1\\ncores = 1.0\\nbandwidth = 1e7\\nmemory = 1e10\\n'
text += "[exchange]\\nlatency = 1e-4\\n[work]\\n" + "".join(f"{kind} = 1.0\\n" for kind in KINDS)
try:
    from weft.planner.cluster import TIMED
    text += f"timed = {TIMED}\\n"
except ImportError:
    pass
Path(sys.argv[2]).write_text(text)
"""

PLANNING = """
ALWAYS, FIRST, LAST = True, 0, 0
from weft.cli import main
from weft.planner.planner import Planner


def armed_while(method):
    def called(*given, **more):
        global armed
        before, armed = armed, True
        try:
            return method(*given, **more)
        finally:
            armed = before
    return called


Planner.__init__, Planner.answer = armed_while(Planner.__init__), armed_while(Planner.answer)
sys.setprofile(note)
main(["plan", sys.argv[1], "--cluster", sys.argv[2], "--hidden", "16", "--fanouts", "5,5"])
sys.setprofile(None)
report()
"""


def run(code: str, arguments: list[str], source: Path, workers: int) -> str:
    """What the first of some workers prints."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1"}
    world |= {"MASTER_PORT": str(port), "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=os.environ | world | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if rank else None,
            text=True,
        )
        for rank in range(workers)
    ]
    out = processes[0].communicate(timeout=300)[0]
    for process in processes:
        process.wait(60)
    return out


def main() -> None:
    """Run and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("-v", action="count", default=0, help="name the files; -vv: and the jumps into each")
    args = parser.parse_args()
    verbose = ["-" + "v" * args.v] if args.v else []
    with tempfile.TemporaryDirectory() as folder:
        graph, cluster = str(Path(folder) / "graph"), str(Path(folder) / "cluster.toml")
        run(MAKE, [graph, cluster], args.source, 1)
        print("files, jumps between files, jumps between folders")
        for plan in ("gdp", "split", "tp"):
            print(f"{plan}: {run(WORKER + BATCH, [graph, plan, *verbose], args.source, 2).strip()}")
        print(f"planning: {run(WORKER + PLANNING, [graph, cluster, *verbose], args.source, 1).strip()}")


if __name__ == "__main__":
    main()
