"""The surface of options is frozen: adding one is a decision, seen here."""

import dataclasses

from weft import cli
from weft.training import Settings

KEYS = (
    *("model", "hidden", "layers", "heads", "bases", "blocks", "dropout", "norm", "jk", "dtype"),
    *("task", "decoder", "loss", "margin", "negatives", "num_negatives", "link_split"),
    *("metric", "hits", "eval_negatives"),
    *("fanouts", "sampler", "replace", "weighted", "batch_size", "full_graph"),
    *("epochs", "optimizer", "lr", "weight_decay", "momentum", "schedule", "warmup", "clip_norm", "seed"),
    *("workers", "plan", "seeds", "group", "topology", "cache", "cache_by", "wire"),
    *(
        "slack",
        "gather",
        "merge",
        "replicate",
        "overlap",
        "chunks",
        "memory",
        "transport",
        "cluster",
        "watch",
        "timeout",
    ),
    *("evaluate_every", "evaluation", "eval_batch_size", "patience"),
    *(
        "threads",
        "loaders",
        "prefetch",
        "micro_batches",
        "checkpoint",
        "checkpoint_every",
        "keep",
        "resume",
        "log",
        "tensorboard",
    ),
)


def test_keys_of_a_run():
    assert [field.name for field in dataclasses.fields(Settings)] == list(KEYS)


def test_flags_of_train(capsys):
    for flag in ("--config", "--out", *(f"--{key.replace('_', '-')}" for key in KEYS)):
        try:
            cli.main(["train", "--help"])
        except SystemExit as end:
            assert end.code == 0
        assert flag in capsys.readouterr().out


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
