"""The process of a sandbox's host that has everything imported, and is forked for each worker: a run starts in no time.

It reads requests, one JSON object a line, and says which process it started and how each ended. Run as a script.
"""

import contextlib
import faulthandler
import json
import os
import select
import signal
import sys


def serve() -> None:
    """Until there are no more requests."""
    import torch_geometric.nn  # noqa: F401

    import weft.api
    import weft.cluster.local
    import weft.commands.train
    import weft.training  # noqa: F401

    _tell({"ready": os.getpid()})
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0.02)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            request = json.loads(line)
            child = os.fork()
            if not child:
                _work(request)
            _tell({"started": child, "name": request["name"]})
        while _reap():
            pass


def _reap() -> bool:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    if pid:
        _tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})
    return bool(pid)


def _tell(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _work(request: dict) -> None:
    """Be the worker: never returns."""
    code = 70
    try:
        os.setsid()
        for name, value in request["environment"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, file in ((1, request["out"]), (2, request["err"])):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR2)  # of one that hangs: where
        import tempfile

        tempfile.tempdir = None  # to be found again, from the environment
        for change in request["changes"]:
            CHANGES[change]()
        from weft.cli import main

        sys.stdout, sys.stderr = (os.fdopen(file, "w", buffering=1, closefd=False) for file in (1, 2))
        code = main(request["argv"])
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def switch_plans() -> None:
    """Have the run change its plan after the second epoch, as a watch does that has found a faster one."""
    import weft.training
    from weft.plan import plan_of
    from weft.planner import Prediction
    from weft.training.watch import Change, Watch

    make = weft.training.trainer_for

    class Switch(Watch):
        """A watch that has made up its mind."""

        def __init__(self, trainer) -> None:
            super().__init__(Prediction.none("", trainer.parallel, ""), lambda left: None)
            self._trainer = trainer

        def look(self, epoch, steps, batches, comm, rest):
            present, full = self._trainer.parallel, self._trainer.settings.sampling.full_graph
            other = plan_of("halo" if full else "gdp", len(present.layers), {})
            if epoch != 2 or other == present:
                return None
            rest()
            return Change(other, "from now on another plan")

    def trainer_for(*given, **named):
        trainer = make(*given, **named)
        trainer.watch = Switch(trainer)
        return trainer

    weft.training.trainer_for = trainer_for


def keep_cluster() -> None:
    """In place of the command, write what would have been measured of the cluster, so that runs plan at once."""
    import time

    import weft.cli
    from weft.exchange import World
    from weft.planner import NEVER, Cluster, Host, KeptCluster
    from weft.planner.cluster import KINDS

    def main(argv):
        work = dict.fromkeys(KINDS, 1e-8) | {"busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}
        world = World.join(60)
        rate = NEVER if len(world.workers) == 1 else 125e6
        hosts = tuple(Host(f"h{n}", rate, 4e9, each, 1.0, 1.0) for n, each in enumerate(world.workers, 1))
        cluster = Cluster(hosts, 1e-3 * (rate != NEVER), 1e-3, 1e9, work, measured=float(int(time.time())))
        KeptCluster(world, print).write(cluster)
        world.leave()
        return 0

    weft.cli.main = main


CHANGES = {"switch": switch_plans, "keep": keep_cluster}

if __name__ == "__main__":
    serve()
