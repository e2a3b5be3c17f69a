"""Launches as data: what would be started, checked before it is."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from weft import cli
from weft.cluster import Launcher, Recovery, Request
from weft.cluster.launcher import run_starter
from weft.cluster.slurm import Slurm
from weft.cluster.torchrun import after_torchrun
from weft.commands import doctor, plan, probe, train
from weft.graph import communities
from weft.plugins import LAUNCHERS
from weft.stopping import Interrupted


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "g"
    communities(folder, vertices=300, edges=2000, width=8, classes=3)
    return str(folder)


def shown(capsys, *arguments):
    assert cli.main(["launch", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert cli.main(["launch", *arguments]) == 2
    return capsys.readouterr().err


def test_what_is_started_again_says_each_setting_once():
    recovery = Recovery(2, Path("kept"), least=1, batch_size=60)
    said = ("train", "g", "--set", "parallel.workers=3", "--set=sampling.batch_size=20")
    request = Request(said, 3, recovery=recovery).again(2)
    changed = ("train", "g", "--set", "parallel.workers=2", "--set=sampling.batch_size=30")
    assert request.arguments == (*changed, "--resume")
    by_flags = Request(("train", "g", "--workers", "3"), 3, recovery=recovery).again(2).arguments
    assert by_flags == ("train", "g", "--workers", "3", "--resume", "--workers", "2", "--batch-size", "30")
    assert request.changes == {"resume": "true", "workers": "2", "batch_size": "30"}
    assert request.again(2).changes == request.changes  # a script's workers are told these only, each time


def test_what_is_started_again_says_it_before_what_are_no_flags():
    recovery = Recovery(2, Path("kept"), least=1, batch_size=60)
    words = ("train", "--checkpoint", "kept", "--set", "parallel.workers=3", "--", "--resume")
    again = Request(words, 3, resumable=True, recovery=recovery).again(2)
    flags = ("train", "--checkpoint", "kept", "--set", "parallel.workers=2", "--resume", "--batch-size", "30")
    assert again.arguments == (*flags, "--", "--resume")  # the graph's name
    assert again.resumed() == again.arguments
    assert Request(words, 3, resumable=True).resumed() == (*words[:5], "--resume", "--", "--resume")


def test_a_job_goes_on_whose_graph_is_behind_what_are_no_flags(capsys):
    words = ["--dry-run", "--", "train", "--checkpoint", "/checkpoints/a", "--", "graph"]
    assert "train --checkpoint /checkpoints/a --resume -- graph\n" in shown(capsys, "slurm", *words)
    options = ["--option=image=weft", "--option=checkpoints=runs", "--option=job=pytorchjob"]
    (pod,) = json.loads(shown(capsys, "k8s", *options, *words))["spec"]["pytorchReplicaSpecs"].values()
    assert pod["template"]["spec"]["containers"][0]["args"][-3:] == ["--resume", "--", "graph"]


def test_a_batch_script_goes_on_from_its_checkpoint(capsys):
    options = ["--option", "time=2:00:00", "--option", "cpus-per-task=8"]
    train = ["train", "my graph", "--checkpoint", "kept"]
    script = shown(capsys, "slurm", "--hosts", "4", "--workers-per-host", "2", *options, "--dry-run", "--", *train)
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in ("nodes=4", "ntasks-per-node=2", "time=2:00:00", "requeue", "signal=USR1@120", "open-mode=append"):
        assert f"#SBATCH --{line}" in lines
    (run,) = (line for line in lines if line.startswith("srun"))
    assert run.startswith("srun --cpus-per-task=8 ")
    assert run.endswith("-m weft.cli train 'my graph' --checkpoint kept --resume")
    assert 'scontrol requeue "$SLURM_JOB_ID"' in script
    (secret,) = (line for line in lines if line.startswith("export WEFT_SECRET="))
    shell = ["bash", "-c", f'{secret}\necho "$WEFT_SECRET"']
    assert re.fullmatch(r"[0-9a-f]{64}\n", subprocess.run(shell, capture_output=True, text=True).stdout)


def test_a_job_without_checkpoints_is_not_put_back(capsys):
    script = shown(capsys, "slurm", "--hosts", "2", "--dry-run", "--", "train", "graph")
    assert "requeue" not in script and "--resume" not in script


def test_the_script_is_what_sbatch_gets(capfd, monkeypatch, tmp_path):
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\ncat\n")
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    request = Request(("train", "graph"), 1, 2)
    assert Slurm().submit(request) == 0
    assert capfd.readouterr().out == Slurm().shown(request)


def test_sbatch_that_is_killed_gives_a_shells_exit_code(monkeypatch, tmp_path):
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nkill -15 $$\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert Slurm().submit(Request(("train", "g"))) == 128 + signal.SIGTERM


def test_without_a_queue_the_user_is_told(capsys, monkeypatch, graph):
    monkeypatch.setenv("PATH", "")
    assert "there is no sbatch on this machine" in refused(capsys, "slurm", "--", "train", graph)
    assert "there is no mpirun on this machine" in refused(capsys, "mpi", "--", "train", graph)


@pytest.mark.parametrize("launcher", ["slurm", "mpi", "torchrun"])
def test_what_workers_would_refuse_is_refused_before_they_are_started(capsys, monkeypatch, graph, tmp_path, launcher):
    monkeypatch.setenv("PATH", "")
    words = ["--", "train", graph, "--model", f"{tmp_path}/missing.py:make"]
    assert f"there is no file {tmp_path}/missing.py" in refused(capsys, launcher, *words)


def test_a_cluster_file_is_of_the_hosts_that_are_asked_for(capsys, monkeypatch, graph, tmp_path):
    monkeypatch.setenv("PATH", "")
    hosts = [f'[[host]]\nname = "{name}"\nbandwidth = "1gbit"\nmemory = "16GiB"\n' for name in "ab"]
    (tmp_path / "c.toml").write_text("version = 1\n" + "".join(hosts) + "[exchange]\nlatency = 0.001\n")
    words = ["--", "train", graph, "--cluster", f"{tmp_path}/c.toml"]
    assert "there is no sbatch on this machine" in refused(capsys, "slurm", "--hosts", "2", *words)
    assert "2 hosts with 1, 1 workers, but this run has 1 with 2" in refused(
        capsys, "slurm", "--workers-per-host", "2", *words
    )


def test_a_job_does_not_go_on_from_an_earlier_runs_checkpoints_unasked(capsys, monkeypatch, graph, tmp_path):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "kept" / "step-000000005").mkdir(parents=True)
    words = ["--", "train", graph, "--checkpoint", f"{tmp_path}/kept"]
    assert "kept holds checkpoints of an earlier run: go on from them with --resume" in refused(capsys, "slurm", *words)
    assert "there is no sbatch on this machine" in refused(capsys, "slurm", *words, "--resume")


def test_torchrun_has_a_line_for_each_host(capsys):
    arguments = ["torchrun", "--hosts", "2", "--option", "master=h1", "--dry-run", "--", "probe"]
    first, second = shown(capsys, *arguments).splitlines()
    assert "--nnodes 2 --node-rank 0 --master-addr h1 --master-port 29500 --nproc-per-node 1" in first
    assert second.startswith("on host 1: ") and second.endswith("-m weft.cli probe")
    assert "run these lines there" in refused(capsys, *(word for word in arguments if word != "--dry-run"))


def test_local_workers_have_torchruns_variables(capsys):
    lines = shown(capsys, "local", "--workers-per-host", "2", "--dry-run", "--", "train", "graph").splitlines()
    assert lines[1].startswith("RANK=1 ") and "WORLD_SIZE=2" in lines[1] and lines[1].endswith("weft train graph")
    for dry in ([], ["--dry-run"]):
        assert "local workers are on one host" in refused(capsys, "local", "--hosts", "2", *dry, "--", "train", "graph")


def test_mistakes_are_told_before_a_job_waits(capsys):
    assert "needs a command of many workers" in refused(capsys, "slurm", "--", "info", "graph")
    assert "hidden = 0 is out of range" in refused(capsys, "slurm", "--", "train", "graph", "--hidden", "0")
    assert "give --workers-per-host" in refused(capsys, "slurm", "--", "train", "graph", "--workers", "2")
    assert "has no option 'time'" in refused(capsys, "torchrun", "--option", "time=1", "--", "train", "graph")
    assert "must be at least 1" in refused(capsys, "slurm", "--hosts", "0", "--", "train", "graph")


class Carrier(Launcher):
    """A stranger's."""

    name, help = "carrier", "by pigeon"

    def shown(self, request):
        return f"{request.hosts} pigeons"

    def submit(self, request):
        return 0


def test_strangers_add_launchers(capsys, monkeypatch):
    monkeypatch.setattr(LAUNCHERS, "_added", {})
    LAUNCHERS.register(Carrier)
    assert shown(capsys, "carrier", "--hosts", "3", "--dry-run", "--", "train", "graph") == "3 pigeons\n"


def test_a_launcher_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["launch", "nonsense", "--", "train", "graph"])
    assert "slurm" in capsys.readouterr().err


def test_the_launcher_of_the_docs_works(capsys, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text()
    names = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    monkeypatch.setattr(LAUNCHERS, "_added", {})
    LAUNCHERS.register(names["Containers"])
    lines = shown(capsys, "containers", "--workers-per-host", "2", "--option", "image=mine", "--dry-run", "--", "probe")
    assert lines.splitlines()[1].startswith("docker run --rm --network=host -e RANK=1 -e WORLD_SIZE=2")
    assert lines.endswith("mine weft probe\n")


@pytest.mark.parametrize("command", [doctor, plan, probe, train])
def test_torchrun_lets_all_flags_through(command):
    parser = ArgumentParser()
    command.add_arguments(parser)
    for action in parser._actions:
        for flag in action.option_strings:
            words = after_torchrun(["train", "g", flag, "x"])
            assert get_args_parser().parse_args(["-m", "weft.cli", *words]).training_script_args == words
    assert after_torchrun(["train", "--log", "json"]) == after_torchrun(["train", "--log=json"])
    assert after_torchrun(["train", "--log", "json"]) == ["train", "--set=report.log=json"]


def test_a_log_for_machines_is_started_by_torchrun(capsys):
    words = ["--dry-run", "--", "train", "graph", "--log", "json"]
    assert shown(capsys, "torchrun", *words).endswith("train graph --set=report.log=json\n")
    (pod,) = json.loads(shown(capsys, "k8s", "--option=image=weft", "--option=job=pytorchjob", *words))["spec"][
        "pytorchReplicaSpecs"
    ].values()
    assert pod["template"]["spec"]["containers"][0]["args"][-1] == "--set=report.log=json"


STARTER = """#!/bin/sh
trap 'echo told > "$0.told"; exit 3' TERM INT
echo ready > "$0.ready"
for moment in $(seq 1200); do sleep 0.05; done
"""


@pytest.mark.parametrize(
    ("signum", "instead"),
    [(signal.SIGTERM, None), (signal.SIGINT, None), (signal.SIGUSR1, {signal.SIGUSR1: signal.SIGTERM})],
)
def test_what_starts_workers_is_told_to_end_them(tmp_path, signum, instead):
    starter = tmp_path / "mpirun"
    starter.write_text(STARTER)
    starter.chmod(0o755)

    def stop():
        wait_for(f"{starter}.ready")
        os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Interrupted) as stopped:
        run_starter([str(starter)], instead=instead)
    stopper.join()
    assert stopped.value.signum == signum and Path(f"{starter}.told").exists() and signal.getsignal(signum) is before


def test_what_starts_workers_is_told_though_the_command_is_killed(tmp_path):
    starter = tmp_path / "mpirun"
    starter.write_text(STARTER)
    starter.chmod(0o755)
    script = f"from weft.cluster.launcher import run_starter; run_starter([{str(starter)!r}])"
    with subprocess.Popen([sys.executable, "-c", script]) as command:
        wait_for(f"{starter}.ready")
        command.kill()
    wait_for(f"{starter}.told")


def wait_for(file):
    end = time.monotonic() + 60
    while not Path(file).exists():
        assert time.monotonic() < end, file
        time.sleep(0.01)


def test_a_starter_that_is_killed_gives_a_shells_exit_code():
    assert run_starter(["sh", "-c", "kill -9 $$"]) == 128 + signal.SIGKILL
    assert run_starter(["sh", "-c", "exit 7"]) == 7


def test_mpirun_is_told_where_workers_meet_whichever_it_is(capsys):
    words = ["--hosts", "2", "--option", "master=h1", "--option", "x=NAME", "--option", "hostfile=all", "--dry-run"]
    line = shown(capsys, "mpi", *words, "--", "train", "graph")
    assert line.startswith("mpirun -n 2 -x NAME --hostfile all env MASTER_ADDR=h1 MASTER_PORT=29500 ")
    assert shown(capsys, "mpi", "--option", "port=7000", *words[:4], "--dry-run", "--", "probe").startswith(
        "mpirun -n 2 env MASTER_ADDR=h1 MASTER_PORT=7000 "
    )
    assert " env " not in shown(capsys, "mpi", "--dry-run", "--", "probe")


def test_lists_may_begin_with_all_neighbours(capsys):
    for command in ("train", "doctor"):
        line = shown(capsys, "local", "--dry-run", "--", command, "graph", "--fanouts", "-1,3")
        assert line.endswith(f"weft {command} graph --fanouts=-1,3\n")


def test_an_option_that_is_given_twice_is_refused(capsys):
    words = ["--option", "x=A=1", "--option", "x=B=2", "--", "probe"]
    assert "--option x is given twice: A=1 and B=2; drop one" in refused(capsys, "mpi", *words)


@pytest.mark.parametrize("command", ["train", "doctor", "plan", "probe"])
def test_the_store_is_at_a_port_of_the_range_whatever_is_started(capsys, monkeypatch, tmp_path, command):
    requests = []
    monkeypatch.setattr("weft.cluster.launch", lambda name, request: requests.append(request) or 0)
    for words in (["--ports", "29500-29600"], ["--ports=29500-29600", "--timeout", "9"], []):
        assert cli.main(["launch", "local", "--", command, *([] if command == "probe" else ["graph"]), *words]) == 0
    if command != "probe":
        (tmp_path / "run.toml").write_text('[parallel]\nports = "29500-29600"\n')
        assert cli.main(["launch", "local", "--", command, "graph", "--config", str(tmp_path / "run.toml")]) == 0
        assert requests.pop().ports == "29500-29600"
    assert [request.ports for request in requests] == ["29500-29600", "29500-29600", None]


def test_a_job_goes_on_by_the_setting_that_was_given(capsys):
    """By a flag beside it, it would be said twice, which tasks refuse."""
    words = ["train", "graph", "--checkpoint", "/checkpoints/a", "--set", "checkpoint.resume=false"]
    script = shown(capsys, "slurm", "--dry-run", "--", *words)
    assert "--set checkpoint.resume=true\n" in script and "--resume" not in script
    options = ["--option=image=weft", "--option=checkpoints=runs", "--option=job=pytorchjob", "--dry-run"]
    pod = shown(capsys, "k8s", *options, "--", *words)
    assert "checkpoint.resume=true" in pod and "--resume" not in pod


def test_what_sbatch_is_told_is_quoted(capsys):
    script = shown(capsys, "slurm", "--option", "comment=my run", "--dry-run", "--", "train", "graph")
    assert "#SBATCH --comment='my run'\n" in script
