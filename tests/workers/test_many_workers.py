"""`weft train` on many workers: the same model as one, whatever the plan; resumed anywhere; lost workers named."""

import os
import pty
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from launcher import Running, anew, children_of, command, free_port, ran
from safetensors.torch import load_file

from weft import cli
from weft.graph import Graph, communities
from weft.partition import allocate, write_partitioned

SETTINGS = [
    "--hidden",
    "8",
    "--fanouts",
    "4,4",
    "--epochs",
    "2",
    "--dtype",
    "float64",
    "--dropout",
    "0.2",
    "--lr",
    "0.01",
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "whole", vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100)
    for parts in (2, 3):
        write_partitioned(graph, allocate(graph, parts, "metis"), parts, folder / f"parts-{parts}")
    return folder


def in_its_own_process(*arguments, check):
    """A command as a user starts it, with nothing imported before."""
    done = anew(["weft", *arguments])
    assert done.returncode == 0 or not check, done.stderr
    return done


def train(weft, graph, out, *more, batch):
    done = weft("train", graph, *SETTINGS, "--batch-size", batch, "--threads", 1, "--out", out, *more, check=True)
    return load_file(out / "state.safetensors"), done.stdout


def far(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def alone(weft, graphs, tmp_path_factory):
    return train(weft, graphs / "whole", tmp_path_factory.mktemp("models") / "m", batch=120)[0]


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (2, ["--plan", "split"]),
        (3, ["--plan", "push,local", "--cache", "0.2", "--topology", "partitioned"]),
        (2, ["--plan", "nfp"]),
        (3, ["--plan", "gdp", "--cache", "0.1", "--prefetch", "0"]),
        (2, ["--group", "host", "--plan", "dnp"]),
    ],
)
def test_workers_train_the_same_model(weft, graphs, alone, tmp_path, workers, options):
    parts = graphs / f"parts-{workers}"
    model, told = train(weft, parts, tmp_path / "m", "--workers", workers, *options, batch=120 // workers)
    assert far(model, alone) < 1e-10
    assert f"plan  {workers} workers" in told


@pytest.mark.parametrize("run", [command, pytest.param(in_its_own_process, marks=pytest.mark.slow)])
def test_a_graph_without_owners_is_shared_out_and_said_so(graphs, alone, tmp_path, run):
    model, told = train(run, graphs / "whole", tmp_path / "m", "--workers", 2, "--plan", "split", batch=60)
    assert far(model, alone) < 1e-10
    assert "the graph is not partitioned" in told


@pytest.mark.parametrize("run", [ran, pytest.param(anew, marks=pytest.mark.slow)])
def test_under_torchrun_by_a_plan_file(graphs, alone, tmp_path, run):
    file = tmp_path / "plan.toml"
    file.write_text('layers = ["push", "pull"]\nseeds = "home"\ncache = 0.1\n')
    command = ["torchrun", "--standalone", "--nproc-per-node", 2, "-m", "weft.cli"]
    command += ["train", graphs / "parts-2", *SETTINGS, "--batch-size", 60, "--threads", 1]
    command += ["--plan", file, "--out", tmp_path / "m"]
    done = run(command, os.environ | {"TMPDIR": str(tmp_path)})  # torchrun leaves its own logs
    assert done.returncode == 0, done.stderr
    assert "2 workers: push+pull seeds=home cache=10%" in done.stdout
    assert "feature rows read" in done.stdout
    assert far(load_file(tmp_path / "m" / "state.safetensors"), alone) < 1e-10


@pytest.mark.slow
def test_torchruns_own_restarts_meet_anew(graphs, alone, tmp_path):
    """Its store lives over all attempts: what the first one wrote there is not the second one's."""
    command = ["torchrun", "--nproc-per-node", 2, "--max-restarts", 1]
    command += ["--master-port", free_port(), tmp_path / "twice.py", "train", graphs / "parts-2", *SETTINGS]
    command += ["--batch-size", 60, "--threads", 1, "--plan", "split", "--timeout", 20, "--out", tmp_path / "m"]
    (tmp_path / "twice.py").write_text(
        "import os, sys, weft.cli, weft.training\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':\n"
        "    weft.training.Trainer.fit = lambda self, *given: os._exit(9)\n"
        "sys.exit(weft.cli.main())\n"
    )
    done = anew(command, os.environ | {"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert far(load_file(tmp_path / "m" / "state.safetensors"), alone) < 1e-10


@pytest.mark.slow
def test_hosts_of_torchrun_whose_agents_count_restarts_otherwise_meet_anew(graphs, alone, tmp_path):
    """The agent of the lost worker counts one more than the other, whose workers were well."""
    once = tmp_path / "once"
    command = ["torchrun", "--nnodes", 2, "--nproc-per-node", 1, "--max-restarts", 3, "--local-addr", "127.0.0.1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", tmp_path / "twice.py"]
    command += ["train", graphs / "parts-2", *SETTINGS, "--batch-size", 60, "--threads", 1, "--plan", "split"]
    command += ["--timeout", 20, "--out", tmp_path / "m"]
    (tmp_path / "twice.py").write_text(
        "import os, sys, weft.cli, weft.training\n"
        f"if os.environ['RANK'] == '1' and not os.path.exists({str(once)!r}):\n"
        f"    open({str(once)!r}, 'w').close()\n"
        "    weft.training.Trainer.fit = lambda self, *given: os._exit(9)\n"
        "sys.exit(weft.cli.main())\n"
    )
    with ThreadPoolExecutor(2) as agents:
        done = [*agents.map(lambda host: anew(command, os.environ | {"TMPDIR": str(tmp_path)}), range(2))]
    assert [one.returncode for one in done] == [0, 0], done
    assert once.exists() and far(load_file(tmp_path / "m" / "state.safetensors"), alone) < 1e-10


def test_plan_files_that_are_wrong_are_explained(graphs, tmp_path, capsys):
    file = tmp_path / "plan.json"
    for text, reason in (
        ('{"layers": ["push", "local"], "cahce": 1}', "there is no key 'cahce'"),
        ('{"layers": ["push"', "is not valid JSON"),
        ('{"layers": ["push"]}', "has 1 placements for 2 convolutions"),
        ("[1]", "must be a table of keys"),
        ('{"layers": "push"}', "layers must be a list"),
        ('{"layers": ["push", "local"], "cache": "much"}', "cache = 'much' is not possible: it must be a number"),
    ):
        file.write_text(text)
        assert cli.main(["train", str(graphs / "parts-2"), *SETTINGS, "--workers", "2", "--plan", str(file)]) == 2
        assert reason in capsys.readouterr().err
    file.write_text('{"layers": ["push", "local"]}')
    more = ["--plan", str(file), "--cache", "0.1"]
    assert cli.main(["train", str(graphs / "parts-2"), *SETTINGS, "--workers", "2", *more]) == 2
    assert "say cache in the plan's file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["split", "--micro-batches", 3], ["dnp"]),
        pytest.param(["migrate"], ["migrate"], marks=pytest.mark.slow),
    ],
)
def test_resumed_with_other_workers_and_another_plan(weft, graphs, alone, tmp_path, first, then):
    keep = ["--checkpoint", tmp_path / "checkpoints"]
    every = ["--checkpoint-every", 2, "--keep", 100]
    short = ["--epochs", 1, *keep, *every]  # and then trained longer
    train(weft, graphs / "parts-2", tmp_path / "a", "--workers", 2, "--plan", *first, *short, batch=60)
    for later in sorted((tmp_path / "checkpoints").glob("step-*"))[2:]:  # as if it had been lost in the first epoch
        shutil.rmtree(later)
    again = [*keep, "--resume", "--workers", 3, "--plan", *then]
    refused = weft("train", graphs / "parts-3", *SETTINGS, "--batch-size", 50, *again)
    assert refused.returncode == 2 and "workers x batch_size is 120" in refused.stderr
    model, told = train(weft, graphs / "parts-3", tmp_path / "b", *again, batch=40)
    assert "going on from" in told
    assert far(model, alone) < 1e-10


def start_endless(graph, temporary, *more):
    """A run that goes on and on, in its third epoch."""
    command = ["weft", "train", graph, *SETTINGS[:4], "--epochs", 5000, "--evaluate-every", 0, *more]
    mine = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}  # torch sets it here
    run = Running(command, mine | {"TMPDIR": str(temporary)})
    assert any(line.startswith("epoch   3") for line in run.stdout)
    return run


def nothing_is_left_in(folder):
    """Within some seconds, for it may be another process that clears up."""
    end = time.monotonic() + 10
    while list(folder.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    return not list(folder.iterdir())


def test_a_killed_worker_ends_all_and_is_named(graphs, tmp_path):
    run = start_endless(graphs / "parts-3", tmp_path, "--workers", 3, "--timeout", 30, "--plan", "leap")
    workers = children_of(run.pid)
    assert len(workers) == 3
    os.kill(workers[1], signal.SIGKILL)
    start = time.monotonic()
    _, errors = run.communicate(timeout=60)
    assert time.monotonic() - start < 40
    assert run.returncode == 1
    assert "worker 1 was killed by SIGKILL" in errors
    assert "worker 1 (host 0) stopped answering" in errors
    assert "Traceback" not in errors
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
    assert nothing_is_left_in(tmp_path)


def test_nothing_is_left_where_all_are_killed(graphs, tmp_path):
    run = start_endless(graphs / "parts-2", tmp_path, "--workers", 2, "--plan", "gdp")
    workers = children_of(run.pid)
    run.kill()
    run.communicate(timeout=60)
    end = time.monotonic() + 2
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)  # they end with who started them
    assert nothing_is_left_in(tmp_path)


def test_interrupted_workers_stop_at_one_batch_and_go_on(graphs, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    more = ["--workers", 2, "--plan", "gdp", "--checkpoint", tmp_path / "c"]
    run = start_endless(graphs / "parts-2", temporary, *more)
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    assert errors.count("go on with --resume") == 1
    assert nothing_is_left_in(temporary)


@pytest.mark.skipif(not os.path.exists("/dev/ptmx"), reason="there are no pseudo-terminals here")
def test_a_terminal_that_is_closed_stops_workers_as_a_signal_does(graphs, tmp_path):
    more = ["--workers", 2, "--plan", "gdp", "--checkpoint", tmp_path / "c", "--checkpoint-every", 1000]
    command = [sys.executable, "-m", "weft", "train", graphs / "parts-2", *SETTINGS[:4], "--epochs", 100_000, *more]
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        os.dup2(os.open(tmp_path / "errors", os.O_CREAT | os.O_WRONLY), 2)
        os.execv(sys.executable, list(map(str, command)))
    seen = b""
    while b"epoch   2" not in seen:
        seen += os.read(terminal, 1 << 16)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert (tmp_path / "errors").read_text().count("go on with --resume") == 1
    assert list((tmp_path / "c").glob("step-*"))


def test_a_wrong_number_of_workers_is_refused(graphs, capsys):
    assert cli.main(["train", str(graphs / "parts-3"), "--workers", "2"]) == 2
    assert "partitioned for 3 workers, but there are 2" in capsys.readouterr().err


def test_workers_that_never_come_end_the_wait(weft, graphs):
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = weft("train", graphs / "parts-2", "--timeout", 3, **place)
    assert done.returncode == 2
    assert "worker 0 of 2 could not meet the others" in done.stderr


def test_plans_that_make_no_sense_are_explained(graphs, capsys):
    graph = str(graphs / "parts-2")
    for plan, reason in (
        ("local,push", "place layer 1 at owners"),
        ("push", "is not known"),
        ("pull,columns", "can't be columns"),
    ):
        assert cli.main(["train", graph, "--workers", "2", "--plan", plan, "--fanouts", "4,4"]) == 2
        assert reason in capsys.readouterr().err
    assert Graph.open(graph).num_owners == 2


def test_tasks_of_srun_are_one_run(graphs, alone, tmp_path):
    common = {
        "SLURM_JOB_ID": str(free_port()),  # the port is derived from it
        "SLURM_NTASKS": "3",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": "3",
        "SLURM_NODEID": "0",
    }
    out = tmp_path / "m"
    arguments = [
        "train",
        graphs / "parts-3",
        *SETTINGS,
        "--batch-size",
        40,
        "--threads",
        1,
        "--plan",
        "split",
        "--out",
        out,
    ]
    tasks = []
    for rank in range(3):
        place = common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        tasks.append(Running(["weft", *arguments], os.environ | place))
    told = [task.communicate(timeout=200)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0]
    assert [bool(text) for text in told] == [True, False, False]  # one tells, not three
    assert far(load_file(out / "state.safetensors"), alone) < 1e-10


def when_kept(run, folder, rank, steps):
    """A worker's process in the middle of an epoch, once there are some checkpoints."""
    end = time.monotonic() + 120
    while len(list(folder.glob("step-*"))) < steps and time.monotonic() < end:
        time.sleep(0.01)
    return children_of(run.pid)[rank]


LONG = [*SETTINGS[:4], *SETTINGS[6:], "--epochs", 10, "--batch-size", 40, "--threads", 1]
LONG += ["--plan", "split", "--evaluate-every", 0, "--workers", 3]


@pytest.fixture(scope="module")
def undisturbed(weft, graphs, tmp_path_factory):
    """The model of a run that goes on for long enough to be disturbed."""
    out = tmp_path_factory.mktemp("undisturbed") / "m"
    weft("train", graphs / "parts-3", *LONG, "--out", out, check=True)
    return load_file(out / "state.safetensors")


@pytest.mark.parametrize("fewer", [False, True])
def test_a_run_goes_on_by_itself_when_a_worker_is_killed(graphs, tmp_path, undisturbed, fewer):
    kept = tmp_path / "kept"
    more = ["--checkpoint", kept, "--checkpoint-every", 2, "--keep", 100, "--max-restarts", 1]
    more += ["--min-workers", 2] if fewer else []
    run = Running(["weft", "train", graphs / "parts-3", *LONG, *more, "--out", tmp_path / "model"])
    os.kill(when_kept(run, kept, 1, steps=3), signal.SIGKILL)
    told, errors = run.communicate(timeout=200)
    assert run.returncode == 0, errors
    assert "worker 1 was killed by SIGKILL" in errors
    assert f"restart 1 of 1: {2 if fewer else 3} workers go on from {kept / 'step-'}" in errors
    assert "going on from" in told
    assert far(load_file(tmp_path / "model" / "state.safetensors"), undisturbed) <= (1e-10 if fewer else 0.0)


def test_a_run_goes_on_by_itself_when_workers_that_are_well_have_lost_each_other(graphs, tmp_path, undisturbed):
    """One is stopped for longer than the others wait for it, and then finds nobody."""
    kept = tmp_path / "kept"
    more = ["--checkpoint", kept, "--checkpoint-every", 2, "--max-restarts", 1, "--timeout", 3]
    run = Running(["weft", "train", graphs / "parts-3", *LONG, *more, "--out", tmp_path / "model"])
    victim = when_kept(run, kept, 1, steps=3)
    os.kill(victim, signal.SIGSTOP)
    time.sleep(9)
    os.kill(victim, signal.SIGCONT)
    _, errors = run.communicate(timeout=200)
    assert run.returncode == 0, errors
    assert "worker 1 (host 0) stopped answering during" in errors
    assert f"restart 1 of 1: 3 workers go on from {kept / 'step-'}" in errors
    assert far(load_file(tmp_path / "model" / "state.safetensors"), undisturbed) == 0.0


def test_restarts_that_can_go_on_from_nowhere_are_refused(graphs, capsys):
    graph = str(graphs / "parts-3")
    assert cli.main(["train", graph, "--workers", "3", "--max-restarts", "1"]) == 2
    assert (
        "max_restarts means nothing to a run without checkpoints: drop it, or set checkpoint" in capsys.readouterr().err
    )
    assert cli.main(["train", graph, "--workers", "3", "--checkpoint", "kept", "--min-workers", "2"]) == 2
    assert "set max_restarts" in capsys.readouterr().err
