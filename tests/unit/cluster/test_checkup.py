"""What a checkup says of what workers found: each with a remedy where something is wrong."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import weft
from weft import cli
from weft.cluster.checks import judged
from weft.cluster.worker_facts import NO_LIMIT, WorkerFacts
from weft.exchange import World
from weft.graph import communities
from weft.plan import Settings

WAYS = {0: 1500, 1: 1500, 2: 1500, 3: 1500}


def facts(rank, **changed):
    """One of four workers on two hosts, where all is well."""
    usual = WorkerFacts(
        rank=rank,
        host=rank // 2,
        name=f"node{rank // 2}",
        clock=1000.0 + rank / 100,
        processors=8.0,
        memory=1 << 34,
        files=4096,
        file_size=NO_LIMIT,
        address_space=NO_LIMIT,
        temporary=1 << 34,
        free_ports=NO_LIMIT,
        secret=True,
        versions={"Python": "3.11"},
        graph="abc",
        graph_error="",
        ways={other: size for other, size in WAYS.items() if other != rank},
        out_of_reach={},
    )
    return replace(usual, **changed)


def told(of_last=None, of_all=None, **settings):
    """All that is not good, where the last worker (and its host's first one) is unlike the others."""
    found = [facts(rank, **(of_all or {}), **((of_last or {}) if rank > 1 else {})) for rank in range(4)]
    return {(f.what, f.where): f for f in judged(found, Settings.of(**settings)) if f.verdict != "good"}


def test_all_is_well():
    assert not told()
    found = {f.what: f for f in judged([facts(rank) for rank in range(4)], Settings.of())}
    assert found["connections"].found == "each worker reaches each other"
    assert found["open files"].found == "4,096, need 280" and found["open files"].where == "all hosts"
    assert found["clock"].found == "within 20 ms"


@pytest.mark.parametrize(
    ("what", "of_last", "found", "remedy", "verdict"),
    [
        ("clock", {"clock": 5000.0}, "+4000.0 s from", "NTP", "warning"),
        ("versions", {"versions": {"Python": "3.12"}}, "Python 3.12 (host 0: 3.11)", "the same", "warning"),
        ("graph", {"graph": "", "graph_error": "there is no graph at g"}, "no graph at g", "copy it", "bad"),
        ("graph", {"graph": "xyz"}, "another one than host 0's", "copy one graph", "bad"),
        ("processors", {"processors": 1.0}, "1 for 2 workers of 1 thread", "fewer workers", "warning"),
        ("open files", {"files": 64}, "64, need 280", "ulimit -n", "bad"),
        ("limits", {"file_size": 1024}, "files' size (ulimit -f) 1 KiB", "lift", "warning"),
        ("temporary files", {"temporary": 1 << 20}, "about 1 MiB free", "TMPDIR", "warning"),
        ("temporary files", {"temporary": -1}, "no folder for them", "TMPDIR", "bad"),
        ("ports", {"free_ports": 2}, "2 more of --ports", "name more", "warning"),
        ("secret", {"secret": False}, "agreed on at MASTER_ADDR", "WEFT_SECRET_FILE", "warning"),
    ],
)
def test_what_is_wrong_with_a_host_is_told_with_a_remedy(what, of_last, found, remedy, verdict):
    findings = told(of_last)
    where = "host 1"
    assert (what, where) in findings and all(of == what for of, _ in findings)
    assert found in findings[what, where].found and remedy in findings[what, where].remedy
    assert findings[what, where].verdict == verdict


def test_hosts_with_the_same_fault_are_named_together():
    assert ("open files", "all hosts") in told(of_all={"files": 64})


def test_threads_that_are_too_many():
    findings = told(threads=8)
    assert findings["processors", "all hosts"].remedy == "set --threads 4"


def test_what_is_encrypted():
    def encryption(**settings):
        (finding,) = [
            f for f in judged([facts(rank) for rank in range(4)], Settings.of(**settings)) if "encry" in f.what
        ]
        return finding.verdict, finding.found

    assert encryption() == ("good", "none; --tls is for networks where others can read what is sent")
    assert encryption(tls="secret") == ("good", "of what they send each other, by tls = 'secret'")


def test_workers_out_of_reach_and_packets_of_two_sizes():
    found = [facts(rank) for rank in range(4)]
    found[3] = replace(found[3], ways={0: 9000, 2: 65536}, out_of_reach={1: "worker 3 could not connect to worker 1"})
    findings = {(f.what, f.where): f for f in judged(found, Settings.of()) if f.verdict != "good"}
    assert findings["connections", "worker 3 to 1"].verdict == "bad"
    assert "could not connect" in findings["connections", "worker 3 to 1"].remedy
    assert findings["packets (MTU)", "host 1 to 0"].found == "9,000 bytes"
    small = [replace(one, ways=dict.fromkeys(one.ways, 1400)) for one in map(facts, range(4))]
    (finding,) = [f for f in judged(small, Settings.of()) if f.verdict != "good"]
    assert finding.where == "between hosts" and "tunnel" in finding.remedy


def test_what_travels_is_what_was_found():
    (found,) = facts(0).of_all(World())
    assert found == facts(0)


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_trained_model_needs_room_for_itself_alone(tmp_path, capsys, monkeypatch, lacking):
    communities(tmp_path / "g", vertices=200, edges=1000, width=4, classes=2, train=0.4)
    model = weft.training.make_model(Settings.of(), weft.Graph.open(tmp_path / "g"))
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=size - lacking))
    assert (
        cli.main(["doctor", str(tmp_path / "g"), "--out", str(tmp_path / "m"), "--threads", "1", "--json"]) == lacking
    )
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)}["model (--out)"]
    assert found["verdict"] == ("bad" if lacking else "good")
    assert found["remedy"] == ("free some, name another folder" if lacking else "")


def test_one_worker(tmp_path, capsys):
    communities(tmp_path / "g", vertices=200, edges=1000, width=4, classes=2, train=0.4)
    words = ["doctor", str(tmp_path / "g"), "--checkpoint", str(tmp_path / "new" / "runs"), "--threads", "1"]
    assert cli.main([*words, "--json"]) == 0
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["graph"]["found"].startswith("the same, and sound")
    assert "need" in found["checkpoints"]["found"] and "a second; one takes" in found["checkpoints"]["found"]
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    assert cli.main([*words, "--out", "/proc/model"]) == 1
    assert "bad      model (--out), worker 0: " in capsys.readouterr().out
    assert cli.main(["doctor", str(tmp_path / "none"), "--threads", "1"]) == 1
    assert "there is no graph at" in capsys.readouterr().out
    assert cli.main([*words, "--model", "rgcn"]) == 1  # of a graph without types of edges
    told = capsys.readouterr().out
    assert "checkpoints" in told and "bad      model, all: do what it says" in told
