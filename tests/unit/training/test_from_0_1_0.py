"""What 0.1.0 wrote: its graphs, settings files and checkpoints go on in this version, or are refused with what to change.

tests/data/0.1.0 was written by that version: `weft train graph --config run.toml --checkpoint checkpoints
--checkpoint-every 1 --keep 100 --out model`, of which the fifth step's checkpoint is kept, in the midst of an epoch.
"""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from weft import cli

WRITTEN = Path(__file__).resolve().parents[2] / "data" / "0.1.0"


@pytest.fixture
def old(tmp_path):
    """A copy, as runs write into it."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "old"))


def train(old, *arguments, config="run.toml"):
    return cli.main(["train", str(old / "graph"), "--config", str(old / config), "--log", "json", *map(str, arguments)])


def assert_same_model(found, wanted):
    """To the bit on the processor that 0.1.0 ran on; another one's sums may be in another order."""
    found, wanted = (load_file(folder / "state.safetensors") for folder in (found, wanted))
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=1e-13)


def test_a_settings_file_trains_the_same_model(old):
    assert train(old, "--out", old / "again") == 0
    assert_same_model(old / "again", WRITTEN / "model")


def test_a_checkpoint_goes_on_to_the_same_model(old, capsys):
    assert train(old, "--checkpoint", old / "checkpoints", "--resume", "--out", old / "again") == 0
    assert "going on from" in capsys.readouterr().out
    assert_same_model(old / "again", WRITTEN / "model")


def test_a_trained_model_embeds(old):
    assert cli.main(["embed", str(old / "graph"), "--model", str(old / "model"), "--out", str(old / "rows.npy")]) == 0


def test_a_checkpoint_of_other_settings_is_refused_by_name(old, capsys):
    assert train(old, "--checkpoint", old / "checkpoints", "--resume", "--lr", "0.5") == 2
    assert (
        "written with other settings: lr = 0.01 (now 0.5); use the same, or another folder" in capsys.readouterr().err
    )


def test_a_setting_that_did_nothing_is_refused_with_what_to_change(old, capsys):
    assert train(old, config="no_effect.toml") == 2
    assert "cache means nothing to training on the full graph: drop it, or drop full_graph" in capsys.readouterr().err
