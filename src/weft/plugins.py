"""Parts that others can add, by name: placements, convolutions, samplers, partition methods, objectives,
launchers.

Each kind has a `Door`. What comes with Weft is listed here as "module:attribute" and imported when it is first used. What
others write is a class of their own, derived from the kind's base class, and is added by `weft.register` or by an entry
point of the group `weft.plugins`, which names the class, or a module that registers its classes. Entry points are loaded
once, when a name is not known or all names are listed. `docs/extending.md` has an example of each kind, and
`docs/clusters.md` of launchers.
"""

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from weft.config import nearest
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.cluster import Launcher
    from weft.nn import Convolution
    from weft.partition import PartitionMethod
    from weft.placements import Placement
    from weft.sampling import Sampler
    from weft.training import Objective

GROUP = "weft.plugins"

T = TypeVar("T")
_NAME = re.compile(r"\w[\w-]*")


class Door(Generic[T]):
    """The parts of one kind: classes with a name and a line of help, derived from one base class."""

    def __init__(
        self, kind: str, base: str, builtin: Mapping[str, str], named_by: str = "name", taken: Sequence[str] = ()
    ) -> None:
        """`base`, `builtin`: "module:attribute". `named_by`: the attribute that names a part, a word or a class.

        `taken`: names, or collections of names likewise, that mean something else where parts are named.
        """
        self.kind = kind
        self._base, self._named_by, self._taken = base, named_by, taken
        self._builtin = dict(builtin)
        self._added: dict[str, T] = {}

    def get(self, name: str) -> T:
        """The part of this name; an error lists the known ones if there is none."""
        found = self.find(name)
        if found is None:
            raise ConfigError(self._unknown(name))
        return found

    def find(self, named: str | type) -> T | None:
        """The part of this name, or that serves this class; or None."""
        name = named if isinstance(named, str) else class_name(named)
        if name not in self._builtin and name not in self._added:
            load_plugins()
        if name in self._builtin:
            found: T = _resolved(self._builtin[name])
            return found
        return self._added.get(name)

    def builtin(self) -> list[T]:
        """Those that come with Weft; entry points are not loaded."""
        return [resolve_name(where) for where in self._builtin.values()]

    def names(self) -> tuple[str, ...]:
        """All names, those that come with Weft first."""
        load_plugins()
        return (*self._builtin, *self._added)

    def check(self, name: str) -> None:
        """Refuse a name that is not known, without importing the part."""
        if name not in self._builtin and name not in self._added and name not in self.names():
            raise ConfigError(self._unknown(name))

    def help(self) -> dict[str, str]:
        """A line on each part, by name."""
        return {name: getattr(self.get(name), "help", "") for name in self.names()}

    def fits(self, part: object) -> bool:
        """Is this a class of the kind? Its base class has been imported then."""
        module, attribute = self._base.split(":")
        base = getattr(sys.modules.get(module), attribute, None)
        return isinstance(part, type) and isinstance(base, type) and issubclass(part, base)

    def register(self, part: T) -> T:
        """Add a part; twice the same is once, and a class defined anew takes its place."""
        if not self.fits(part):
            raise ConfigError(f"{_title(part)} is no {self.kind}: derive a class from {self._base.replace(':', '.')}")
        if inspect.isabstract(part):
            missing = ", ".join(sorted(part.__abstractmethods__))  # type: ignore[attr-defined]
            raise ConfigError(f"{self.kind} {_title(part)} is not finished: it has no {missing}")
        self._check_attributes(part)
        if (check := getattr(part, "check_class", None)) is not None:
            check()
        name = getattr(part, self._named_by, None)
        if isinstance(name, str) and not _NAME.fullmatch(name):
            raise ConfigError(
                f"{self.kind} {_title(part)} can't be called {name!r}: letters, digits, - and _ make a name"
            )
        name = class_name(name) if isinstance(name, type) else name
        if not (isinstance(name, str) and name):
            raise ConfigError(f"{self.kind} {_title(part)} has no name: set its attribute {self._named_by!r}")
        if self._added.get(name) is part or (name in self._builtin and resolve_name(self._builtin[name]) is part):
            return part
        before = self._added.get(name)
        again = isinstance(before, type) and class_name(before) == _title(part)  # as when a notebook's cell runs again
        if name in self._builtin or (before is not None and not again):
            raise ConfigError(f"there is a {self.kind} {name!r} already: give {_title(part)} another name")
        if any(name in resolve_name(names) if ":" in names else name == names for names in self._taken):
            raise ConfigError(
                f"{name!r} means something else where a {self.kind} is named: give {_title(part)} another name"
            )
        self._added[name] = part
        return part

    def _check_attributes(self, part: T) -> None:
        """Refuse a class that leaves out what its base class declares without a value, or gives it as something else."""
        for name, said in inspect.get_annotations(resolve_name(self._base)).items():
            if get_origin(said) is not ClassVar or name == self._named_by:  # type: ignore[comparison-overlap]
                continue
            if not hasattr(part, name):
                raise ConfigError(f"{self.kind} {_title(part)} is not finished: it has no {name}")
            kind, found = get_args(said)[0], getattr(part, name)
            if get_origin(kind) is frozenset and not isinstance(found, frozenset):
                raise ConfigError(
                    f"{self.kind} {_title(part)}: {name} is a {type(found).__name__}: write frozenset({{...}})"
                )

    def _unknown(self, name: str) -> str:
        known = self.names()
        near = nearest(name, known)
        remedy = f"did you mean {near!r}? Choose" if near else "choose"
        return f"{self.kind} {name!r} is not known: {remedy} from {', '.join(known)}"


_resolved = cache(resolve_name)  # planning asks for placements thousands of times


PLACEMENTS: "Door[type[Placement]]" = Door(
    "placement",
    "weft.placements:Placement",
    {
        "local": "weft.placements.local:Local",
        "pull": "weft.placements.pull:Pull",
        "push": "weft.placements.push:Push",
        "cover": "weft.placements.cover:Cover",
        "columns": "weft.placements.columns:Columns",
    },
    taken=("auto", "weft.plan:NAMED", "weft.plan:OF_GRAPH"),
)
CONVOLUTIONS: "Door[type[Convolution]]" = Door(
    "convolution",
    "weft.nn:Convolution",
    {
        "torch_geometric.nn.conv.sage_conv.SAGEConv": "weft.nn.conv.sage:Sage",
        "torch_geometric.nn.conv.gcn_conv.GCNConv": "weft.nn.conv.gcn:Gcn",
        "torch_geometric.nn.conv.gcn2_conv.GCN2Conv": "weft.nn.conv.gcn2:Gcn2",
        "torch_geometric.nn.conv.sg_conv.SGConv": "weft.nn.conv.sgc:Sgc",
        "torch_geometric.nn.conv.ssg_conv.SSGConv": "weft.nn.conv.ssgc:Ssgc",
        "torch_geometric.nn.conv.tag_conv.TAGConv": "weft.nn.conv.tag:Tag",
        "torch_geometric.nn.conv.appnp.APPNP": "weft.nn.conv.appnp:Appnp",
        "torch_geometric.nn.conv.mixhop_conv.MixHopConv": "weft.nn.conv.mixhop:MixHop",
        "torch_geometric.nn.conv.lg_conv.LGConv": "weft.nn.conv.lightgcn:LightGcn",
        "weft.nn.conv.hops.DegreeHop": "weft.nn.conv.hops:HopSums",
        "torch_geometric.nn.conv.graph_conv.GraphConv": "weft.nn.conv.graph:GraphSums",
        "torch_geometric.nn.conv.gin_conv.GINConv": "weft.nn.conv.gin:Gin",
        "torch_geometric.nn.conv.gat_conv.GATConv": "weft.nn.conv.gat:Gat",
        "torch_geometric.nn.conv.gatv2_conv.GATv2Conv": "weft.nn.conv.gatv2:Gatv2",
        "torch_geometric.nn.conv.film_conv.FiLMConv": "weft.nn.conv.film:Film",
        "torch_geometric.nn.conv.rgcn_conv.RGCNConv": "weft.nn.conv.rgcn:Rgcn",
        "torch_geometric.nn.conv.rgat_conv.RGATConv": "weft.nn.conv.rgat:Rgat",
    },
    named_by="module",
)
SAMPLERS: "Door[type[Sampler]]" = Door(
    "sampler",
    "weft.sampling:Sampler",
    {
        "neighbor": "weft.sampling.sampler:NeighborSampler",
        "labor": "weft.sampling.labor:LaborSampler",
        "layer": "weft.sampling.layer:LayerSampler",
    },
)
PARTITION_METHODS: "Door[type[PartitionMethod]]" = Door(
    "partition method",
    "weft.partition:PartitionMethod",
    {
        "random": "weft.partition.methods.random:RandomMethod",
        "ldg": "weft.partition.methods.streaming:LdgMethod",
        "fennel": "weft.partition.methods.streaming:FennelMethod",
        "blocks": "weft.partition.methods.blocks:BlocksMethod",
        "metis": "weft.partition.methods.metis:MetisMethod",
        "kaminpar": "weft.partition.methods.kaminpar:KaminparMethod",
        "mtkahypar": "weft.partition.methods.mtkahypar:MtkahyparMethod",
        "adagl": "weft.lab.adagl:AdaglMethod",
        "evolution": "weft.lab.adagl:EvolutionMethod",
        "traffic": "weft.partition.methods.traffic:TrafficMethod",
        "range": "weft.partition.methods.range:RangeMethod",
        "given": "weft.partition.methods.given:GivenMethod",
    },
    taken=("auto",),
)
OBJECTIVES: "Door[type[Objective]]" = Door(
    "objective",
    "weft.training:Objective",
    {
        "vertex": "weft.training.objectives.vertices:VertexObjective",
        "link": "weft.training.objectives.links:LinkObjective",
    },
)

LAUNCHERS: "Door[type[Launcher]]" = Door(
    "launcher",
    "weft.cluster:Launcher",
    {
        "local": "weft.cluster.local:LocalProcesses",
        "torchrun": "weft.cluster.torchrun:Torchrun",
        "mpi": "weft.cluster.mpi:Mpi",
        "slurm": "weft.cluster.slurm:Slurm",
        "k8s": "weft.cluster.k8s:K8s",
        "ray": "weft.cluster.ray:Ray",
    },
)

DOORS: tuple[Door[Any], ...] = (PLACEMENTS, CONVOLUTIONS, SAMPLERS, PARTITION_METHODS, OBJECTIVES, LAUNCHERS)


def register(part: T) -> T:
    """Add a placement, convolution, sampler, partition method, objective or launcher: a class derived from a base class.

    It can stand above the class as a decorator.
    """
    for door in DOORS:
        if door.fits(part):
            door.register(part)
            return part
    bases = ", ".join(door._base.replace(":", ".") for door in DOORS)
    raise ConfigError(f"{_title(part)} can't be registered: it must be a class derived from one of {bases}")


_INSTALLED = set[type]()  # what entry points have added


def registered(*but: Door[Any]) -> list[type]:
    """The parts that others have added in this process, but those that any process finds by entry points.

    `but`: kinds that are left out.
    """
    doors = [door for door in DOORS if door not in but]
    return [part for door in doors for part in door._added.values() if part not in _INSTALLED]


def class_name(cls: type) -> str:
    """The name by which a class is looked up where a part serves it."""
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def load_plugins() -> None:
    """Load the entry points of the group `weft.plugins`, once in a process."""
    from importlib.metadata import entry_points  # here, as help that lists no parts need not wait for it

    before = registered()
    for entry in entry_points(group=GROUP):
        try:
            part = entry.load()
            if isinstance(part, type):
                register(part)
        except Exception as error:
            package = entry.dist.name if entry.dist else "unknown"
            raise ConfigError(
                f"plugin {entry.name!r} of package {package} can't be loaded ({entry.value}: {error}): repair or uninstall "
                f"it"
            ) from error
    _INSTALLED.update(part for part in registered() if part not in before)


def _title(part: object) -> str:
    return class_name(part) if isinstance(part, type) else repr(part)
