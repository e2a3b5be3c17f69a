"""Four nodes of Slurm in namespaces of this machine (root): an epoch under srun and under torchrun, in turn.

    python benchmarks/on_slurm.py --rounds 5

It needs Slurm's daemons: apt install slurmctld slurmd slurm-client munge. Nodes share this machine's processors.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from launched import add_training, compare, make_graph

from weft.lab import Sandbox

sys.path += [str(Path(__file__).parents[1] / name) for name in ("tests", "tests/slurm")]
from slurm_nodes import Slurm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    add_training(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Sandbox(hosts=args.hosts, link=args.link) as box:
        make_graph(Path(folder), args.hosts, args.vertices or 60_000)
        nodes = Slurm(box)
        try:
            compare("srun", lambda words: by_srun(nodes, args.hosts, words, folder), box, args, Path(folder))
        finally:
            nodes.close()


def by_srun(nodes, hosts, words, folder):
    """What a step of Slurm says."""
    before = len(nodes.said()) if (nodes.folder / "said").exists() else 0
    step = ["env", "OMP_NUM_THREADS=1", "srun", f"--nodes={hosts}", "--ntasks-per-node=1"]
    code = nodes.start(*step, sys.executable, "-m", "weft.cli", *words, folder=folder).wait()
    return sys.exit(nodes.said()[before:]) if code else nodes.said()[before:]


if __name__ == "__main__":
    main()
