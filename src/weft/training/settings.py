"""The settings of a training run, shared by Python, the command line and TOML."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from weft.config import setting
from weft.errors import ConfigError
from weft.nn import DEFAULT_LAYERS
from weft.nn.links import DECODERS, LOSSES
from weft.parallel import NAMED, OF_GRAPH
from weft.planner.units import size_of
from weft.sampling import check_options

_ATTENTION = ("gat", "gatv2", "rgat")
_RELATIONAL = ("rgcn", "rgat")
_TASKS = ("vertex", "link")
_METRICS = ("mrr", "hits", "auc")
# What means nothing without batches, and what means nothing with them.
_OF_BATCHES = (
    *("fanouts", "sampler", "replace", "weighted", "batch_size", "evaluation", "eval_batch_size", "seeds", "group"),
    *("cache", "cache_by", "slack", "gather", "merge", "loaders", "prefetch", "micro_batches"),
)
_OF_GRAPH = ("replicate", "overlap", "chunks", "memory")
_OF_LINKS = (
    *("decoder", "loss", "margin", "negatives", "num_negatives", "link_split"),
    *("metric", "hits", "eval_negatives"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that a run can be told. Keys are the same in Python, in TOML and (with dashes) as flags."""

    model: str = setting("sage", "a name (gcn sage gat gatv2 gin deepgcn film rgcn rgat) or FILE.py:FUNCTION", "model")
    hidden: int = setting(128, "width between layers", "model", low=1)
    layers: int | None = setting(
        None, "convolutions; none: as many as fanouts, or the model's own number", "model", low=1
    )
    heads: int = setting(4, "attention heads (gat, gatv2, rgat)", "model", low=1)
    bases: int = setting(0, "rgcn, rgat: matrices that relations share and mix; 0: each has its own", "model", low=0)
    blocks: int = setting(0, "rgcn, rgat: blocks along the diagonal of relations' matrices; 0: full", "model", low=0)
    dropout: float = setting(0.0, "share of values dropped in training", "model", low=0.0, high=0.99)
    norm: str = setting("none", "normalisation between layers", "model", choices=("none", "layer", "batch"))
    jk: str = setting("none", "jumping knowledge", "model", choices=("none", "cat", "max", "lstm", "last"))
    dtype: str = setting("float32", "arithmetic", "model", choices=("float32", "float64"))

    task: str = setting(
        "vertex",
        "what is learned: labels of vertices, or which are linked (edges of the graph)",
        "task",
        choices=_TASKS,
    )
    decoder: str = setting("dot", "links: how two rows (of width hidden) make a score", "task", choices=DECODERS)
    loss: str = setting("bce", "links: binary cross-entropy, or a margin over each negative", "task", choices=LOSSES)
    margin: float = setting(1.0, "links, loss margin: how much higher a link is to score", "task", low=0.0)
    negatives: str = setting(
        "uniform",
        "links: other tails drawn from all vertices, or from the tails of the same batch",
        "task",
        choices=("uniform", "batch"),
    )
    num_negatives: int = setting(1, "links: negatives for each link in training", "task", low=1)
    link_split: str = setting("90/5/5", "links: train/validation/test in per cent", "task")
    metric: str = setting("mrr", "links: by which figure the best model is known", "task", choices=_METRICS)
    hits: int = setting(10, "links: the k of Hits@k", "task", low=1)
    eval_negatives: int = setting(100, "links: negatives that each link is ranked among in evaluation", "task", low=1)

    fanouts: tuple[int, ...] | None = setting(
        None, "neighbours drawn, from the seeds outwards: 10,10,5 or full", "sampling", low=-1
    )
    sampler: str = setting(
        "neighbor",
        "each vertex draws neighbours for itself (neighbor), all draw the same ones (labor), or fanouts say how many "
        "vertices of the whole graph a layer draws (layer)",
        "sampling",
        choices=("neighbor", "labor", "layer"),
    )
    replace: bool = setting(False, "draw neighbours with replacement", "sampling")
    weighted: bool = setting(False, "draw neighbours in proportion to edge weights", "sampling")
    batch_size: int = setting(1024, "seeds in a batch, for each worker", "sampling", low=1)
    full_graph: bool = setting(
        False, "no batches: each epoch is one update on all vertices with all their neighbours", "sampling"
    )

    epochs: int = setting(10, "passes over the training vertices", "optimisation", low=1)
    optimizer: str = setting("adam", "the optimiser", "optimisation", choices=("adam", "adamw", "sgd"))
    lr: float = setting(0.003, "learning rate", "optimisation", low=0.0)
    weight_decay: float = setting(0.0, "weight decay", "optimisation", low=0.0)
    momentum: float = setting(0.9, "momentum (sgd)", "optimisation", low=0.0, high=1.0)
    schedule: str = setting("constant", "how the rate falls", "optimisation", choices=("constant", "cosine", "linear"))
    warmup: float = setting(0.0, "epochs over which the rate rises from zero", "optimisation", low=0.0)
    clip_norm: float = setting(0.0, "largest gradient norm; 0: no limit", "optimisation", low=0.0)
    seed: int = setting(0, "seed of everything random", "optimisation", low=0)

    workers: int = setting(1, "workers on this machine; under torchrun, as many as it starts", "workers", low=1)
    plan: str = setting(
        "auto",
        "gdp nfp snp dnp split leap migrate, (full graph: halo tp tp-decoupled), a placement a layer such as "
        "push,pull,local (inputs first), or a plan's file; auto: the one that the planner finds fastest",
        "workers",
    )
    seeds: str = setting(
        "auto",
        "spread over the workers, or at home; auto: as the plan has it",
        "workers",
        choices=("auto", "spread", "home"),
    )
    group: str = setting("all", "who shares a batch: all, or each host by itself", "workers", choices=("all", "host"))
    topology: str = setting(
        "replicated",
        "every worker reads all neighbour lists, or only its own",
        "workers",
        choices=("replicated", "partitioned"),
    )
    cache: float = setting(
        0.0, "others' feature rows that a worker keeps: a share of all (up to 1), or bytes", "workers", low=0.0
    )
    cache_by: str = setting(
        "reads", "which rows: the most read in a dry run, or of most out-edges", "workers", choices=("reads", "degree")
    )
    wire: str = setting(
        "float32",
        "how rows travel; float16 gives up exactness; auto: float16 where the planner finds it faster",
        "workers",
        choices=("float32", "float16", "auto"),
    )
    slack: float = setting(
        0.1,
        "seeds at home (leap): how far above its share a worker's may be before some move to where they miss least",
        "workers",
        low=0.0,
    )
    gather: str = setting(
        "batch",
        "plan migrate: one fetch for all time steps of a batch, or one a step",
        "workers",
        choices=("batch", "step"),
    )
    merge: str = setting(
        "fewest",
        "plan migrate: the time step that is dropped while epochs get faster: of fewest seeds, a random one; or none",
        "workers",
        choices=("fewest", "random", "none"),
    )
    replicate: bool = setting(
        False, "full graph, halo: compute others' rows again where that moves less than sending them", "workers"
    )
    overlap: bool = setting(True, "full graph, tp: exchanges go on while something else is computed", "workers")
    chunks: int = setting(
        0, "full graph, tp: pieces that all vertices are gone through in; 0: by the memory budget", "workers", low=0
    )
    memory: str | None = setting(None, "full graph, tp: what a worker may use, such as 2GB; none: no limit", "workers")
    transport: str = setting(
        "sockets", "how rows in host memory travel; gloo: by torch.distributed", "workers", choices=("sockets", "gloo")
    )
    cluster: Path | None = setting(
        None, "a cluster file (weft probe) to choose a plan by; none: measured at the start", "workers"
    )
    watch: bool = setting(
        True, "try plans that may be the fastest, and plan again when epochs and predictions drift apart", "workers"
    )
    timeout: float = setting(300.0, "seconds to wait for other workers before giving up", "workers", low=1.0)

    evaluate_every: int = setting(1, "epochs between evaluations; 0: only at the end", "evaluation", low=0)
    evaluation: str = setting(
        "sampled", "by sampled batches, or exact over all neighbours", "evaluation", choices=("sampled", "exact")
    )
    eval_batch_size: int = setting(4096, "vertices in a batch of sampled evaluation", "evaluation", low=1)
    patience: int = setting(0, "evaluations without a better one before stopping; 0: never", "evaluation", low=0)

    threads: int = setting(0, "threads; 0: one a core", "running", low=0)
    loaders: int = setting(
        0, "threads that prepare batches, each a batch of its own; 0: one, or two with other workers", "running", low=0
    )
    prefetch: int = setting(
        2, "batches (or pieces of them) prepared ahead; the planner takes fewer where memory is short", "running", low=0
    )
    micro_batches: int = setting(
        1, "pieces that a batch is computed in, one after the other: the same model from less memory", "running", low=1
    )
    checkpoint: Path | None = setting(None, "folder of checkpoints; none: no checkpoints", "running")
    checkpoint_every: int = setting(0, "batches between checkpoints; 0: one an epoch", "running", low=0)
    keep: int = setting(3, "newest checkpoints to keep", "running", low=1)
    resume: bool = setting(False, "go on from the newest checkpoint, if there is one", "running")
    log: str = setting("human", "progress for people, or a JSON object a line", "running", choices=("human", "json"))
    tensorboard: Path | None = setting(None, "folder for TensorBoard; none: off", "running")

    def __post_init__(self) -> None:
        self._check_model()
        if self.fanouts is not None and 0 in self.fanouts:
            raise ConfigError("fanouts hold a 0: give a positive number, or -1 (or the word full) for all neighbours")
        if self.fanouts is not None and self.layers is not None and len(self.fanouts) not in (1, self.layers):
            raise ConfigError(
                f"layers = {self.layers} and {len(self.fanouts)} fanouts contradict each other: give one fanout a layer, or "
                f"drop one of the settings"
            )
        check_options(self.sampler, self.replace, self.weighted, self.fanouts)
        if self.patience and not self.evaluate_every:
            raise ConfigError("patience needs evaluations: set evaluate_every to at least 1")
        if self.resume and self.checkpoint is None:
            raise ConfigError("resume needs the folder of checkpoints: set checkpoint")
        if self.checkpoint_every and self.checkpoint is None:
            raise ConfigError("checkpoint_every needs a folder: set checkpoint")

        self._check_scope()
        self._check_task()

    @property
    def decoupled(self) -> bool:
        """Is the model's decoupled variant trained, in place of the model itself?"""
        return self.full_graph and self.plan == "tp-decoupled"

    @property
    def budget(self) -> float | None:
        """Bytes that a worker may use, if they are limited."""
        return None if self.memory is None else size_of(self.memory)

    def _check_scope(self) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name in _OF_BATCHES if self.full_graph else _OF_GRAPH:
            if getattr(self, name) != usual[name]:
                whom, but = ("the full graph", "drop") if self.full_graph else ("batches", "set")
                raise ConfigError(f"{name} means nothing to training on {whom}: drop it, or {but} full_graph")
        if not self.full_graph and self.plan in OF_GRAPH:
            raise ConfigError(f"plan = {self.plan!r} is for the full graph: set full_graph, or choose another plan")
        if self.full_graph and self.plan in NAMED:
            raise ConfigError(f"plan = {self.plan!r} is for batches: drop full_graph, or choose {', '.join(OF_GRAPH)}")
        if self.memory is not None and not size_of(self.memory):
            raise ConfigError(f"memory = {self.memory!r} is no size: give one such as 2GB or 512MiB")

    def _check_task(self) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name in _OF_LINKS if self.task == "vertex" else ():
            if getattr(self, name) != usual[name]:
                raise ConfigError(f"{name} means nothing to labels of vertices: drop it, or set task = 'link'")
        if self.loss != "margin" and self.margin != usual["margin"]:
            raise ConfigError(f"margin means nothing to loss = {self.loss!r}: drop it, or set loss = 'margin'")

    def _check_model(self) -> None:
        ignored = {
            "heads": self.model not in _ATTENTION,
            "norm": self.model in ("deepgcn", "film"),
            "jk": self.model in ("deepgcn", "film", *_RELATIONAL),
            "bases": self.model not in _RELATIONAL,
            "blocks": self.model not in _RELATIONAL,
        }
        defaults = {field.name: field.default for field in fields(self)}
        for name, is_ignored in ignored.items():
            if is_ignored and self.model in DEFAULT_LAYERS and getattr(self, name) != defaults[name]:
                raise ConfigError(f"{name} means nothing to the model {self.model}: drop it, or choose another model")
        if self.bases and self.blocks:
            raise ConfigError("bases and blocks are two ways to make relations' matrices: set one of them")
        if self.momentum != defaults["momentum"] and self.optimizer != "sgd":
            raise ConfigError(f"momentum means nothing to {self.optimizer}: drop it, or set optimizer = 'sgd'")

    def fanouts_for(self, depth: int) -> list[int]:
        """A fanout for each of `depth` convolutions."""
        if self.full_graph:
            return [-1] * depth
        if self.fanouts is None:
            return [10] * depth
        if len(self.fanouts) == 1:
            return list(self.fanouts) * depth
        if len(self.fanouts) != depth:
            raise ConfigError(
                f"{len(self.fanouts)} fanouts for a model that is {depth} convolutions deep: give {depth}, or one for all"
            )
        return list(self.fanouts)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for logs and checkpoints."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


# What may differ between a run and the one that resumes it: none of it changes the model that comes out.
MAY_CHANGE = (
    "threads",
    "loaders",
    "workers",
    "batch_size",
    "plan",
    "seeds",
    "group",
    "topology",
    "cache",
    "cache_by",
    "timeout",
    "transport",
    "cluster",
    "watch",
    "prefetch",
    "micro_batches",
    "slack",
    "gather",
    "merge",
    "replicate",
    "overlap",
    "chunks",
    "memory",
    "checkpoint",
    "checkpoint_every",
    "keep",
    "resume",
    "log",
    "tensorboard",
)
