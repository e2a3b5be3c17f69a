"""The first run on machines that nothing is known of: it begins at once, learns from its epochs, and keeps that."""

import json

import pytest
from safetensors.torch import load_file

from weft.graph import communities
from weft.partition import allocate, write_partitioned
from weft.planner import read_cluster
from weft.planner.priors import reference_machine

RUN = [
    "--hidden",
    "8",
    "--fanouts",
    "4,4",
    "--threads",
    "1",
    "--epochs",
    "12",
    "--dtype",
    "float64",
    "--evaluate-every",
    "0",
]


@pytest.fixture(scope="module")
def runs(weft, tmp_path_factory):
    """The folder with models, what two runs in a row told, and the files that were kept after each."""
    folder = tmp_path_factory.mktemp("first")
    whole = communities(folder / "whole", vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(whole, allocate(whole, 2, "metis"), 2, folder / "parts")
    told, kept = [], []
    for number in range(2):
        command = ["train", folder / "parts", *RUN, "--batch-size", 60, "--workers", 2, "--log", "json"]
        out = weft(*command, "--out", folder / f"m{number}", check=True, WEFT_CACHE=str(folder / "cache")).stdout
        told.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
        (file,) = (folder / "cache").glob("cluster-*")
        kept.append(read_cluster(file))
    weft("train", folder / "whole", *RUN, "--batch-size", 120, "--out", folder / "alone", check=True)
    return folder, told, kept


def test_the_full_graph_is_settled_on_too(weft, runs):
    folder, _, _ = runs
    command = ["--full-graph", "--hidden", 8, "--layers", 2, "--threads", 1, "--epochs", 60, "--dtype", "float64"]
    command += ["--evaluate-every", 0]
    told = weft(
        *["train", folder / "parts", *command, "--workers", 2, "--log", "json", "--out", folder / "full"],
        check=True,
        WEFT_CACHE="off",
    ).stdout
    said = notices([json.loads(line) for line in told.splitlines() if line.startswith("{")])
    assert any(text.startswith("plan ") and " s predicted)" in text for text in said)
    assert any("not kept for later runs (WEFT_CACHE is off)" in text for text in said)
    weft("train", folder / "whole", *command, "--out", folder / "full-alone", check=True)
    one, other = (load_file(folder / name / "state.safetensors") for name in ("full", "full-alone"))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-10


def notices(records):
    return [record["text"] for record in records if record["record"] == "Notice"]


def test_layers_are_timed_by_the_first_run_alone(runs):
    folder, (first, second), _ = runs
    assert len([*(folder / "cache").glob("task-*")]) == 1
    ((before,), (after,)) = ([one["answer"] for one in told if one["record"] == "Planned"] for told in (first, second))
    assert before["timed"] is None and 0 <= after["timed"] < 600


def test_it_says_what_it_goes_by_and_what_it_learned(runs):
    _, (first, second), _ = runs
    told = notices(first)
    assert told[0].startswith(f"what work takes is not known here yet: taken from {reference_machine().machine}, ")
    assert told[1].startswith("looked at links and processors, in all for ")
    (settled,) = (text for text in told if "what was learned is kept for later runs in " in text)
    assert settled.startswith("plan ") and " s predicted)" in settled
    again = notices(second)
    assert again[0].startswith("the cluster as measured ") and again[0].endswith("`weft probe` measures it")
    assert sum("what was learned is kept" in text for text in again) == 1


def test_what_it_learned_is_kept_and_learned_on(runs):
    _, _, (first, second) = runs
    assert first.rounds == second.rounds == 0
    assert first.work != reference_machine().work and second.work != first.work
    assert first.measured == second.measured


def test_it_is_the_same_model(runs):
    folder, _, _ = runs
    alone, *others = (load_file(folder / name / "state.safetensors") for name in ("alone", "m0", "m1"))
    for other in others:
        assert max(float((alone[name] - other[name]).abs().max()) for name in alone) < 1e-10
