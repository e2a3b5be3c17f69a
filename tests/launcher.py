"""Processes for tests: workers, whole commands, scripts and torchrun. Tests get these as fixtures (conftest.py)."""

import atexit
import gc
import multiprocessing
import os
import pickle
import runpy
import socket
import subprocess
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import briefly
import torch

from weft import cli
from weft.errors import ClusterError
from weft.exchange import World

# A process that has everything imported, and is forked for each worker: starting one anew costs three seconds.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "weft.training",
        "weft.api",
        "weft.cluster.local",
        "weft.planner.model_cost",
        "torch_geometric.nn",
        "torch.distributed.run",
    ]
)


def start(size, work, *args, hosts=None, transport="sockets", timeout=60.0, tls=None):
    """What `work(world, *args)` gives in each of `size` processes; see the fixture `processes`."""
    port = free_port()
    pipes, workers, job = [], [], pickle.dumps((work, args))  # not by shared memory, which ends with the sender
    for rank in range(size):
        mine, theirs = _FORKS.Pipe(duplex=False)
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "GROUP_RANK": str(hosts[rank] if hosts else 0)}
        environment = place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if tls is not None:
            environment |= {"WEFT_SECRET": "a secret of these tests"}
        given = (theirs, environment, transport, timeout, tls, job)
        workers.append(_FORKS.Process(target=_run, args=given, daemon=True))
        workers[-1].start()
        theirs.close()
        pipes.append(mine)
    outcomes = [_outcome(pipe) for pipe in pipes]
    for worker in workers:
        worker.join()
    failures = [(error, told) for error, told, _ in outcomes if error is not None]
    if failures:  # a worker that lost another one only says so
        error, told = min(failures, key=lambda failure: isinstance(failure[0], ClusterError))
        raise error from RuntimeError(told)
    return [result for _, _, result in outcomes]


def _run(pipe, environment, transport, timeout, tls, job):
    os.environ |= environment
    gc.freeze()  # what was imported: looking through it for garbage takes a quarter of a second, and a copy of it
    torch.set_num_threads(1)
    try:
        work, args = pickle.loads(job)
        world = World.join(timeout, transport, tls=tls)
        result = work(world, *args)
        world.leave()
        outcome = None, "", result
    except Exception as error:
        outcome = error, traceback.format_exc(), None
    pipe.send_bytes(pickle.dumps(outcome))


def _outcome(pipe):
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return RuntimeError("a worker was killed"), "", None


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children_of(pid):
    """The processes that one has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return sorted(map(int, file.read().split()))


class Running:
    """A program that was started, as subprocess.Popen has it: `weft ...`, `python SCRIPT ...` or `torchrun ... SCRIPT ...`.

    It is forked from the process that has all imported, and so are the workers of torchrun. Its standard streams, folder
    and environment are its own. `prepare`: called there before.
    """

    def __init__(self, words, environment=None, prepare=None):
        pipes = [_FORKS.Pipe(duplex=False) for _ in range(2)]
        given = os.environ if environment is None else environment
        self.args, theirs = [str(word) for word in words], [pipe for _, pipe in pipes]
        self._process = _FORKS.Process(target=_program, args=(theirs, self.args, dict(given), os.getcwd(), prepare))
        self._process.start()
        for pipe in theirs:
            pipe.close()
        self.pid, self._kept = self._process.pid, [pipe for pipe, _ in pipes]
        self.stdout, self.stderr = (os.fdopen(pipe.fileno(), closefd=False) for pipe in self._kept)

    @property
    def returncode(self):
        return self._process.exitcode

    def communicate(self, timeout=None):
        """What else it says until it ends, within so many seconds."""
        with ThreadPoolExecutor(2) as pool:
            said = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self._process.join(timeout)
            late = self._process.is_alive()
            if late:
                self.kill()
            told = tuple(one.result() for one in said)
        if late:
            raise subprocess.TimeoutExpired(self.args, timeout, *told)
        return told

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self._process.kill()


def ran(words, environment=None, timeout=200, prepare=None):
    """What a program did once it has ended: its returncode, stdout and stderr."""
    run = Running(words, environment, prepare)
    told = run.communicate(timeout)
    return subprocess.CompletedProcess(run.args, run.returncode, *told)


def anew(words, environment=None, timeout=200):
    """The same as a user starts it, with nothing imported before; for the slow suite."""
    module = {"weft": ["-m", "weft.cli"], "python": [], "torchrun": ["-m", "torch.distributed.run"]}[words[0]]
    whole = [sys.executable, *module, *map(str, words[1:])]
    return subprocess.run(whole, capture_output=True, text=True, timeout=timeout, env=environment)


def command(*arguments, check=False, **environment):
    """What `weft ARGUMENTS` did; see the fixture `weft`."""
    done = ran(["weft", *arguments], os.environ | environment)
    assert done.returncode == 0 or not check, done.stderr
    return done


def brief_probe():
    """Machines are measured as for a run that begins: how exactly doesn't matter."""
    from weft.planner import probe

    probe._WHOLE, probe._AFTER = probe._BRIEF, 0.05


def small_rehearsal():
    """What `weft probe` trains is small: its figures don't matter, but all is measured."""
    from weft.training import rehearsal

    brief_probe()
    rehearsal._VERTICES, rehearsal._EDGES, rehearsal._TRAIN = 5_000, 80_000, 0.12


def _program(pipes, words, environment, folder, prepare):
    os.chdir(folder)
    os.environ.clear()
    os.environ |= environment
    tempfile.tempdir = None  # to be found again, from the environment
    gc.freeze()
    torch.set_num_threads(1)
    for target, pipe in enumerate(pipes, 1):
        os.dup2(pipe.fileno(), target)
        pipe.close()
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
    code = 1
    try:
        briefly.time_layers()
        if prepare is not None:
            prepare()
        code = {"weft": cli.main, "python": _python, "torchrun": _torchrun}[words[0]](words[1:])
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.exit(int(bool(code)) if not isinstance(code, int) else code)


def _python(words):
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


def _torchrun(words):
    """torchrun, whose workers are forked from it: it has everything imported."""
    from torch.distributed import run

    if "-m" in words:
        number = words.index("-m")
        assert words[number + 1] == "weft.cli"
        words = [*words[:number], str(Path(__file__).with_name("as_script.py")), *words[number + 2 :]]
    run.main(["--start-method", "fork", "--run-path", *words])
