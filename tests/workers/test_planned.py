"""Planned runs: probed, predicted, chosen and explained by the command line, and still the same model."""

import json
import os
import re
import shutil

import pytest
from launcher import Running, free_port
from safetensors.torch import load_file

from weft import cli
from weft.graph import communities
from weft.partition import allocate, write_partitioned
from weft.plan import Plan, plan_of
from weft.planner import KINDS, read_cluster

RUN = ["--hidden", "8", "--fanouts", "4,4", "--batch-size", "60", "--threads", "1"]
TRAIN = [*RUN, "--epochs", "2", "--dtype", "float64", "--lr", "0.01"]


@pytest.fixture(scope="module")
def folder(probed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planned")
    graph = communities(folder / "whole", vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, 2, "metis"), 2, folder / "parts")
    shutil.copy(probed[1], folder / "cluster.toml")
    return folder


@pytest.fixture(scope="module")
def answer(weft, folder):
    command = ["plan", folder / "parts", *RUN, "--cluster", folder / "cluster.toml", "--json"]
    return json.loads(weft(*command, check=True).stdout)


def test_the_probe_finds_what_work_takes(folder):
    work = read_cluster(folder / "cluster.toml").work
    assert list(work) == list(KINDS) and all(value >= 0 for value in work.values())
    assert work["pace"] > 0 and 1 < work["overlap"] <= 12


def test_a_run_chooses_says_why_and_trains_the_same_model(weft, folder):
    command = ["train", folder / "parts", *TRAIN, "--workers", 2, "--cluster", folder / "cluster.toml"]
    told = weft(*command, "--out", folder / "m", check=True).stdout
    assert "s an epoch" in told and "gdp" in told and "plan  2 workers" in told
    command = ["train", folder / "whole", *TRAIN[:4], "--batch-size", "120", *TRAIN[6:]]
    weft(*command, "--out", folder / "alone", check=True)
    one, other = (load_file(folder / name / "state.safetensors") for name in ("m", "alone"))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-10


def test_a_run_without_a_file_uses_what_was_kept(weft, folder, probed):
    told = weft("train", folder / "parts", *TRAIN, "--workers", 2, check=True, WEFT_CACHE=probed[2]).stdout
    assert "the cluster as measured " in told and f"ago ({probed[2]}/cluster-2-workers-" in told
    assert "looked at links and processors" not in told and "what work takes" not in told


def test_a_plan_that_is_named_is_among_those_that_are_shown(weft, folder):
    named = ["--plan", "push+local seeds=home", "--cluster", folder / "cluster.toml", "--json"]
    shown = json.loads(weft("plan", folder / "parts", *RUN, *named, check=True).stdout)["predictions"]
    assert ["push", "local"] in [one["plan"]["layers"] for one in shown if one["plan"]["seeds"] == "home"]


def test_predictions_as_json(answer):
    names = [prediction["name"] for prediction in answer["predictions"]]
    assert {"gdp", "nfp", "snp", "dnp", "split", "leap"} <= set(names)
    seconds = [p["seconds"] for p in answer["predictions"] if p["excluded"] is None]
    assert seconds == sorted(seconds) and answer["best"]["seconds"] == seconds[0]
    for shown in answer["predictions"]:  # by each name, --plan finds the same plan
        assert plan_of(shown["name"], 2) == Plan.from_dict(shown["plan"])
    axes = {sweep["axis"]: sweep for sweep in answer["sweeps"]}
    assert set(axes) == {"hidden"} and axes["hidden"]["values"][0] == 8  # nothing crosses between hosts
    assert answer["looked_at"] <= answer["batches"] == 5


def test_a_page_and_other_numbers_of_hosts(weft, folder, tmp_path):
    far = tmp_path / "far.toml"
    work = (folder / "cluster.toml").read_text().rpartition("\n[work]")[2]
    hosts = "".join(f'[[host]]\nname = "h{n}"\nbandwidth = "1gbit"\nmemory = "4GiB"\n' for n in (1, 2))
    far.write_text(f"version = 1\n{hosts}[exchange]\nlatency = 0.0005\n[work]{work}")
    page = tmp_path / "plans.html"
    told = weft("plan", folder / "parts", *RUN, "--cluster", far, "--hosts", "1..4", "--html", page, check=True).stdout
    assert "gdp" in told and "hosts" in told
    assert page.read_text().startswith("<!doctype html>") and "<script" not in page.read_text()


def test_predictions_beside_measurements(weft, folder):
    cluster = ["--cluster", folder / "cluster.toml"]
    command = ["plan", folder / "parts", *RUN, *cluster, "--measure", 1, "--workers", 2, "--json"]
    told = json.loads(weft(*command, check=True).stdout)
    assert set(told["measured"]) == {p["name"] for p in told["predictions"] if p["excluded"] is None}
    assert all(figures["seconds"] > 0 for figures in told["measured"].values())


def as_two_workers(arguments_of):
    """What `weft plan` did as each of two workers, with the arguments of its own."""
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    runs = [
        Running(["weft", "plan", *arguments], os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank, arguments in enumerate(arguments_of)
    ]
    said = [run.communicate(100) for run in runs]
    return [(run.returncode, *told) for run, told in zip(runs, said, strict=True)]


def test_plans_are_measured_by_the_first_workers_cluster_file(folder):
    text = (folder / "cluster.toml").read_text()
    text = re.sub(r"near_latency = \S+", "near_latency = 0.02", text)
    (folder / "slower.toml").write_text(re.sub(r"near_bandwidth = \S+", 'near_bandwidth = "1mbit"', text))
    asked = [folder / "parts", *RUN, "--measure", 1, "--json", "--cluster"]
    first, other = as_two_workers([[*asked, folder / name] for name in ("cluster.toml", "slower.toml")])
    assert (first[0], other) == (0, (0, "", "")), (first, other)
    told = json.loads(first[1])
    assert set(told["measured"]) == {p["name"] for p in told["predictions"] if p["excluded"] is None}


@pytest.mark.parametrize("command", [("train",), ("plan", "--measure", "1")])
def test_a_cluster_of_other_hosts_is_refused(folder, capsys, command):
    arguments = [*command, str(folder / "parts"), *RUN, "--workers", "2", "--cluster", str(folder / "three.toml")]
    text = (folder / "cluster.toml").read_text().replace("workers = 2", "workers = 3")
    (folder / "three.toml").write_text(text)
    assert cli.main(arguments) == 2
    assert "is of 1 hosts with 3 workers, but this run has 1 with 2" in capsys.readouterr().err


def test_workers_that_torchrun_started_refuse_a_cluster_of_other_hosts(folder):
    text = (folder / "cluster.toml").read_text().replace("workers = 2", "workers = 1")
    (folder / "one.toml").write_text(text)
    asked = [folder / "parts", *RUN, "--measure", 1, "--cluster", folder / "one.toml"]
    for code, _, told in as_two_workers([asked, asked]):
        assert code == 2 and "is of 1 hosts with 1 workers, but this run has 1 with 2" in told


def test_bad_questions_are_one_sentence(folder, tmp_path, capsys):
    cluster = ["--cluster", str(folder / "cluster.toml")]
    bare = tmp_path / "bare.toml"
    bare.write_text(
        'version = 1\n[[host]]\nname = "h1"\nworkers = 2\nmemory = "4GiB"\n[exchange]\nnear_latency = 0.001\n'
    )
    bare.write_text(bare.read_text() + 'near_bandwidth = "10gbit"\n')
    graph = str(folder / "parts")
    for arguments, sentence in (
        ([], "weft plan needs to know the cluster"),
        (["--cluster", str(bare)], "does not say what work takes"),
        (["--cluster", str(tmp_path / "none.toml")], "can't be read"),
        ([*cluster, "--hosts", "few"], "--hosts few is not a range such as 1..64"),
        ([*cluster, "--hosts", "0,2"], "numbers of hosts start at 1"),
        ([*cluster, "--hosts", "1..4"], "it is not known how fast it would reach others"),
        ([*cluster, "--measure", "1"], "--measure needs workers"),
    ):
        assert cli.main(["plan", graph, *RUN, *arguments]) == 2, arguments
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1
