"""Processes for tests: workers, and whole commands. Tests get these as fixtures (conftest.py)."""

import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import traceback

import torch

from weft import cli
from weft.errors import ClusterError
from weft.exchange import World

# A process that has everything imported, and is forked for each worker: starting one anew costs three seconds.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["weft.training", "weft.api", "weft.cluster.local", "torch_geometric.nn"])


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


def command(*arguments, check=False, **environment):
    """What `weft ARGUMENTS` did; see the fixture `weft`."""
    mine, theirs = _FORKS.Pipe(duplex=False)
    arguments = [str(argument) for argument in arguments]
    process = _FORKS.Process(target=_command, args=(theirs, arguments, environment, os.getcwd()))
    process.start()
    theirs.close()
    code, *said = mine.recv()
    process.join()
    done = subprocess.CompletedProcess(["weft", *arguments], code, *said)
    assert code == 0 or not check, done.stderr
    return done


def _command(pipe, arguments, environment, folder):
    os.chdir(folder)
    os.environ |= environment
    tempfile.tempdir = None  # to be found again, from the environment
    torch.set_num_threads(1)
    files = [os.memfd_create(name) for name in ("out", "errors")]
    for target, file in enumerate(files, 1):
        os.dup2(file, target)
    code = _main(arguments)
    pipe.send([code, *(os.pread(file, os.fstat(file).st_size, 0).decode() for file in files)])


def _main(arguments):
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    try:
        return cli.main(arguments)
    except SystemExit as error:
        return error.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
