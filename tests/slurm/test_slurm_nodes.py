"""Jobs on several nodes of a real Slurm, each in a network namespace: the same model, on from where they were cut off.

Needs root, iproute2, and Slurm's and MUNGE's daemons; skipped elsewhere.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from first_steps import bare_environment, first_steps, run_here, write_tables
from slurm_nodes import TOOLS, Slurm

from weft.graph import communities
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("tc", "nsenter", *TOOLS))),
        reason="needs root, iproute2, and Slurm's daemons: apt install slurmctld slurmd slurm-client munge",
    ),
]
WEFT = [sys.executable, "-m", "weft.cli"]
LONG = ["--epochs", 400, "--evaluate-every", 0]


@pytest.fixture(scope="module")
def nodes():
    with Sandbox(hosts=4) as box:
        slurm = Slurm(box)
        try:
            yield slurm
        finally:
            slurm.close()


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(tmp_path_factory.mktemp("g") / "g", vertices=2000, edges=20_000, width=16, classes=4)


@pytest.fixture
def parts(graph, tmp_path):
    """The graph in two parts, in a folder where commands run."""
    write_partitioned(graph, allocate(graph, 2, "metis"), 2, tmp_path / "parts")
    return tmp_path / "parts"


def train(*more, plan="split"):
    """The words of a small training."""
    words = ("train", "parts", "--hidden", 8, "--fanouts", "4,4", "--batch-size", 100, "--threads", 1, "--plan", plan)
    return [str(word) for word in (*words, *more)]


def trained_here(folder, *more, workers=2, plan="split"):
    """The bytes of the model that this machine trains."""
    words = train("--workers", workers, *more, "--out", "here", plan=plan)
    assert subprocess.run([*WEFT, *words], cwd=folder).returncode == 0
    return (folder / "here" / "state.safetensors").read_bytes()


class Job:
    """A training that was handed to the queue, by `weft launch slurm`."""

    def __init__(self, nodes, folder, *options):
        launch = ["launch", "slurm", "--hosts", 2, "--workers-per-host", 1]
        launch += [word for option in options for word in ("--option", option)]
        words = train(*LONG, "--checkpoint", "kept", "--out", "job")
        assert nodes.start(*WEFT, *launch, "--", *words, folder=folder).wait(60) == 0, nodes.said()
        self.number = re.findall(r"Submitted batch job (\d+)", nodes.said())[-1]
        self._nodes, self._folder = nodes, folder

    def said(self):
        file = self._folder / f"slurm-{self.number}.out"
        return file.read_text() if file.exists() else ""

    def state(self):
        """Such as RUNNING, and the nodes that it runs on; nothing once it is over."""
        return self._nodes.tell("squeue", f"--jobs={self.number}", "--noheader", "--format=%T %N").split()

    def until(self, done, seconds=120):
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, (self.state(), self.said())
            time.sleep(0.2)

    def began(self):
        """Wait for its first checkpoint."""
        self.until(lambda: any((self._folder / "kept").glob("step-*")))

    def model(self):
        """The bytes of its model, when it is over."""
        self.until(lambda: not self.state(), seconds=400)  # of which Slurm lets a job rest for two minutes
        assert "saved to job" in self.said(), (self._nodes.tell("scontrol", "show", "job", self.number), self.said())
        return (self._folder / "job" / "state.safetensors").read_bytes()


@pytest.mark.parametrize(("hosts", "each", "plan"), [(2, 1, "split"), (2, 1, "gdp"), (4, 1, "leap"), (2, 2, "dnp")])
def test_tasks_of_srun_train_what_one_machine_trains(nodes, graph, tmp_path, hosts, each, plan):
    workers = hosts * each
    write_partitioned(graph, allocate(graph, workers, "metis"), workers, tmp_path / "parts")
    step = [
        "srun",
        "--nodes",
        hosts,
        "--ntasks-per-node",
        each,
        *WEFT,
        *train("--epochs", 3, "--out", "slurm", plan=plan),
    ]
    assert nodes.start(*step, folder=tmp_path).wait(120) == 0, nodes.said()
    assert f"{workers} workers" in nodes.said()
    model = (tmp_path / "slurm" / "state.safetensors").read_bytes()
    assert model == trained_here(tmp_path, "--epochs", 3, workers=workers, plan=plan)


def test_a_job_whose_time_is_up_goes_on(nodes, parts, tmp_path):
    job = Job(nodes, tmp_path)
    job.began()
    nodes.tell("scancel", "--signal=USR1", job.number)
    assert job.model() == trained_here(tmp_path, *LONG)
    assert job.said().count("epoch   1 of 400") == 1


def test_a_job_that_lost_a_node_goes_on_with_another(nodes, parts, tmp_path):
    job = Job(nodes, tmp_path, "exclude=h1", "nodelist=h4")
    job.began()
    nodes.lose(3)
    job.until(lambda: job.state()[:1] == ["PENDING"])
    nodes.tell("scontrol", "update", f"JobId={job.number}", "ReqNodeList=")
    job.until(lambda: job.state()[:1] == ["RUNNING"], seconds=300)
    assert job.state()[1] == "h[2-3]"
    assert job.model() == trained_here(tmp_path, *LONG)
    nodes.add(3)


def test_a_job_that_is_cancelled_ends(nodes, parts, tmp_path):
    job = Job(nodes, tmp_path)
    job.began()
    nodes.tell("scancel", job.number)
    job.until(lambda: not job.state(), seconds=30)
    assert any((tmp_path / "kept").glob("step-*")) and not (tmp_path / "job").exists()


def test_a_worker_that_is_killed_ends_the_step_in_a_sentence(nodes, parts, tmp_path):
    before = len(nodes.said())
    step = [
        "srun",
        "--nodes",
        2,
        "--ntasks-per-node",
        1,
        *WEFT,
        *train(*LONG, "--checkpoint", "kept", "--out", "slurm"),
    ]
    run = nodes.start(*step, folder=tmp_path)
    while not any((tmp_path / "kept").glob("step-*")):
        assert run.poll() is None, nodes.said()
        time.sleep(0.1)
    nodes.lose(1, "weft.cli")
    assert run.wait(60) != 0
    assert re.search(r"weft: worker 1 \(host \S+\).*--resume", nodes.said()[before:]), nodes.said()[before:]


def test_the_commands_of_the_docs(nodes, graph, tmp_path):
    write_partitioned(graph, allocate(graph, 8, "random"), 8, tmp_path / "parts")
    section = (
        (Path(__file__).parents[2] / "docs" / "clusters.md").read_text().split("\n## Slurm\n")[1].split("\n## ")[0]
    )
    commands = [line.split() for line in section.splitlines() if line.startswith(("    srun ", "    weft "))]
    assert len(commands) == 3
    for words in commands:
        at = words.index("weft")
        command = [*words[:at], *WEFT, *words[at + 1 :], "--epochs", "1", "--threads", "1"]
        assert nodes.start(*command, folder=tmp_path).wait(240) == 0, nodes.said()
    number = re.findall(r"Submitted batch job (\d+)", nodes.said())[-1]
    for _ in range(600):
        if not nodes.tell("squeue", f"--jobs={number}", "--noheader").strip():
            break
        time.sleep(0.2)
    assert "accuracy" in (tmp_path / f"slurm-{number}.out").read_text()


def offline(folder):
    """Variables with which pip finds on no index, but here, all that a wheel needs; Weft is not among it."""
    here = folder / "dependencies"
    here.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "weft" not in path.name and path.suffix != ".pth":
            (here / path.name).symlink_to(path)
    return {"PYTHONPATH": str(here), "PIP_NO_INDEX": "1"}


def test_from_a_wheel_to_predictions(nodes, tmp_path):
    """The commands of the docs, in an environment of their own; and one machine trains the same bits."""
    wheels = Path(__file__).parents[2] / os.environ.get("WEFT_WHEELS", "dist")
    tag = "cp311-cp311" if sys.version_info[:2] == (3, 11) else "cp312-abi3"
    (wheel, *_) = [*wheels.glob(f"weft_gnn-*-{tag}-*.whl"), None]
    if wheel is None:
        pytest.skip(f"no wheel for this Python in {wheels.name}: make wheel")
    shutil.copy(wheel, tmp_path)
    write_tables(tmp_path, vertices=2000, edges=20_000)
    apart = offline(tmp_path)
    here = bare_environment(tmp_path / "bin", sys.executable) | apart
    steps = first_steps("slurm")
    assert list(steps) == ["environment", "installation", "import", "partition", "training", "predictions"]
    for line in steps.values():
        if line.startswith("srun "):
            words = ["env", *(f"{name}={value}" for name, value in apart.items()), *shlex.split(line)]
            assert nodes.start(*words, folder=tmp_path).wait(240) == 0, nodes.said()
        else:
            run_here(line, tmp_path, here)
    where = "import weft; print(weft.__file__)"
    told = subprocess.run(
        [tmp_path / "env/bin/python", "-c", where], env=here, cwd=tmp_path, capture_output=True, text=True
    )
    assert told.stdout.startswith(str(tmp_path / "env")), told
    assert pq.read_table(tmp_path / "predictions.parquet").num_rows == 2000
    model = (tmp_path / "model" / "state.safetensors").read_bytes()
    local = steps["training"].replace("srun -N 4 ", "").replace("--out model", "--workers 4 --out alone")
    run_here(local, tmp_path, here)
    assert model == (tmp_path / "alone" / "state.safetensors").read_bytes()
