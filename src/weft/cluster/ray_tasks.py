"""Tasks on the nodes of a Ray cluster: functions of a folder that all nodes see, which leave their results there.

By Ray's plain tasks and not by Ray Data. Ray Data shuffles through the object store: how much of it a process holds is
up to its heuristics, rows of a group come in no order that is promised, and a driver that has stopped begins anew. Here a
task holds its piece, files keep the order, and what is done stays done.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import weft.graph
from weft.cluster import ray_host
from weft.cluster.ray_joining import joined_ray, nodes_of, ray_errors
from weft.errors import ClusterError, reason_of
from weft.graph import TaskResult

RayTask = Callable[[Path, str, str, int], TaskResult]  # a folder, a name of the run, a stage, a number

_ANSWER = 60.0  # seconds in which nodes must say what they see: of one that is lost Ray tells in half of that
_LOOK = 1.0  # seconds between looks at what is done, in which Ctrl-C is noticed
_TRIES = 3  # of a task whose process or node is lost
_PROCESS = 400 << 20  # bytes that a process takes before it holds anything
_AHEAD = 2  # tasks that are told to Ray for each that runs


class RayTasks:
    """Runs tasks, as many at a time as there are processors and memory for, and those of lost nodes again."""

    def __init__(self, ray: ModuleType, memory: int, task: RayTask) -> None:
        """`memory`: bytes that a task may hold."""
        self._ray, self._task = ray, task
        self._memory = memory + _PROCESS
        self._room = self._at_a_time()

    def __call__(self, folder: Path, run: str, stage: str, indices: Sequence[int]) -> Iterator[tuple[int, TaskResult]]:
        """Run the tasks of a stage, in any order. None is left at the end, however that comes."""
        task = self._ray.remote(self._task).options(
            num_cpus=1, memory=self._memory, max_retries=_TRIES, scheduling_strategy="SPREAD"
        )
        left, running = iter(indices), dict[Any, int]()
        try:
            while True:
                for index in islice(left, _AHEAD * self._room - len(running)):
                    running[task.remote(folder, run, stage, index)] = index
                if not running:
                    return
                for call in self._ray.wait(list(running), timeout=_LOOK)[0]:
                    yield running.pop(call), self._result(call)
        finally:
            for call in running:
                with suppress(Exception):  # it has ended, or all of Ray is gone
                    self._ray.cancel(call, force=True)

    def _result(self, call: Any) -> TaskResult:
        lost = f"a task was lost {_TRIES + 1} times ({{}}): look at `ray status`; the same command goes on"
        with ray_errors(self._ray, lost):
            try:
                return dict(self._ray.get(call))
            except self._ray.exceptions.OutOfMemoryError as error:
                raise ClusterError(
                    f"a node had no memory left for a task ({reason_of(error)}): lower --memory, or start nodes "
                    f"with fewer processors"
                ) from None

    def _at_a_time(self) -> int:
        """How many tasks Ray's nodes have room for."""
        nodes = [node["Resources"] for node in nodes_of(self._ray)]
        room = [min(one.get("CPU", 0.0), one.get("memory", 0.0) // self._memory) for one in nodes]
        if sum(map(int, room)) < 1:
            raise ClusterError(
                f"none of Ray's {len(nodes)} nodes has a processor and {self._memory >> 20} MiB for a process: lower "
                f"--memory, or start nodes with more"
            )
        if self._ray.available_resources().get("CPU", 0.0) < 1:
            raise ClusterError(
                "all processors of Ray's nodes are in use (see `ray status`): wait for them, or start more nodes"
            )
        return sum(map(int, room))


@contextmanager
def tasks_on_ray(out: Path, memory: int, task: RayTask = weft.graph.run_task) -> Iterator[RayTasks]:
    """Tasks on a Ray cluster whose nodes all fit, and see the folder that `out` is to be in."""
    with joined_ray() as ray:
        _check_nodes(ray, out.absolute().parent)
        yield RayTasks(ray, memory, task)


def _check_nodes(ray: ModuleType, folder: Path) -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(ray_host)
    token = weft.graph.hidden_beside(folder / "weft")
    with weft.graph.named_errors(token, "writing"):
        folder.mkdir(parents=True, exist_ok=True)
        weft.graph.remove_leftovers(folder / "weft")
        token.write_text(secrets.token_hex(8))
    try:
        nodes = nodes_of(ray)
        look = ray.remote(ray_host.facts)
        where = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        how = {"num_cpus": 0, "max_retries": 0}
        calls = [look.options(**how, scheduling_strategy=one).remote(str(folder), str(token)) for one in where]
        here = ray_host.facts(str(folder), str(token))
        for node, call in zip(nodes, calls, strict=True):
            _check_node(ray, node["NodeManagerAddress"], call, here, folder)
    finally:
        token.unlink(missing_ok=True)


def _check_node(ray: ModuleType, node: str, call: Any, here: dict[str, str], folder: Path) -> None:
    try:
        there = ray.get(call, timeout=_ANSWER)
    except ray.exceptions.RayError as error:
        raise ClusterError(f"node {node} does not answer ({reason_of(error)}): look at `ray status`") from None
    if there["Weft"] != here["Weft"]:
        raise ClusterError(
            f"node {node} does not fit: Weft is {there['Weft']} there, here {here['Weft']}; install "
            f"weft-gnn=={here['Weft']} there"
        )
    if there["graph"] != here["graph"]:
        raise ClusterError(
            f"node {node} does not see {folder} as it is here: write to a folder in a file system that all nodes share"
        )
