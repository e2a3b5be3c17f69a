"""Ray: an actor on each host, in a placement group, that starts the host's workers and tells how they fare.

Not by Ray Train. It trains in a thread of a Ray worker, where no signal arrives that lets the batch in hand be finished;
it starts each worker anew, where a host's are forked here from one process that has all imported; and what it restarts
with fewer workers need not divide the batch. So its part, reserving processors and telling of lost nodes, is Ray's core's.
"""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

import weft.graph
from weft.cluster import ray_host
from weft.cluster.agent import LOST
from weft.cluster.crew import GRACE, LOST_OTHERS, Errors, Lines
from weft.cluster.launcher import Launcher, Request, started_again
from weft.cluster.ray_joining import joined_ray, nodes_of, ray_errors
from weft.errors import ClusterError, ConfigError, reason_of
from weft.exchange import new_secret
from weft.place import places
from weft.stopping import SIGNALS, Interrupted, listening

_RESERVE, _ANSWER = 6.0, 15.0  # seconds in which Ray must give processors, and what runs on them answer
_REPLACE = 60.0  # seconds in which Ray must give others: that a node is cut off it finds out in half of that
_AGAIN = 4.0  # seconds between looks at the nodes meanwhile
_LOOK = 0.5  # seconds between looks for signals, and after which a host says that nothing has happened
_HURRY = 3.0  # seconds in which workers must end once a second signal was sent
_TOLD = "weft: "
_EARLY = "a node of Ray's was lost before training began ({}): try again"

T = TypeVar("T")


class Ray(Launcher):
    """Hosts of a Ray cluster that runs."""

    name = "ray"
    help = (
        "hosts of a Ray cluster; options: address (default RAY_ADDRESS, or this node's cluster), cpus and gpus (of each "
        "worker)"
    )
    options = ("address", "cpus", "gpus")
    restarts = chooses_hosts = True

    def check(self, request: Request) -> None:
        """Refuse what is no number of processors, or of GPUs."""
        super().check(request)
        _cpus(request)
        _gpus(request)

    def shown(self, request: Request) -> str:
        """What Ray is asked for, and a line for each worker."""
        words = shlex.join(["weft", *request.arguments])
        counts = [request.workers] * request.hosts
        gpus, bundles = _gpus(request), [_bundle(count, _cpus(request), _gpus(request)) for count in counts]
        more = " (and a GPU for each worker, if the nodes have as many)" if gpus is None else ""
        lines = [f"placement group: {bundles}, STRICT_SPREAD{more}"]
        run = {"MASTER_ADDR": "HOST0", "MASTER_PORT": "PORT", "WEFT_LAUNCHER": "ray"}
        for host, workers in enumerate(places(counts, run)):
            lines += [f"on host {host}: {' '.join(f'{k}={v}' for k, v in place.items())} {words}" for place in workers]
        return "\n".join(lines)

    def submit(self, request: Request) -> int:
        """Run the workers, and tell how it goes; the exit code. Nothing stays allocated."""
        request.check()
        with joined_ray(request.options.get("address")) as ray:
            return _run(ray, request, _Job())

    def call(self, request: Request, work: Callable[[dict[str, str]], T]) -> T:
        """As in `submit`. What is called and what it gives travel as Ray carries objects."""
        self.check(request)
        with joined_ray(request.options.get("address")) as ray:
            try:
                pickled = ray.cloudpickle.dumps(work)
            except Exception as error:
                raise ConfigError(
                    f"what workers are sent can't be pickled ({reason_of(error)}): a model, an objective, a loss or a part "
                    f"that the script has registered uses it; make it where it is used"
                ) from error
            job = _Job("weft.cluster.called", ray.put(pickled))  # once, however many hosts fetch it
            del pickled
            code = _run(ray, request, job)
            if code - 128 in SIGNALS:  # as where a script trains by itself
                raise Interrupted(code - 128, job.reason)
            if code:
                raise ClusterError(job.reason or f"the workers on Ray ended with code {code}: see what they said above")
            return ray.cloudpickle.loads(job.result)


@dataclass
class _Job:
    """What workers run, and what has become of it."""

    module: str = "weft.cli"
    called: Any = b""  # what a script has sent along: Ray's reference to it
    result: bytes = b""
    reason: str = ""  # the last of the workers' errors


def _run(ray: ModuleType, request: Request, job: _Job) -> int:
    cluster = _Cluster(ray, _cpus(request), _gpus(request) is not False, None if request.anywhere else request.hosts)
    if _gpus(request) is None and (lack := cluster.lacks(request)):
        cluster = replace(cluster, gpus=False)
        if any(node["Resources"].get("GPU") for node in nodes_of(ray)):
            print(f"weft: Ray's nodes {lack} a GPU for each worker, so all compute on processors", file=sys.stderr)
    cluster.check_hosts(request.workers)
    many = replace(request, workers=request.workers * request.hosts, hosts=1, anywhere=True)
    return started_again(many, partial(_start, cluster, job))


@dataclass(frozen=True)
class _Cluster:
    """The Ray cluster that this process has joined."""

    ray: ModuleType
    cpus: float  # of each worker
    gpus: bool  # has each worker one?
    hosts: int | None  # how many are used at most; None: as many as there are

    def room(self) -> list[tuple[str, int]]:
        """Each node's address, and how many workers it has the processors for, and the GPUs."""
        takes = _bundle(1, self.cpus, self.gpus)
        return [
            (one["NodeManagerAddress"], min(int(one["Resources"].get(name, 0.0) / of) for name, of in takes.items()))
            for one in nodes_of(self.ray)
        ]

    def needs(self, workers: int) -> str:
        """What so many workers take, in words."""
        gpus = f" and {workers} GPU{'s' if workers > 1 else ''}" if self.gpus else ""
        return f"{workers * self.cpus:g} processors{gpus}"

    @property
    def _without_gpus(self) -> str:
        return " (--device cpu: for no GPUs)" if self.gpus else ""

    def lacks(self, request: Request) -> str:
        """How nodes are short of room for all workers, in a few words: there is too little, or others use it."""
        from ray.util import remove_placement_group

        workers = request.workers * request.hosts
        try:
            self.check_hosts(request.workers)
            self.counts(workers)
        except ClusterError:
            return "lack"
        try:
            _, group = self._reserve(workers, time.monotonic() + _RESERVE)
        except ClusterError:
            return "do not give"
        remove_placement_group(group)
        return ""

    def check_hosts(self, workers: int) -> None:
        """Refuse more hosts than there are nodes for so many workers each, if hosts are counted."""
        room = self.room()
        fit = sum(count >= workers for _, count in room)
        if self.hosts is not None and fit < self.hosts:
            raise ClusterError(
                f"{self.hosts} hosts with {self.needs(workers)} each are needed, but of Ray's nodes {fit} have as many "
                f"({self._said(room)}): start more nodes, or lower --hosts, --workers-per-host or --option cpus"
                f"{self._without_gpus}"
            )

    def counts(self, workers: int) -> list[int]:
        """How many workers each host gets: as evenly as the nodes' room allows."""
        room = self.room()
        free = sorted((count for _, count in room), reverse=True)[: self.hosts]
        if sum(free) < workers:
            raise ClusterError(
                f"{workers} workers with {self.needs(1)} each are more than Ray's nodes have room for "
                f"({self._said(room)}): start more nodes, or fewer workers{self._without_gpus}"
            )
        return evenly(free, workers)

    def _said(self, room: Sequence[tuple[str, int]]) -> str:
        return ", ".join(f"{node}: {count} workers" for node, count in room)

    @contextmanager
    def reserved(self, workers: int, patience: float) -> Iterator[tuple[list[int], list[Any]]]:
        """How many workers each host gets, and an actor on each. None is left at the end, nor what runs below it."""
        from ray.util import remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        counts, group = self._reserve(workers, time.monotonic() + patience)
        actors: list[Any] = []
        try:
            self.ray.cloudpickle.register_pickle_by_value(ray_host)
            for index, count in enumerate(counts):
                where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
                # Of GPUs that it counts Ray tells the actor which are its own, in CUDA_VISIBLE_DEVICES; else it hides all.
                options = {"num_cpus": count * self.cpus, "num_gpus": count * self.gpus, "scheduling_strategy": where}
                actors.append(self.ray.remote(ray_host.HostActor).options(**options).remote())
            yield counts, actors
        finally:
            for actor in actors:
                with suppress(Exception):  # its node is gone, or all of Ray is
                    self.ray.kill(actor)
            with suppress(Exception):
                remove_placement_group(group)

    def _reserve(self, workers: int, end: float) -> tuple[list[int], Any]:
        """A placement group, on the nodes that there are by then: that one is lost Ray may find out only now."""
        from ray.util import placement_group, remove_placement_group

        while True:
            counts = self.counts(workers)
            bundles = [_bundle(count, self.cpus, self.gpus) for count in counts]
            group = placement_group(bundles, strategy="STRICT_SPREAD")
            try:
                if group.wait(_AGAIN):
                    return counts, group
            except BaseException:
                remove_placement_group(group)
                raise
            remove_placement_group(group)
            if time.monotonic() > end:
                raise ClusterError(
                    f"Ray does not give {self.needs(workers)} on {len(counts)} nodes: others use them (see `ray status`); "
                    f"wait for them, or ask for less{self._without_gpus}"
                )

    def answers(self, calls: Sequence[Any]) -> list[Any]:
        """What actors answer at once; one that does not in time, or is gone, is an error."""
        with ray_errors(self.ray, _EARLY):
            try:
                return self.ray.get(list(calls), timeout=_ANSWER)
            except self.ray.exceptions.GetTimeoutError:
                raise ClusterError(
                    f"Ray's nodes did not start within {_ANSWER:g} s what was asked of them: look at `ray status`"
                ) from None

    def carried(self, calls: Sequence[Any], lost: str) -> list[Any]:
        """What calls give that carry a model there or back, for as long as that takes; `lost`: what one that is gone is."""
        given, left = dict[Any, Any](), list(calls)
        with ray_errors(self.ray, lost):
            while left:
                done, left = self.ray.wait(left, timeout=_LOOK)
                given.update(zip(done, self.ray.get(done), strict=True))
        return [given[call] for call in calls]


def evenly(room: Sequence[int], workers: int) -> list[int]:
    """So many workers on hosts with room for so many each: every host gets its turn, as long as it has room."""
    counts = [0] * len(room)
    for _ in range(workers):
        least = min(range(len(room)), key=lambda host: (counts[host] >= room[host], counts[host]))
        counts[least] += 1
    return [count for count in counts if count]


def _cpus(request: Request) -> float:
    text = request.option("cpus", "1")
    try:
        cpus = float(text)
    except ValueError:
        cpus = 0.0
    if not 0 < cpus < float("inf"):
        raise ConfigError(
            f"cpus = {text!r} is no number of processors for a worker: give one above 0, such as 4 or 0.5"
        )
    return cpus


def _gpus(request: Request) -> bool | None:
    """Has each worker a GPU, the one that it computes on? None: if Ray's nodes have as many."""
    text = request.options.get("gpus")
    if text is None:
        return {"cpu": False, "cuda": True}.get(request.device)
    if text not in ("0", "1"):
        raise ConfigError(f"gpus = {text!r} is not possible: a worker computes on one GPU, so give 1, or 0 for none")
    if (text, request.device) in (("1", "cpu"), ("0", "cuda")):
        raise ConfigError(f"gpus = {text} does not go with --device {request.device}: drop one of them")
    return text == "1"


def _bundle(workers: int, cpus: float, gpus: bool | None) -> dict[str, float]:
    return {"CPU": workers * cpus} | ({"GPU": float(workers)} if gpus else {})


def _start(cluster: _Cluster, job: _Job, request: Request, last: bool) -> tuple[int, int | None]:
    """Start the workers once; the exit code and, if any were lost, for how many there is room now."""
    with cluster.reserved(request.workers, _REPLACE if request.changes else _RESERVE) as (counts, actors):
        nodes = _check_nodes(cluster, actors, request.graph)
        master = nodes[0] if len(nodes) > 1 else "127.0.0.1"  # one host's workers listen to nobody else
        (port,) = cluster.answers([actors[0].free_port.remote(master, request.ports)])
        run = {"MASTER_ADDR": master, "MASTER_PORT": str(port), "WEFT_SECRET": new_secret(), "WEFT_LAUNCHER": "ray"}
        grace = GRACE if last else 0.0
        arguments = [json.dumps(request.changes)] if job.called else [*request.arguments]
        told = {"module": job.module, "arguments": arguments, "grace": grace}
        hosts = [Running(*one) for one in zip(actors, nodes, places(counts, run), strict=True)]
        starts = [(host.actor.start, told | {"places": host.places}) for host in hosts]
        cluster.carried([start.remote(os.getcwd(), to_host, job.called) for start, to_host in starts], _EARLY)
        running = RunningHosts(cluster.ray, hosts)
        code, lost = running.wait(grace)
        job.reason = running.reason
        if job.called and not code:
            (job.result,) = cluster.carried([actors[0].result.remote()], _result_lost(hosts[0]))
    left = sum(count for node, count in cluster.room() if node not in running.gone)
    return code, min(request.workers, left) if lost else None


def _result_lost(host: "Running") -> str:
    return (
        f"training is done, but node {host.node} was lost before the model was here ({{}}): where checkpoints are kept, "
        f"resume = True goes on from the last one"
    )


def _check_nodes(cluster: _Cluster, actors: Sequence[Any], graph: Path | None) -> list[str]:
    """The nodes' addresses, if all is there as it is here."""
    folder, manifest = os.getcwd(), "" if graph is None else str((graph / weft.graph.MANIFEST).absolute())
    here, nodes = ray_host.facts(folder, manifest), []
    remedies = {
        "Weft": f"install weft-gnn=={here['Weft']} there",
        "PyTorch": f"install torch=={here['PyTorch']} there",
        f"folder {folder}": "run this in a folder that all nodes have",
        f"graph {graph}": "let all nodes see it at this path, or copy it there",
    }
    for node, there in cluster.answers([actor.look_around.remote(folder, manifest) for actor in actors]):
        for (name, remedy), is_there, is_here in zip(remedies.items(), there.values(), here.values(), strict=True):
            if is_there != is_here:
                raise ClusterError(f"node {node} does not fit: {name} is {is_there} there, here {is_here}; {remedy}")
        nodes.append(node)
    return nodes


@dataclass
class Running:
    """A host whose workers run."""

    actor: Any
    node: str
    places: list[dict[str, str]]
    code: int | None = None  # how they have ended
    lines: dict[str, Lines] = field(default_factory=lambda: {"stdout": Lines(), "stderr": Lines()})

    @property
    def ranks(self) -> list[str]:
        """Its workers."""
        return [place["RANK"] for place in self.places]

    @property
    def title(self) -> str:
        """Its name and its workers."""
        ranks = dict.fromkeys((self.ranks[0], self.ranks[-1]))
        return f"node {self.node} (worker{'s' * (len(ranks) - 1)} {' to '.join(ranks)})"


class RunningHosts:
    """Tells what workers say, and passes signals on to them, until all have ended."""

    def __init__(self, ray: ModuleType, hosts: Sequence[Running]) -> None:
        self._ray, self._hosts, self._errors = ray, hosts, Errors()
        self.reason = ""  # the last error that workers told
        self.gone: set[str] = set()  # nodes that do not answer
        self._signals: list[int] = []  # that came, and how many of them were passed on
        self._passed_on = 0

    def wait(self, grace: float) -> tuple[int, bool]:
        """The first failure's code, and whether workers were lost. The others then get so many seconds to end."""
        with listening(self._note):
            return self._wait(grace)

    def _wait(self, grace: float) -> tuple[int, bool]:
        first, end = 0, float("inf")
        calls = {host.actor.look.remote(_LOOK): host for host in self._hosts}
        while calls and time.monotonic() < end:
            for call in self._ray.wait(list(calls), timeout=_LOOK)[0]:
                host = calls.pop(call)
                self._look(host, call)
                if host.code is None:
                    calls[host.actor.look.remote(_LOOK)] = host
                elif host.code and not first:
                    first = host.code
                    end = time.monotonic() + (grace if first == LOST else GRACE)
            self._errors.late(time.monotonic(), self._ended())
            if self._pass_on() and len(self._signals) > 1:  # the first lets the batch in hand be finished
                end = min(end, time.monotonic() + _HURRY)
        self._errors.late(float("inf"), self._ended())
        hung = [host for host in self._hosts if host.code is None]  # though others have given up
        for host in hung if first != LOST and not self._signals else ():
            print(f"weft: {host.title} does not answer", file=sys.stderr, flush=True)
            self.gone.add(host.node)
        codes = {host.code for host in self._hosts if host.code != 0}
        lost = bool(hung) or LOST in codes or codes == {LOST_OTHERS}
        if hung and self._signals:
            return 128 + self._signals[0], False
        return 2 if first == LOST_OTHERS else first, lost and not self._signals

    def _look(self, host: Running, call: Any) -> None:
        try:
            said, host.code = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            self._lose(host, reason_of(error))
            self.gone.add(host.node)
            return
        for stream, text in said:
            lines = host.lines[stream].read(text)
            if stream == "stderr":
                self._errors.tell(lines, host.ranks)
                told = [line for line in lines if line.startswith(_TOLD)]
                self.reason = told[-1].removeprefix(_TOLD).strip() if told else self.reason
            else:
                sys.stdout.write("".join(lines))
                sys.stdout.flush()
        if host.code is not None and host.code < 0:
            self._lose(host, f"what starts them was killed by {signal.Signals(-host.code).name}")

    def _ended(self) -> list[str]:
        """The workers of hosts that told of a mistake, or were stopped: not of those that were lost."""
        return [rank for host in self._hosts if host.code and host.code != LOST for rank in host.ranks]

    def _lose(self, host: Running, reason: str) -> None:
        host.code = LOST
        print(f"weft: {host.title} was lost: {reason}", file=sys.stderr, flush=True)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._signals.append(signum)

    def _pass_on(self) -> bool:
        """Pass on the signals that have come since. Were there any?"""
        came = self._signals[self._passed_on :]
        self._passed_on += len(came)
        for host, signum in product(self._hosts, came):
            if host.code is None:
                host.actor.send.remote(signum)
        return bool(came)
