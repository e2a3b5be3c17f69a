"""The surface of options is frozen: adding one is a decision, seen here."""

import dataclasses

from weft import cli
from weft.plan import GROUPS, PLACES, Settings
from weft.plan.groups import EvaluationSettings, ModelSettings, OptimisationSettings

KEYS = {
    "model": "name hidden layers heads bases blocks dropout norm jk dtype",
    "task": "name decoder loss margin negatives num_negatives link_split metric hits eval_negatives",
    "sampling": "fanouts sampler replace weighted batch_size full_graph",
    "optimisation": "epochs optimizer lr weight_decay momentum schedule warmup clip_norm seed",
    "plan": "name seeds group topology cache cache_by wire slack gather merge prefetch replicate overlap chunks",
    "parallel": "workers threads loaders micro_batches memory cluster watch transport timeout",
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
