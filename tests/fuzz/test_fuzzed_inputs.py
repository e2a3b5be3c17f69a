"""What people write or files say in place of it, made up and damaged by hypothesis: refused in a sentence, or meant."""

import json
import math
import os
import zlib
from dataclasses import asdict, fields

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from quick import some
from safetensors.torch import save as save_tensors

from weft import cli
from weft.config import read_toml
from weft.errors import WeftError
from weft.plan import NAMED, OF_GRAPH, PLACES, Plan, Settings, plan_of
from weft.planner import Cluster, Host, read_cluster, read_measured, write_cluster
from weft.planner.cluster import KINDS
from weft.planner.cluster_file import cluster_text
from weft.training import checkpoint

CASES = int(os.environ.get("WEFT_FUZZ_CASES", "100"))  # of each test; `make test-slow` and `make fuzz` run more
fuzzed = settings(
    max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
# Values that a person, an editor or a program that goes wrong may write.
NUMBERS = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "1e400",
        "-1e400",
        "nan",
        "inf",
        "-inf",
        "1e-400",
        "9" * 30,
        "-0",
        "0x10",
        "1_0",
        "1e3",
    ]
)
WORDS = st.sampled_from(
    [*NAMED, *OF_GRAPH, "auto", "none", "full", "on", "off", "", " ", "local", "pull", "push", "cover", "columns", "5%"]
)
JUNK = st.one_of(NUMBERS, WORDS, st.text(max_size=6))
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.integers(10**300, 10**400), JUNK),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(JUNK, inner, max_size=3)),
    max_leaves=5,
)


def refused_or(read):
    """What `read` gives, or None where it refuses that in a sentence."""
    try:
        return read()
    except WeftError as error:
        told = str(error)
        assert told and "Traceback" not in told and len(told.splitlines()) <= 2, told
        return None


def sane(values):
    """Numbers that can be meant."""
    for value in values:
        assert not isinstance(value, float) or math.isfinite(value), value
        assert not isinstance(value, int) or -(1 << 63) <= value < 1 << 63, value


options = [field.name for field in fields(Plan)] + ["", "cash", "layers"]
option = st.builds("{}{}{}".format, st.sampled_from(options), st.sampled_from(["=", "", "==", " = "]), JUNK)


@fuzzed
@given(st.lists(st.one_of(WORDS, JUNK), max_size=4), st.lists(option, max_size=3), st.integers(1, 4))
@example([], [], 2)
@example(["gdp"], ["cache=inf"], 2)
def test_plans_as_people_write_them(layers, words, depth):
    plan = refused_or(lambda: plan_of(" ".join(["+".join(layers), *words]), depth))
    if plan is not None:
        assert len(plan.layers) == depth
        sane(asdict(plan).values())
        more = {"scope": "graph"} if plan.scope == "graph" and "scope" not in str(plan) else {}
        assert plan_of(str(plan), depth, more) == plan


@fuzzed
@given(
    st.dictionaries(st.sampled_from(options), PLAIN, max_size=4), st.sampled_from(["", "{", "[1]", "\0", "[" * 9999])
)
def test_plans_in_files(tmp_path, data, damage):
    usual = Plan(("local", "local")).as_dict()
    for change in (usual | data, data):
        for name, text in (("p.json", json.dumps(change) + damage), ("p.toml", toml(change) + damage)):
            (tmp_path / name).write_text(text)
            plan = refused_or(lambda name=name: Plan.read(tmp_path / name))
            if plan is not None:
                sane(asdict(plan).values())


def toml(data):
    """As TOML, where that can say it; JSON's values otherwise, which may be wrong there."""
    return "".join(f"{json.dumps(str(key))} = {json.dumps(value)}\n" for key, value in data.items())


keys = st.sampled_from([*PLACES, "", "model.lr", "lr "])


@fuzzed
@given(
    st.dictionaries(keys, st.one_of(PLAIN, JUNK), max_size=4), st.sampled_from(["", "optimisation", "plan", "nothing"])
)
@example({"lr": 10**400}, "")
@example({"timeout": "inf"}, "")
@example({"seed": "9" * 30}, "")
@example({"plan": ""}, "")
@example({"plan": "  "}, "")
@example({"ports": "1-70000"}, "")
@example({"fanouts": [10**30]}, "")
def test_settings(tmp_path, data, table):
    read = refused_or(lambda: Settings.read({table: data} if table else data, "here"))
    for made in (read,):
        if made is not None:
            flat = made.flat()
            sane(flat.values())
            sane(number for value in flat.values() if isinstance(value, tuple) for number in value)
            json.dumps(flat)
            assert Settings.read({key: flat[key] for key in made.given}, "again") == made
    file = tmp_path / "settings.toml"
    file.write_text((f"[{table}]\n" if table else "") + toml(data), errors="replace")
    refused_or(lambda: Settings.read(read_toml(file), "file"))


NOT_STARTED = {  # words by which a command is refused before it does anything
    "train": ["{}/none"],
    "plan": ["{}/none"],
    "doctor": ["{}/none", "--set", "nothing"],
    "probe": ["--rounds", "0"],
    "embed": ["{}/none", "--model", "m", "--out", "o.npy"],
    "partition": ["{}/none", "{}/out", "--parts", "2"],
}


@fuzzed
@given(st.sampled_from(sorted(NOT_STARTED)), st.lists(st.tuples(keys, JUNK), max_size=3))
@example("train", [("plan", "")])
@example("train", [("checkpoint", "\0")])
def test_flags(tmp_path, capsys, command, flags):
    """The graph is not there, so that nothing is ever started."""
    argv = [command, *(word.format(tmp_path) for word in NOT_STARTED[command])]
    argv += [f"--{key.strip().replace('_', '-')}={value}" for key, value in flags if key.strip()]
    try:
        code = cli.main(argv)
    except SystemExit as end:
        code = end.code
    err = capsys.readouterr().err
    assert code == 2 and err and "Traceback" not in err


WAYS = st.sampled_from(["drop", "double", "cut", "value", "key"])


def cluster():
    work = dict.fromkeys(KINDS, 1e-8) | {"busy": 1.0, "overlap": 4.0}
    return Cluster((Host("h1", 1e8, 1e9, 2), Host("h2", 1e8, 1e9)), 1e-3, 1e-3, 1e9, work)


@fuzzed
@given(st.lists(st.tuples(st.integers(0, 60), WAYS, PLAIN), max_size=3))
@example([(24, "cut", None), (33, "drop", None)])  # how long an exchange takes within a host, but not its bandwidth
def test_cluster_files(tmp_path, changes):
    lines = cluster_text(cluster()).splitlines()
    for at, what, value in changes:
        at %= len(lines)
        key, is_set, _ = lines[at].partition("=")
        if what == "drop":
            lines[at] = ""
        elif what == "double":
            lines.insert(at, lines[at])
        elif what == "cut":
            lines = lines[: at + 1]
            lines[at] = lines[at][: len(lines[at]) // 2]
        elif is_set:
            lines[at] = f"{key} = {json.dumps(value)}" if what == "value" else f"{json.dumps(str(value))} = 1"
    file = tmp_path / "cluster.toml"
    file.write_text("\n".join(lines), errors="replace")
    found = refused_or(lambda: read_cluster(file))
    if found is not None:
        assert all(host.bandwidth > 0 and host.memory > 0 and host.workers > 0 for host in found.hosts)
        figures = [*found.work.values(), found.latency, found.near_latency, found.near_bandwidth]
        sane(figures + list(found.shares() or ()))
        assert found.workers < 1 << 31
        write_cluster(file, found)
        assert read_cluster(file) == found


@fuzzed
@given(st.binary(max_size=400))
@example(b"\xff\xfe")
@example(b"[" * 99_999)
@example(b"version = 1\n" + b"a=" + b"[" * 9999)
def test_files_of_other_kinds(tmp_path, data):
    for name, read in (
        ("any.toml", read_cluster),
        ("any.toml", read_toml),
        ("any.json", Plan.read),
        ("any.toml", Plan.read),
        ("any.jsonl", read_measured),
    ):
        (tmp_path / name).write_bytes(data)
        refused_or(lambda read=read, name=name: read(tmp_path / name))


MEASURED = st.sampled_from(["allocation", "plan", "seconds"])


@fuzzed
@given(st.lists(st.one_of(st.dictionaries(JUNK, PLAIN), st.dictionaries(MEASURED, PLAIN), PLAIN), max_size=3))
def test_measured_records(tmp_path, objects):
    file = tmp_path / "measured.jsonl"
    file.write_text("\n".join(map(json.dumps, objects)))
    found = refused_or(lambda: read_measured(file))
    for plans in (found or {}).values():
        sane(plans.values())


def saved(folder):
    checkpoint.save(folder, {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.int64)}, {"step": 3})
    return {name: (folder / name).read_bytes() for name in ("state.safetensors", "state.json")}


@fuzzed
@given(
    st.sampled_from(["state.safetensors", "state.json"]), st.integers(0, 10**6), st.sampled_from(["flip", "cut", "add"])
)
def test_checkpoints_that_are_damaged(tmp_path, name, at, what):
    files = saved(tmp_path / "c")
    data = bytearray(files[name])
    at %= len(data)
    if what == "flip":
        data[at] ^= 1 << at % 8
    data = {"flip": bytes(data), "cut": bytes(data[:at]), "add": bytes(data) + b" "}[what]
    (tmp_path / "c" / name).write_bytes(data)
    found = refused_or(lambda: checkpoint.load(tmp_path / "c"))
    assert found is None, "a damaged checkpoint was read"
    assert checkpoint.checkpoint_damage(tmp_path / "c")


headers = st.dictionaries(
    st.sampled_from(["a", "b", "__metadata__", ""]),
    st.one_of(
        PLAIN,
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "F64", "I64", "U8", "BOOL", "BF16", "F8_E5M2", "XX", 3]),
                "shape": st.one_of(st.lists(st.integers(-2, 1 << 62), max_size=3), PLAIN),
                "data_offsets": st.one_of(st.lists(st.integers(-1, 64), min_size=2, max_size=2), PLAIN),
            }
        ),
    ),
    max_size=3,
)


@fuzzed
@given(headers, st.integers(0, 64), st.one_of(st.none(), st.integers(0, (1 << 64) - 1)), PLAIN)
@example({}, 0, 1 << 63, None)
def test_checkpoints_that_lie_with_sums_that_fit(tmp_path, header, size, length, state):
    """As another program might write them: what can't be is refused, nothing crashes."""
    folder = tmp_path / "c"
    saved(folder)
    head = json.dumps(header).encode()
    data = (len(head) if length is None else length).to_bytes(8, "little") + head + bytes(size)
    (folder / "state.safetensors").write_bytes(data)
    said = state if isinstance(state, dict) else {"progress": state}
    said = {str(key): value for key, value in said.items()}
    text = json.dumps({"version": checkpoint.VERSION, **said, "crc32": zlib.crc32(data)}, indent=1).removesuffix("\n}")
    (folder / "state.json").write_bytes(text.encode() + checkpoint._sum_of(text.encode()))
    found = refused_or(lambda: checkpoint.load(folder))
    if found is not None:
        assert all(tensor.numel() * tensor.element_size() <= size for tensor in found[0].values())
    assert save_tensors(found[0]) if found else True


@pytest.mark.parametrize("name", ["progress", "settings", "batch_size", "graph"])
@pytest.mark.parametrize("value", some([None, [], {}, 3, "x", {"epoch": "x"}], None, {"epoch": "x"}))
def test_a_checkpoint_whose_state_can_not_be_is_refused(tmp_path, name, value):
    """Of a step: with a sum that fits, but a state that no run writes."""
    import weft
    from weft.graph import communities

    graph = communities(tmp_path / "g", vertices=120, edges=600, width=4, classes=2, train=0.4)
    given = {"fanouts": (2,), "hidden": 4, "threads": 1, "epochs": 1, "checkpoint": tmp_path / "runs"}
    weft.train(graph, **given)
    (step,) = (tmp_path / "runs").glob("step-*")
    tensors, state = checkpoint.load(step)
    del state["version"], state["crc32"], state["sum"]
    checkpoint.save(step, tensors, state | {name: value})
    with pytest.raises(WeftError):
        weft.train(graph, **given | {"epochs": 2}, resume=True)


@pytest.mark.parametrize(
    "tensors", [{}, {"model.x": torch.ones(2)}, {"optimizer.x.y": torch.ones(1)}], ids=lambda t: str(list(t))
)
def test_a_checkpoint_whose_tensors_can_not_be_is_refused(tmp_path, tensors):
    import weft
    from weft.graph import communities

    graph = communities(tmp_path / "g", vertices=120, edges=600, width=4, classes=2, train=0.4)
    given = {"fanouts": (2,), "hidden": 4, "threads": 1, "epochs": 1, "checkpoint": tmp_path / "runs"}
    weft.train(graph, **given)
    (step,) = (tmp_path / "runs").glob("step-*")
    before, state = checkpoint.load(step)
    del state["version"], state["crc32"], state["sum"]
    checkpoint.save(step, (before | tensors) if tensors else {}, state)
    with pytest.raises(WeftError, match=r"no run of Weft writes|is of another model, with"):
        weft.train(graph, **given | {"epochs": 2}, resume=True)


SOUND = {"features": 4, "classes": 2, "settings": {"model": "sage", "fanouts": [2]}}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"features": 4, "classes": 2},
        {"features": 4, "classes": 2, "settings": 3},
        SOUND | {"graph": 3},
        SOUND | {"graph": {"class_names": ["a"]}},
        SOUND | {"graph": {"num_classes": 2, "class_names": 7}},
        SOUND | {"graph": {"num_classes": 2, "class_names": ["a"]}},
        SOUND | {"graph": {"num_classes": "two"}},
        SOUND | {"graph": {"num_classes": 2, "edge_type_names": 7}, "widths": 7},
    ],
    ids=str,
)
def test_a_model_whose_facts_can_not_be_is_refused(tmp_path, facts):
    from weft.graph import communities
    from weft.training import load_model

    graph = communities(tmp_path / "g", vertices=120, edges=600, width=4, classes=2, train=0.4)
    checkpoint.save(tmp_path / "model", {"a": torch.ones(2)}, facts)
    with pytest.raises(WeftError, match="no run of Weft writes" if facts else "is a checkpoint and no trained model"):
        load_model(tmp_path / "model", graph)
