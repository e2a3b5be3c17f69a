"""`weft partition` as it is called: what will be trained, on which machines, and mistakes in one sentence."""

import json
import re
import shutil
import zlib
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from weft import cli
from weft.graph import Graph, communities, sum_of
from weft.partition import TrainingTask, expected_draws
from weft.planner import Cluster, Host, write_cluster

pytestmark = pytest.mark.usefixtures("few_batches")

FLAGS = (
    *("--parts", "--method", "--minutes", "--by-draws", "--seed", "--threads", "--shares", "--option", "--imbalance"),
    *("--balance-vertices", "--balance-training", "--balance-edges", "--balance-work", "--json", "--overwrite"),
    *(
        "--fanouts",
        "--sampler",
        "--batch-size",
        "--hidden",
        "--plan",
        "--cache",
        "--cluster",
        "--hosts",
        "--bandwidths",
    ),
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return communities(folder / "g", vertices=3000, edges=40_000, width=6, classes=5, train=0.3)


@pytest.fixture
def partition(graph, tmp_path, capsys):
    """Runs the command; gives its figures and what it said beside them."""

    def call(*arguments):
        assert cli.main(["partition", str(graph.path), str(tmp_path / "p"), "--json", "--overwrite", *arguments]) == 0
        told = capsys.readouterr()
        return json.loads(told.out), told.err

    return call


def test_flags_are_frozen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["partition", "--help"])
    told = capsys.readouterr().out
    assert set(re.findall(r"--[a-z-]+", told)) == {*FLAGS, "--help"}
    assert max(map(len, told.splitlines())) <= 80
    methods = " ".join(told.split("methods:")[1].split())
    assert "range ranges of ids, in the order of the import given owners that a column" in methods


def test_a_method_is_chosen_and_said(partition):
    figures, told = partition("--parts", "3")
    assert figures["method"] == "traffic" and told.startswith("method traffic: made for the rows")
    figures, told = partition("--parts", "3", "--minutes", "0.01")
    assert figures["method"] == "kaminpar" and "edges weighed by what training draws" in told
    assert partition("--parts", "3", "--method", "kaminpar")[1] == ""


def test_what_is_trained_matters(partition, tmp_path):
    made = []
    for plan in ("leap", "leap --cache 0.2", "split", "pull,push --fanouts 3,full", "halo"):
        partition("--parts", "3", "--method", "traffic", "--batch-size", "50", "--plan", *plan.split())
        parts = Graph.open(tmp_path / "p")
        made.append(np.argsort(parts.original_ids))
    assert all((one != other).any() for one, other in pairwise(made))


@pytest.mark.parametrize("more", [(), ("--by-draws",)])
def test_parts_are_even_in_what_batches_are_expected_to_draw(partition, tmp_path, graph, more):
    task = TrainingTask((10, 5), 300)
    work = expected_draws(graph, task) * np.diff(graph.indptr)

    drawn, exactly = ("--fanouts", "10,5", "--batch-size", "100"), ("--threads", "1", "--imbalance", "0.005")

    def most(*balance):
        partition("--parts", "3", "--method", "kaminpar", *balance, *exactly)
        parts = Graph.open(tmp_path / "p")
        of_parts = np.add.reduceat(work[parts.original_ids], parts.bounds[:-1])
        return of_parts.max() / of_parts.mean()

    only_work = ("--balance-vertices", "0", "--balance-training", "0", "--balance-work", "1")
    assert most(*only_work, *drawn, *more) < 1.05
    by_edges = ("--balance-vertices", "0", "--balance-training", "0", "--balance-edges", "1")
    assert most(*by_edges, *(drawn if more else ()), *more) > most(*only_work, *drawn, *more)


def test_edges_weigh_what_is_drawn(partition):
    plain, drawn = (partition("--parts", "3", "--method", "metis", *more)[0] for more in ([], ["--by-draws"]))
    assert plain["halo"] != drawn["halo"]


def test_edges_weigh_what_is_drawn_whichever_method_is_taken(partition):
    quick = ("--parts", "3", "--minutes", "0.0001")
    plain, drawn = (partition(*quick, *more)[0] for more in ([], ["--by-draws"]))
    assert plain["method"] == drawn["method"] == "fennel" and plain["halo"] != drawn["halo"]


def test_files_of_options_are_told_apart_a_piece_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.graph.storage._CHUNK", 3)
    (tmp_path / "file").write_bytes(b"a file of some pieces")
    assert sum_of(str(tmp_path / "file")) == zlib.crc32(b"a file of some pieces")


def test_a_cluster_says_shares_and_hosts(partition, tmp_path):
    hosts = (Host("a", 1e8, 1e9, workers=2, cores=4), Host("b", 1e8, 1e9, workers=1, cores=1))
    write_cluster(tmp_path / "cluster.toml", Cluster(hosts, 1e-4, 1e-4, 1e9))
    figures, _ = partition("--cluster", str(tmp_path / "cluster.toml"), "--method", "random")
    assert figures["vertices"] == pytest.approx([1200, 1200, 600], abs=3)
    assert figures["balance"]["vertices"] == pytest.approx(1, abs=0.01)
    figures, _ = partition("--cluster", str(tmp_path / "cluster.toml"), "--method", "random", "--shares", "1,1,1")
    assert figures["vertices"] == pytest.approx([1000] * 3, abs=3)


def test_hosts_and_links(partition):
    figures, _ = partition("--parts", "4", "--hosts", "2", "--bandwidths", "1gbit,200mbit", "--method", "traffic")
    assert figures["parts"] == 4 and figures["balance"]["training"] < 1.2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "how many parts? Give --parts"),
        (["--parts", "0"], "0 parts are not possible"),
        (["--parts", "2", "--fanouts", "ten"], "--fanouts ten is not a list of whole numbers"),
        (["--parts", "2", "--sampler", "labour"], "labour"),
        (["--parts", "2", "--fanouts", ""], "fanouts = () are not possible"),
        (["--parts", "2", "--fanouts", "0"], "fanouts = (0,) are not possible"),
        (["--parts", "2", "--batch-size", "0"], "--batch-size and --hidden are out of range"),
        (["--parts", "2", "--plan", "gdp"], "--plan gdp reads rows wherever they are"),
        (
            ["--parts", "2", "--plan", "local+local+local"],
            "seeds that are dealt out read rows of local layers wherever",
        ),
        (
            ["--parts", "2", "--plan", "magic"],
            "plan = 'magic' is not known: choose one of gdp, nfp, snp, dnp, split, leap, migrate",
        ),
        (["--parts", "2", "--plan", "pull,push"], "has 2 placements for 3 convolutions: give one for each"),
        (["--parts", "2", "--plan", "local,pull,pull"], "layer 2 is pull after a local layer 1"),
        (["--parts", "4", "--hosts", "3"], "4 parts can't be shared equally by 3 hosts"),
        (["--parts", "2", "--bandwidths", "1,1,1"], "--bandwidths 1,1,1 does not fit 2 hosts"),
        (["--parts", "2", "--bandwidths", "fast"], "--bandwidths fast is not a list of bandwidths"),
        (["--parts", "2", "--bandwidths", ""], "does not fit 2 hosts"),
        (["--parts", "2", "--minutes", "0"], "--minutes 0 is out of range"),
        (["--cluster", "nowhere.toml"], "the cluster file nowhere.toml can't be read"),
    ],
)
def test_mistakes_are_one_sentence(graph, tmp_path, capsys, arguments, sentence):
    assert cli.main(["partition", str(graph.path), str(tmp_path / "p"), *arguments]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert sentence in told


TASK = (("--fanouts", "3,3,3"), ("--batch-size", "7"), ("--sampler", "labor"), ("--hidden", "5"), ("--plan", "split"))
DRAWN = (*TASK[:3], ("--plan", "halo"))  # by what is expected to be drawn


@pytest.mark.parametrize(
    "flag", [*TASK, ("--plan", "halo"), ("--cache", "0.2"), ("--bandwidths", "1"), ("--minutes", "3")]
)
def test_what_says_nothing_to_a_method_is_refused(partition, graph, tmp_path, capsys, flag):
    def refused(*arguments):
        assert cli.main(["partition", str(graph.path), str(tmp_path / "p"), "--parts", "2", *flag, *arguments]) == 2
        return capsys.readouterr().err

    told = refused("--method", "random")
    assert told.startswith(f"weft: {flag[0]} means nothing to method 'random': drop it, or ")
    cut = ("--method", "metis")
    assert ("add --by-draws" in refused(*cut)) == (flag in DRAWN)
    if flag in DRAWN:
        partition("--parts", "2", *cut, "--by-draws", *flag)
        partition("--parts", "2", "--method", "fennel", "--balance-work", "1", *flag)
    else:
        refused(*cut, "--by-draws", "--balance-work", "1")
    if flag[0] != "--minutes":
        partition("--parts", "2", "--method", "traffic", *flag)
    partition("--parts", "2", *flag)


@pytest.mark.parametrize("method", ["evolution", "adagl"])
@pytest.mark.parametrize("flag", TASK[3:])
def test_plans_and_widths_are_refused_by_methods_that_search_for_leap(graph, tmp_path, capsys, method, flag):
    arguments = ["--parts", "2", "--method", method, *flag]
    assert cli.main(["partition", str(graph.path), str(tmp_path / "p"), *arguments]) == 2
    told = f"weft: {flag[0]} means nothing to method '{method}': drop it, or choose another method\n"
    assert capsys.readouterr().err == told


BALANCE = ("--balance-vertices 2", "--balance-training 0", "--balance-edges 1", "--balance-work 1", "--imbalance 0.001")


@pytest.mark.parametrize("flag", BALANCE)
@pytest.mark.parametrize("method", ["random", "range", "given"])
def test_what_parts_are_balanced_by_is_refused_by_methods_that_balance_nothing(graph, tmp_path, capsys, method, flag):
    arguments = ["--parts", "2", "--method", method, *flag.split(), "--fanouts", "3,3"]
    assert cli.main(["partition", str(graph.path), str(tmp_path / "p"), *arguments]) == 2
    told = f"weft: {flag.split()[0]} means nothing to method '{method}': drop it, or choose another method\n"
    assert capsys.readouterr().err == told


def test_others_go_by_it(partition):
    balance = [word for flag in BALANCE for word in flag.split()]
    partition("--parts", "2", "--method", "ldg", *balance)
    partition("--parts", "2", "--minutes", "0.0001", *balance)


def test_what_is_said_as_it_is_anyway_is_taken(partition):
    as_usual = ("--fanouts", "10,10,10", "--batch-size", "1024", "--hidden", "128", "--cache", "0", "--minutes", "5")
    balance = ("--balance-vertices", "1", "--balance-training", "1.0", "--balance-edges", "0", "--imbalance", "0.03")
    partition("--parts", "2", "--method", "random", *as_usual, *balance)


def test_a_cluster_must_fit(graph, tmp_path, capsys):
    write_cluster(tmp_path / "c.toml", Cluster((Host("a", 1e8, 1e9), Host("b", 1e8, 1e9)), 1e-4, 1e-4, 1e9))
    arguments = ["partition", str(graph.path), str(tmp_path / "p"), "--cluster", str(tmp_path / "c.toml")]
    assert cli.main([*arguments, "--parts", "3"]) == 2
    assert "has 2 workers for 3 parts" in capsys.readouterr().err
    assert cli.main([*arguments, "--hosts", "2"]) == 2
    assert "--cluster says what --hosts and --bandwidths would" in capsys.readouterr().err


def test_a_place_that_is_taken_is_refused_at_once(graph, tmp_path, capsys, monkeypatch):
    (tmp_path / "p").mkdir()
    monkeypatch.setattr("weft.partition.allocate", None)
    assert cli.main(["partition", str(graph.path), str(tmp_path / "p"), "--parts", "2"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_disk_without_room_is_told_before_anything_is_allocated(graph, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    monkeypatch.setattr("weft.commands.partition.allocated", lambda *_, **__: pytest.fail("it is allocated"))
    assert cli.main(["partition", str(graph.path), str(tmp_path / "some" / "parts"), "--parts", "2"]) == 2
    assert re.search(r"the partitioned graph takes .* has 100 B: free some, or name", capsys.readouterr().err)
