"""The settings of a run, group by group: types, usual values, help texts and limits, each written once, here."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from weft.config import Group, key_of, setting

_OWN_LOOP = "another one goes into a loop of one's own: weft.Loader, weft.parallel"


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Group):
    """The model that is built."""

    name: str = setting(
        "sage", "a name (gcn sage gat gatv2 gin deepgcn film rgcn rgat) or FILE.py:FUNCTION", key="model", usual=True
    )
    hidden: int = setting(128, "width between layers", low=1, usual=True, binds="width hidden")
    layers: int | None = setting(
        None, "convolutions; none: as many as fanouts, or the model's own number", low=1, usual=True, binds="named"
    )
    heads: int = setting(4, "attention heads (gat, gatv2, rgat)", low=1, usual=True, binds="named attention")
    bases: int = setting(
        0, "rgcn, rgat: matrices that relations share and mix; 0: each has its own", low=0, binds="named relational"
    )
    blocks: int = setting(
        0, "rgcn, rgat: blocks along the diagonal of relations' matrices; 0: full", low=0, binds="named relational"
    )
    dropout: float = setting(
        0.0, "share of values dropped in training", low=0.0, high=0.99, usual=True, binds="named dropout"
    )
    norm: str = setting(
        "none", "normalisation between layers", choices=("none", "layer", "batch"), binds="named norm normed"
    )
    jk: str = setting(
        "none", "jumping knowledge", choices=("none", "cat", "max", "lstm", "last"), binds="named jk", off="none"
    )
    dtype: str = setting("float32", "arithmetic", choices=("float32", "float64"), usual=True)
    products: str = setting(
        "full",
        "products of matrices on CUDA's devices: in full, by TF32, or in bf16 (autocast), which give up exactness",
        choices=("full", "tf32", "bf16"),
        binds="single",
        off="full",
    )

    @property
    def file(self) -> tuple[Path, str] | None:
        """The file whose own code makes the model, and the name of its function; None: the model has a name."""
        found = re.fullmatch(r"(.+\.py)(?::(\w*))?", self.name)
        return None if found is None else (Path(found[1]), found[2] or "make_model")


@dataclass(frozen=True, kw_only=True)
class TaskSettings(Group):
    """What is learned."""

    name: str = setting(
        "vertex",
        "labels of vertices (vertex), which are linked (link: edges of the graph), or a plugin's name",
        key="task",
        usual=True,
    )
    decoder: str = setting(
        "dot", "links: how two rows (of width hidden) make a score", choices=("dot", "mlp"), binds="links"
    )
    loss: str = setting(
        "bce",
        "links: binary cross-entropy, or a margin over each negative",
        choices=("bce", "margin"),
        binds="figure",
        others="another one is an objective of one's own, as objective=",
    )
    margin: float = setting(
        1.0, "links, loss margin: how much higher a link is to score", low=0.0, binds="links margin"
    )
    negatives: str = setting(
        "uniform",
        "links: other tails drawn from all vertices, or from the tails of the same batch",
        choices=("uniform", "batch"),
        binds="links",
    )
    num_negatives: int = setting(1, "links: negatives for each link in training", low=1, binds="links")
    link_split: str = setting("90/5/5", "links: train/validation/test in per cent", binds="links")
    metric: str = setting(
        "mrr",
        "links: by which figure the best model is known",
        choices=("mrr", "hits", "auc"),
        usual=True,
        binds="figure",
        others="of vertices, another one is an objective of one's own, as objective=",
    )
    hits: int = setting(10, "links: the k of Hits@k", low=1, binds="links")
    eval_negatives: int = setting(
        100, "links: negatives that each link is ranked among in evaluation", low=1, binds="links"
    )


@dataclass(frozen=True, kw_only=True)
class SamplingSettings(Group):
    """How batches are drawn, if any are."""

    fanouts: tuple[int, ...] | None = setting(
        None,
        "neighbours drawn, from the seeds outwards: 10,10,5 or full; none: 10 a layer",
        low=-1,
        usual=True,
        binds="batches",
    )
    sampler: str = setting(
        "neighbor",
        "each vertex draws neighbours for itself (neighbor), all draw the same ones (labor), fanouts say how many vertices "
        "of the whole graph a layer draws (layer), or a plugin's name",
        usual=True,
        binds="batches",
    )
    replace: bool = setting(False, "draw neighbours with replacement", binds="batches replace")
    weighted: bool = setting(False, "draw neighbours in proportion to edge weights", binds="batches weighted")
    batch_size: int = setting(
        1024, "seeds in a batch, for each worker", low=1, usual=True, binds="batches", resumed="total"
    )
    full_graph: bool = setting(
        False, "no batches: each epoch is one update on all vertices with all their neighbours", usual=True
    )


@dataclass(frozen=True, kw_only=True)
class OptimisationSettings(Group):
    """How the model is trained."""

    epochs: int = setting(10, "passes over the training vertices", low=1, usual=True, resumed="longer")
    optimizer: str = setting("adam", "the optimiser", choices=("adam", "adamw", "sgd"), usual=True, others=_OWN_LOOP)
    lr: float = setting(0.003, "learning rate", low=0.0, usual=True)
    weight_decay: float = setting(0.0, "weight decay", low=0.0, usual=True)
    momentum: float = setting(0.9, "momentum (sgd)", low=0.0, high=1.0, binds="sgd", off=0.0)
    schedule: str = setting(
        "constant", "how the rate falls", choices=("constant", "cosine", "linear"), usual=True, others=_OWN_LOOP
    )
    warmup: float = setting(0.0, "epochs over which the rate rises from zero", low=0.0)
    clip_norm: float = setting(0.0, "largest gradient norm; 0: no limit", low=0.0)
    seed: int = setting(0, "seed of everything random", low=0, usual=True)


@dataclass(frozen=True, kw_only=True)
class PlanSettings(Group):
    """How the work is spread over the workers; what is not given here, the planner decides where the plan is auto."""

    resumed: ClassVar[str] = "free"

    name: str = setting(
        "auto",
        "gdp nfp snp dnp split leap migrate, (full graph: halo tp tp-decoupled), a placement a layer such as "
        "push+pull+local (inputs first), or a plan's file; auto: the one that the planner finds fastest",
        key="plan",
        usual=True,
    )
    seeds: str = setting(
        "auto",
        "spread over the workers, or at home; auto: as the plan has it",
        choices=("auto", "spread", "home"),
        binds="batches",
        off="auto",
    )
    group: str = setting(
        "all", "who shares a batch: all, or each host by itself", choices=("all", "host"), binds="batches", off="all"
    )
    topology: str = setting(
        "replicated", "every worker reads all neighbour lists, or only its own", choices=("replicated", "partitioned")
    )
    cache: float = setting(
        0.0,
        "feature rows that a worker keeps where it computes, on a CPU those of others: a share of all (up to 1), or bytes; "
        "0: none; not given under plan auto: as the planner finds",
        low=0.0,
        usual=True,
        binds="batches rows",
    )
    cache_by: str = setting(
        "reads",
        "which rows: the most read in a dry run, or of most out-edges",
        choices=("reads", "degree"),
        binds="batches rows cache",
    )
    cache_per: str = setting(
        "worker",
        "on devices: each worker has its own cache, or there is one a host, of which each device holds other rows and reads "
        "the rest from the others; not given under plan auto: as the planner finds",
        choices=("worker", "host"),
        binds="batches rows cache apart",
    )
    wire: str = setting(
        "float32",
        "how rows travel; float16 gives up exactness; auto: float16 where the planner finds it faster",
        choices=("float32", "float16", "auto"),
        usual=True,
        binds="float32 open-wire",
        resumed="same",
    )
    slack: float = setting(
        0.1,
        "seeds at home (leap): how far above its share a worker's may be before some move to where they miss least",
        low=0.0,
        binds="batches at-home",
        off=0.0,
    )
    gather: str = setting(
        "batch",
        "plan migrate: one fetch for all time steps of a batch, or one a step",
        choices=("batch", "step"),
        binds="batches migrate",
    )
    merge: str = setting(
        "fewest",
        "plan migrate: the time step that is dropped while epochs get faster: of fewest seeds, a random one; or none",
        choices=("fewest", "random", "none"),
        binds="batches migrate",
        off="none",
    )
    prefetch: int = setting(
        2,
        "batches (or pieces of them) prepared ahead; the planner takes fewer where memory is short",
        low=0,
        high=1000,
        binds="batches",
        off=0,
    )
    replicate: bool = setting(
        False,
        "full graph, halo: compute others' rows again where that moves less than sending them",
        binds="graph at-owners",
    )
    overlap: bool = setting(
        True, "full graph, tp: exchanges go on while something else is computed", binds="graph by-column", off=False
    )
    chunks: int = setting(
        0,
        "full graph, tp: pieces that all vertices are gone through in; 0: by the memory budget",
        low=0,
        high=4096,
        binds="graph by-column",
    )

    @property
    def is_file(self) -> bool:
        """Is the plan a file's?"""
        return self.name.endswith((".toml", ".json"))


@dataclass(frozen=True, kw_only=True)
class ParallelSettings(Group):
    """The workers, and what each of them uses."""

    resumed: ClassVar[str] = "free"

    workers: int = setting(1, "workers, where --on says; under torchrun, as many as it starts", low=1, usual=True)
    on: str = setting(
        "local", "where workers are started: local, on this machine; ray, on hosts of a Ray cluster", usual=True
    )
    device: str = setting(
        "auto",
        "what each worker computes on; auto: CUDA's devices, where each worker has one for itself",
        choices=("auto", "cpu", "cuda"),
        usual=True,
        others="which ones of several, the environment says: CUDA_VISIBLE_DEVICES=1",
    )
    sample_on: str = setting(
        "auto",
        "where neighbours are drawn, if device is cuda: the cpu, or the device; auto: there, if its memory holds the lists",
        choices=("auto", "cpu", "device"),
        binds="batches each-draws unweighted",
        off="auto",
    )
    threads: int = setting(
        0, "threads of each worker; 0: its part of the cores that its host's workers may use", low=0, usual=True
    )
    loaders: int = setting(
        0,
        "threads that prepare batches, each a batch of its own, at most one more than prefetch; 0: one, two with other "
        "workers, or for a device alone as many as batches ahead, and one",
        low=0,
        high=1000,
        binds="batches ahead busy",
    )
    micro_batches: int = setting(
        1,
        "pieces that a batch is computed in, one after the other: the same model from less memory",
        low=1,
        binds="batches stay",
        off=1,
    )
    memory: str | None = setting(
        None,
        "what a worker may use, such as 2GB (full graph: tp; batches: by plans that fit, caches too); none: no limit",
        usual=True,
        binds="bounded by-column by-memory",
    )
    cluster: Path | None = setting(
        None,
        "a cluster file (weft probe) to choose a plan by; none: as kept of an earlier run, or measured at the start",
        usual=True,
        binds="auto",
    )
    watch: bool = setting(
        True,
        "try plans that may be the fastest, and plan again when epochs and predictions drift apart",
        binds="auto",
        off=False,
    )
    transport: str = setting(
        "sockets", "how rows in host memory travel; gloo: by torch.distributed", choices=("sockets", "gloo")
    )
    ports: str | None = setting(
        None, "ports that workers may listen at, such as 29500-29600; none: any", binds="own-sockets"
    )
    tls: str | None = setting(
        None,
        "encrypt what workers send each other: secret, by a certificate made of the run's secret; or a PEM file with a key, "
        "its certificate and those that are trusted; none: in the open",
        binds="own-sockets",
    )
    timeout: float = setting(300.0, "seconds to wait for other workers before giving up", low=1.0)
    max_restarts: int = setting(
        0, "times that lost workers are started again, from the newest checkpoint", low=0, binds="kept"
    )
    min_workers: int | None = setting(
        None,
        "workers that are enough to go on after a restart, each with more seeds of the same batch; none: all",
        low=1,
        binds="restarted",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Group):
    """When and how the model is evaluated."""

    every: int = setting(
        1,
        "epochs between evaluations; 0: only at the end",
        key="evaluate_every",
        low=0,
        usual=True,
        resumed="impatient",
    )
    how: str = setting(
        "sampled",
        "by sampled batches, or exact over all neighbours",
        key="evaluation",
        choices=("sampled", "exact"),
        usual=True,
        binds="batches",
    )
    batch_size: int = setting(
        4096,
        "each worker's vertices in a batch of sampled evaluation",
        key="eval_batch_size",
        low=1,
        binds="batches sampled",
        resumed="free",
    )
    patience: int = setting(
        0,
        "evaluations without a better one before stopping; 0: never",
        low=0,
        usual=True,
        binds="evaluated",
        resumed="replayed",
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings(Group):
    """What is kept, to go on from."""

    resumed: ClassVar[str] = "free"

    folder: Path | None = setting(None, "folder of checkpoints; none: no checkpoints", key="checkpoint", usual=True)
    every: int = setting(
        0,
        "batches between checkpoints, besides one after each epoch; 0: only those",
        key="checkpoint_every",
        low=0,
        binds="kept batches",
    )
    keep: int = setting(3, "newest checkpoints to keep", low=1, binds="kept")
    resume: bool = setting(False, "go on from the newest checkpoint, if there is one", usual=True, binds="kept")


@dataclass(frozen=True, kw_only=True)
class ReportSettings(Group):
    """Who is told how the run goes."""

    resumed: ClassVar[str] = "free"

    log: str = setting(
        "human", "progress for people, a JSON object a line, or none", choices=("human", "json", "none"), usual=True
    )
    tensorboard: Path | None = setting(None, "folder for TensorBoard; none: off")


# The groups in their order, as fields of `Settings`.
GROUPS: dict[str, type[Group]] = {
    "model": ModelSettings,
    "task": TaskSettings,
    "sampling": SamplingSettings,
    "optimisation": OptimisationSettings,
    "plan": PlanSettings,
    "parallel": ParallelSettings,
    "evaluation": EvaluationSettings,
    "checkpoint": CheckpointSettings,
    "report": ReportSettings,
}
# Where each key stands: its group, and its name there.
PLACES = {key_of(one): (group, one.name) for group, kind in GROUPS.items() for one in fields(kind)}
FIELDS = {key_of(one): one for kind in GROUPS.values() for one in fields(kind)}
DEFAULTS = {key: one.default for key, one in FIELDS.items()}
