"""The few calls of Ray that its launcher makes, answered within this process: its actors are plain objects."""

import sys
import types
from typing import ClassVar


class RayError(Exception):
    """As Ray's."""


class RayTaskError(RayError):
    """An actor's method has raised `cause`."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError):
    """An answer has not come in time."""


class Handle:
    """An actor: `handle.method.remote(...)` is called when its answer is waited for."""

    def __init__(self, made, node):
        self.made, self.node, self.killed = made, node, False

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=lambda *args: Call(self, name, args))


class Reference:
    """What was put into Ray; methods are called with what it stands for."""

    def __init__(self, thing):
        self.thing = thing


class Call:
    def __init__(self, handle, name, args):
        self.handle, self.name, self.looks = handle, name, FakeRay.slow.get(name, 0)
        self.args = [one.thing if isinstance(one, Reference) else one for one in args]
        if name == "send":  # nobody waits for it
            self()

    def __call__(self):
        if self.handle.killed or self.handle.node in FakeRay.lost:
            raise RayError(f"The actor died: its node {self.handle.node} has died.\nmore")
        FakeRay.node = self.handle.node
        try:
            return getattr(self.handle.made, self.name)(*self.args)
        except RayError:
            raise
        except Exception as error:
            raise RayTaskError(error) from error


class FakeRay(types.ModuleType):
    """The module `ray`: nodes by address with their processors."""

    lost: ClassVar[set] = set()  # nodes that are gone
    slow: ClassVar[dict] = {}  # methods, and how many looks for its answer are in vain
    node = None  # whose actor is running

    def __init__(self, nodes, gives=True, gpus=0.0):
        super().__init__("ray")
        self.given, self.actors, self.removed, self.joined = nodes, [], [], []
        self.gives = lambda bundles: gives
        self.gpus = gpus  # of each node
        self.exceptions = types.SimpleNamespace(
            RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError
        )
        self.cloudpickle = types.SimpleNamespace(register_pickle_by_value=lambda module: None)
        self.asked, self.bundles = 0, []  # how often for a placement group, and for what the last time
        FakeRay.lost, FakeRay.slow, FakeRay.node, self.put_in = set(), {}, None, []

    def modules(self):
        """What `import` finds."""
        util, strategies = types.ModuleType("ray.util"), types.ModuleType("ray.util.scheduling_strategies")
        util.placement_group, util.remove_placement_group = self._group, self.removed.append
        util.get_node_ip_address = lambda: FakeRay.node
        strategies.PlacementGroupSchedulingStrategy = lambda group, placement_group_bundle_index: (
            placement_group_bundle_index
        )
        return {"ray": self, "ray.util": util, "ray.util.scheduling_strategies": strategies}

    def is_initialized(self):
        return False

    def init(self, **how):
        self.joined.append(how["address"])

    def shutdown(self):
        self.joined.pop()

    def nodes(self):
        more = {"GPU": self.gpus} if self.gpus else {}
        return [
            {
                "Alive": node not in FakeRay.lost,
                "NodeManagerAddress": node,
                "Resources": more | ({"CPU": cpus} if cpus else {}),
            }
            for node, cpus in self.given.items()
        ]

    def _group(self, bundles, strategy):
        assert strategy == "STRICT_SPREAD"
        self.asked, self.bundles = self.asked + 1, bundles
        free = sorted((n["NodeManagerAddress"] for n in self.nodes() if n["Alive"]), key=lambda n: -self.given[n])
        self.free = [node for node in free if self.given[node]]
        return types.SimpleNamespace(wait=lambda seconds: self.gives(bundles), bundles=bundles)

    def remote(self, kind):
        def options(scheduling_strategy, num_cpus, num_gpus):
            def make():
                bundle = self.bundles[scheduling_strategy]
                assert (num_cpus, num_gpus) == (bundle["CPU"], bundle.get("GPU", 0))
                self.actors.append(Handle(kind(), self.free[scheduling_strategy]))
                return self.actors[-1]

            return types.SimpleNamespace(remote=make)

        return types.SimpleNamespace(options=options)

    def put(self, thing):
        self.put_in.append(thing)
        return Reference(thing)

    def get(self, calls, timeout=None):
        if timeout is not None and any(call.looks for call in calls):
            raise GetTimeoutError
        return [call() for call in calls] if isinstance(calls, list) else calls()

    def wait(self, calls, timeout):
        if calls[0].looks:
            calls[0].looks -= 1
            return [], calls
        return calls[:1], calls[1:]

    def kill(self, actor):
        actor.killed = True
        agent = getattr(actor.made, "_agent", None)
        if agent is not None:
            agent.kill()
            agent.wait()


def installed(monkeypatch, nodes, gives=True, gpus=0.0):
    """Put a fake in Ray's place."""
    fake = FakeRay(nodes, gives, gpus)
    for name, module in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake
