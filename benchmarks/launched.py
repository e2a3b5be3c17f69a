"""One training under two launchers in turn, on the same hosts of a sandbox: what an epoch takes, and are models the same?"""

import json
import statistics
import sys
from pathlib import Path

from weft.graph import communities
from weft.partition import allocate, write_partitioned

sys.path += [str(Path(__file__).parents[1] / "tests")]
from apart import started_apart

_MODEL = ["--hidden", "32", "--fanouts", "10,5", "--batch-size", "512", "--threads", "1", "--plan", "split"]
_SAID = ["--evaluate-every", "0", "--set", "report.log=json"]  # `--log` torchrun takes for one of its own


def training(epochs):
    """The words of the training, of a graph that `make_graph` wrote."""
    return ["train", "parts", *_MODEL, "--epochs", str(epochs), *_SAID]


def make_graph(folder, hosts, vertices):
    """The graph, in a part for each host."""
    graph = communities(folder / "g", vertices=vertices, edges=20 * vertices, width=64, classes=8)
    write_partitioned(graph, allocate(graph, hosts, "random"), hosts, folder / "parts")


def compare(name, train, box, args, folder):
    """Rounds of the training under a launcher and under torchrun; `train(words)`: what it says under that launcher."""
    ratios, words = [], training(args.epochs)
    for number in range(args.rounds):
        sides = {
            name: lambda: train([*words, "--out", "by-launcher"]),
            "torchrun": lambda: by_torchrun(box, folder, [*words, "--out", "by-torchrun"]),
        }
        turns = sides if number % 2 == 0 else dict(reversed(sides.items()))
        took = {side: epoch_of(run()) for side, run in turns.items()}
        ratios.append(took[name] / took["torchrun"])
        said = ", ".join(f"{took[side]:.3f} s under {side}" for side in sides)
        print(f"round {number}: an epoch takes {said}: {ratios[-1]:.3f}", flush=True)
    same = len({model_of(folder / side) for side in ("by-launcher", "by-torchrun")}) == 1
    print(f"median of the ratios {statistics.median(ratios):.3f}; {'the same' if same else 'ANOTHER'} model")


def by_torchrun(box, folder, words):
    """What the first of torchrun's hosts says."""
    running = []
    for host in range(box.hosts):
        launcher = ["torch.distributed.run", f"--nnodes={box.hosts}", f"--node-rank={host}", "--nproc-per-node=1"]
        launcher += ["--master-addr=10.77.0.1", "--master-port=29511", "-m", "weft.cli"]
        command = ["env", f"--chdir={folder}", sys.executable, "-m", *launcher, *words]
        with open(folder / f"said-{host}", "wb") as said:
            running.append(started_apart(box, command, host, {"OMP_NUM_THREADS": "1"}, said))
    codes = [process.wait() for process in running]
    said = (folder / "said-0").read_text(errors="replace")
    return sys.exit(said) if any(codes) else said


def epoch_of(said):
    """The median of the epochs' seconds but for the first."""
    lines = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    seconds = [line["seconds"] for line in lines if {"epoch", "loss", "seconds"} <= line.keys() and "step" not in line]
    return statistics.median(seconds[1:])


def model_of(folder):
    """The bytes of a trained model."""
    return (folder / "state.safetensors").read_bytes()


def add_training(parser):
    """The arguments of a comparison."""
    parser.add_argument(
        "--vertices", type=int, help="of the graph (default: 60,000 to train on, or a 20th of the edges)"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--rounds", type=int, default=1)
