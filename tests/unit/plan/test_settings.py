"""The surface of options is frozen: adding one is a decision, seen here."""

import dataclasses

import pytest

from weft import cli
from weft.errors import ConfigError
from weft.plan import GROUPS, PLACES, Settings
from weft.plan.groups import EvaluationSettings, ModelSettings, OptimisationSettings

KEYS = {
    "model": "name hidden layers heads bases blocks dropout norm jk dtype products",
    "task": "name decoder loss margin negatives num_negatives link_split metric hits eval_negatives",
    "sampling": "fanouts sampler replace weighted batch_size full_graph",
    "optimisation": "epochs optimizer lr weight_decay momentum schedule warmup clip_norm seed",
    "plan": "name seeds group topology cache cache_by cache_per wire slack gather merge prefetch replicate overlap chunks",
    "parallel": "workers on device sample_on threads loaders micro_batches memory cluster watch transport ports tls timeout "
    "max_restarts min_workers",
    "evaluation": "every how batch_size patience",
    "checkpoint": "folder every keep resume",
    "report": "log tensorboard",
}
# Where a key is not the name in the group.
FLAT = {
    "name": {"model": "model", "task": "task", "plan": "plan"},
    "every": {"evaluation": "evaluate_every", "checkpoint": "checkpoint_every"},
    "how": {"evaluation": "evaluation"},
    "batch_size": {"evaluation": "eval_batch_size"},
    "folder": {"checkpoint": "checkpoint"},
}


def test_keys_of_a_run():
    assert {group: " ".join(one.name for one in dataclasses.fields(kind)) for group, kind in GROUPS.items()} == KEYS
    places = [(group, name) for group, names in KEYS.items() for name in names.split()]
    assert {FLAT.get(name, {}).get(group, name): (group, name) for group, name in places} == PLACES
    assert len(PLACES) == len(places)


def test_toml_and_flags(tmp_path, capsys):
    config = tmp_path / "run.toml"
    config.write_text("epoks = 3\n")
    assert cli.main(["train", str(tmp_path / "none"), "--config", str(config)]) == 2
    assert f"{config}: there is no setting 'epoks'; did you mean 'epochs'?" in capsys.readouterr().err
    config.write_text("epochs = \n")
    assert cli.main(["train", str(tmp_path / "none"), "--config", str(config)]) == 2
    assert "is not valid TOML" in capsys.readouterr().err
    config.write_text("epochs = 3\n")
    assert cli.main(["train", str(tmp_path / "none"), "--config", str(config), "--epochs", "0"]) == 2
    assert "epochs = 0 is out of range; it must be at least 1" in capsys.readouterr().err
    assert cli.main(["train", str(tmp_path / "none"), "--config", str(config)]) == 2
    assert "there is no graph at" in capsys.readouterr().err


# What Weft 0.1.0 wrote of a run into checkpoints and beside models.
WRITTEN_BY_0_1_0 = {
    "model": "gat",
    "hidden": 64,
    "layers": None,
    "heads": 2,
    "bases": 0,
    "blocks": 0,
    "dropout": 0.5,
    "norm": "none",
    "jk": "none",
    "dtype": "float32",
    "task": "vertex",
    "decoder": "dot",
    "loss": "bce",
    "margin": 1.0,
    "negatives": "uniform",
    "num_negatives": 1,
    "link_split": "90/5/5",
    "metric": "mrr",
    "hits": 10,
    "eval_negatives": 100,
    "fanouts": [15, 10],
    "sampler": "neighbor",
    "replace": False,
    "weighted": False,
    "batch_size": 2048,
    "full_graph": False,
    "epochs": 30,
    "optimizer": "adam",
    "lr": 0.005,
    "weight_decay": 0.0,
    "momentum": 0.9,
    "schedule": "constant",
    "warmup": 0.0,
    "clip_norm": 0.0,
    "seed": 0,
    "workers": 4,
    "plan": "nfp",
    "seeds": "auto",
    "group": "all",
    "topology": "replicated",
    "cache": 0.1,
    "cache_by": "reads",
    "wire": "float32",
    "slack": 0.1,
    "gather": "batch",
    "merge": "random",
    "replicate": False,
    "overlap": True,
    "chunks": 0,
    "memory": None,
    "transport": "sockets",
    "cluster": "cluster.toml",
    "watch": True,
    "timeout": 300.0,
    "evaluate_every": 1,
    "evaluation": "exact",
    "eval_batch_size": 512,
    "patience": 0,
    "threads": 0,
    "loaders": 0,
    "prefetch": 2,
    "micro_batches": 1,
    "checkpoint": "runs/kept",
    "checkpoint_every": 0,
    "keep": 3,
    "resume": False,
    "log": "human",
    "tensorboard": None,
}


def test_what_0_1_0_wrote_is_read():
    settings = Settings.restored(WRITTEN_BY_0_1_0, "there")
    assert settings.model == ModelSettings(name="gat", hidden=64, heads=2, dropout=0.5)
    assert settings.sampling.fanouts == (15, 10) and settings.optimisation.lr == 0.005
    # had no effect: the cluster of a plan that is named, and the batches of sampled evaluation
    assert settings.parallel.cluster is None and settings.evaluation.batch_size == 4096
    assert set(settings.flat()) == {
        *WRITTEN_BY_0_1_0,
        "max_restarts",
        "min_workers",
        "cache_per",
        "on",
        "device",
        "sample_on",
        "products",
        "ports",
        "tls",
    }


def test_tables_and_keys(tmp_path, capsys):
    grouped = {"model": {"name": "gcn", "hidden": 16}, "optimisation": {"lr": 0.1}, "evaluation": {"every": 2}}
    flat = {"model": "gcn", "hidden": 16, "lr": 0.1, "evaluate_every": 2}
    settings = Settings.of(**flat)
    assert Settings.read(grouped) == settings
    assert settings == Settings(
        model=ModelSettings(name="gcn", hidden=16),
        optimisation=OptimisationSettings(lr=0.1),
        evaluation=EvaluationSettings(every=2),
    )
    assert settings.given == set(flat)
    assert Settings.of(lr=0.003).given == {"lr"}  # given, though as usual
    changed = settings.changed(epochs=3, lr=0.2)
    assert changed.given == {*flat, "epochs"} and changed.optimisation.lr == 0.2
    assert Settings.restored(changed.flat(), "there") == changed
    config = tmp_path / "run.toml"
    for text, message in (
        ("[model]\nnmae = 'gcn'\n", "the table [model] has no setting 'nmae'; did you mean 'name'?"),
        ("[model]\nlr = 0.1\n", "the table [model] has no setting 'lr'; it is in the table [optimisation]"),
        (
            "[evaluation]\nevaluation = 'exact'\n",
            "the table [evaluation] has no setting 'evaluation'; did you mean 'how'?",
        ),
        ("lr = 0.1\n[optimisation]\nlr = 0.2\n", "lr is set twice: in the table [optimisation], and by itself"),
        ("[optimisation]\nlr = 'fast'\n", "lr = 'fast' is not a number"),
    ):
        config.write_text(text)
        assert cli.main(["train", str(tmp_path / "none"), "--config", str(config)]) == 2
        assert f"{config}: {message}" in capsys.readouterr().err


def test_words_that_are_numbers_are_told_what_they_must_be():
    for given, message in (
        ({"memory": 2_000_000}, "memory = '2000000' is no size: give one with its unit, such as 2GB"),
        ({"memory": "2000000"}, "memory = '2000000' is no size: give one with its unit, such as 2GB"),
        ({"ports": 29500}, "ports = '29500' is no range of ports: give one such as 29500-29600"),
        ({"device": 0}, "device = '0' is not possible; choose one of auto, cpu, cuda"),
        ({"device": "cuda:1"}, "CUDA_VISIBLE_DEVICES=1"),
    ):
        with pytest.raises(ConfigError, match=message):
            Settings.of(**given)
