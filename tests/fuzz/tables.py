"""Tables and arrays that go wrong: each draws a kind of file, a column and a way to spoil it, and gives what to import.

`expected` is "refused" where what is meant can't be known, "same" where it is the sound input in other clothes, and "either"
where it hangs on which bytes were hit: refused, or read as any other program would read it, but never a traceback.
"""

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from damage import cut, empty, extend, flip_bits, zero_page

VERTICES, EDGES = 40, 150
_IDS, _NUMBERS = ("src", "dst", "id"), ("weight", "f0")


@dataclass(frozen=True)
class Case:
    told: str  # what was done
    argv: list[str]  # of `weft import`, without the target
    expected: str


def sound(names: bool) -> dict[str, pa.Table]:
    """An edge table and a vertex table; ids are positions, or strings."""
    random = np.random.default_rng(5)
    ends = random.integers(0, VERTICES, (2, EDGES))
    ids = np.arange(VERTICES)
    called = (lambda values: [f"v{value:03}" for value in values]) if names else (lambda values: values)
    edges = {"src": called(ends[0]), "dst": called(ends[1])}
    edges |= {"weight": random.random(EDGES).round(3).astype(np.float32), "type": random.integers(0, 3, EDGES)}
    nodes = {"id": called(ids), "f0": random.random(VERTICES).round(3), "f1": random.random(VERTICES).round(3)}
    nodes |= {
        "label": random.integers(0, 3, VERTICES),
        "split": random.choice(["train", "validation", "test"], VERTICES),
    }
    return {"edges": pa.table(edges), "nodes": pa.table(nodes)}


def flags(names: bool) -> list[str]:
    columns = [
        "--weight",
        "weight",
        "--type",
        "type",
        "--features",
        "f0,f1",
        "--label",
        "label",
        "--split-column",
        "split",
    ]
    return columns + (["--ids", "names"] if names else [])


_TABLE_OF = {"src": "edges", "dst": "edges", "weight": "edges", "type": "edges"}


def _lists(values: list) -> pa.Array:
    return pa.array([[value] for value in values])


def _one(values: list, at: int, value: object) -> list:
    return [*values[:at], value, *values[at + 1 :]]


# What a column may become: how it is made of the sound one's values, and what then is expected of each column.
Change = Callable[[list, int], pa.Array]
COLUMNS: dict[str, tuple[Change, dict[str, str]]] = {
    "lists": (lambda v, at: _lists(v), {"else": "refused", "f0": "same"}),
    "ragged lists": (lambda v, at: pa.array([[x] * (1 + (i == at)) for i, x in enumerate(v)]), {"else": "refused"}),
    "null list": (lambda v, at: pa.array(_one([[x] for x in v], at, None)), {"else": "refused"}),
    "lists of lists": (lambda v, at: pa.array([[[x]] for x in v]), {"else": "refused"}),
    "structs": (lambda v, at: pa.array([{"a": x} for x in v]), {"else": "refused"}),
    "bytes": (
        lambda v, at: pa.array([str(x).encode() for x in v], pa.binary()),
        {"else": "refused", "split": "either", "label": "either"},
    ),
    "bytes of fixed size": (
        lambda v, at: pa.array([str(x).encode()[:12].ljust(12) for x in v], pa.binary(12)),
        {"else": "refused", "label": "either"},
    ),
    "booleans": (
        lambda v, at: pa.array([i % 2 == 0 for i in range(len(v))]),
        {"else": "refused", "f0": "either", "label": "either", "weight": "either", "type": "either"},
    ),
    "dates": (lambda v, at: pa.array(range(len(v)), pa.date32()), {"else": "refused", "label": "either"}),
    "times": (lambda v, at: pa.array(range(len(v)), pa.timestamp("s")), {"else": "refused", "label": "either"}),
    "all null": (lambda v, at: pa.nulls(len(v)), {"else": "refused", "label": "either", "split": "either"}),
    "one null": (lambda v, at: pa.array(_one(v, at, None)), {"else": "refused", "label": "either", "split": "either"}),
    "dictionary": (lambda v, at: pa.array(v).dictionary_encode(), {"else": "same"}),
    "large strings": (lambda v, at: pa.array([str(x) for x in v], pa.large_string()), {"else": "either"}),
}
INTEGERS: dict[str, tuple[Change, dict[str, str]]] = {
    "whole floats": (
        lambda v, at: pa.array([float(x) for x in v]),
        {"else": "either", "src": "refused", "dst": "refused", "id": "refused"},
    ),
    "a fraction": (lambda v, at: pa.array(_one([float(x) for x in v], at, 1.5)), {"else": "refused"}),
    "NaN": (
        lambda v, at: pa.array(_one([float(x) for x in v], at, float("nan"))),
        {"else": "refused", "label": "either"},
    ),
    "infinite": (lambda v, at: pa.array(_one([float(x) for x in v], at, float("inf"))), {"else": "refused"}),
    "negative": (lambda v, at: pa.array(_one(v, at, -7)), {"else": "refused"}),
    "huge": (lambda v, at: pa.array(_one(v, at, 1 << 62)), {"else": "refused"}),
    "beyond 63 bits": (lambda v, at: pa.array(_one(v, at, (1 << 64) - 1), pa.uint64()), {"else": "refused"}),
    "decimals": (
        lambda v, at: pa.array([Decimal(x) for x in v]),
        {"else": "either", "src": "refused", "dst": "refused", "id": "refused"},
    ),
    "small integers": (lambda v, at: pa.array(v, pa.int8()), {"else": "same"}),
    "unsigned": (lambda v, at: pa.array(v, pa.uint64()), {"else": "same"}),
    "strings of numbers": (lambda v, at: pa.array([str(x) for x in v]), {"else": "either"}),
}
NUMBERS: dict[str, tuple[Change, dict[str, str]]] = {
    "NaN": (lambda v, at: pa.array(_one(v, at, float("nan"))), {"else": "refused"}),
    "infinite": (lambda v, at: pa.array(_one(v, at, float("inf"))), {"else": "refused"}),
    "too large": (lambda v, at: pa.array(_one(v, at, 1e300)), {"else": "refused"}),
    "words": (lambda v, at: pa.array([f"x{x}" for x in v]), {"else": "refused"}),
}


def column_case(folder: Path, random: np.random.Generator) -> Case:
    """A Parquet table with a column of another kind."""
    names = bool(random.integers(2))
    tables = sound(names)
    column = str(random.choice(["src", "dst", "id", "weight", "type", "label", "split", "f0"]))
    changes = dict(COLUMNS)
    if column in _NUMBERS:
        changes |= NUMBERS
    if column in ("type", "label") or (column in _IDS and not names):
        changes |= INTEGERS
    change = str(random.choice(sorted(changes)))
    table = _TABLE_OF.get(column, "nodes")
    values = tables[table].column(column).to_pylist()
    make, expected = changes[change]
    new = make(values, int(random.integers(len(values))))
    tables[table] = tables[table].set_column(tables[table].schema.get_field_index(column), column, new)
    for name, made in tables.items():
        pa.parquet.write_table(made, folder / f"{name}.parquet")
    return Case(f"column {column}: {change}", argv_of(folder, "parquet", names), expected.get(column, expected["else"]))


def argv_of(folder: Path, kind: str, names: bool) -> list[str]:
    return [str(folder / f"edges.{kind}"), "--nodes", str(folder / f"nodes.{kind}"), *flags(names)]


def _csv(table: pa.Table, delimiter: str = ",") -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(delimiter=delimiter, quoting_style="needed"))
    return out.getvalue().replace(b'"', b"")


def _lines(change: Callable[[list[bytes], int], list[bytes]]) -> Callable[[bytes, int], bytes]:
    return lambda data, at: b"\n".join(change(data.split(b"\n"), 1 + at % (data.count(b"\n") - 1)))


def _spoil_line(line: Callable[[bytes], bytes]) -> Callable[[bytes, int], bytes]:
    return _lines(lambda lines, at: [*lines[:at], line(lines[at]), *lines[at + 1 :]])


TEXTS: dict[str, tuple[Callable[[bytes, int], bytes], str]] = {
    "byte order mark": (lambda data, at: b"\xef\xbb\xbf" + data, "same"),
    "CRLF": (lambda data, at: data.replace(b"\n", b"\r\n"), "same"),
    "CR": (lambda data, at: data.replace(b"\n", b"\r"), "either"),
    "quoted": (
        lambda data, at: (
            b"\n".join(b",".join(b'"' + cell + b'"' for cell in line.split(b",")) for line in data.split(b"\n")[:-1])
            + b"\n"
        ),
        "same",
    ),
    "open quote": (_spoil_line(lambda line: b'"' + line), "refused"),
    "open quote in the last column": (
        _spoil_line(lambda line: b",".join([*line.split(b",")[:-1], b'"' + line.rsplit(b",", 1)[-1]])),
        "refused",
    ),
    "open quote in a column of notes": (
        lambda data, at: _spoil_line(lambda line: line + b'"odd')(data.replace(b"\n", b",\n"), at),
        "refused",
    ),
    "UTF-16": (lambda data, at: data.decode().encode("utf-16"), "refused"),
    "not UTF-8 in a cell": (_spoil_line(lambda line: b"\xff\xfe" + line), "refused"),
    "not UTF-8 in the header": (lambda data, at: b"\xff" + data, "refused"),
    "Latin-1": (_spoil_line(lambda line: "é".encode("latin-1") + line), "refused"),
    "NUL": (_spoil_line(lambda line: b"\0" + line), "refused"),
    "empty": (lambda data, at: b"", "refused"),
    "newline only": (lambda data, at: b"\n", "refused"),
    "header only": (lambda data, at: data.split(b"\n")[0] + b"\n", "either"),
    "without a header": (lambda data, at: data.split(b"\n", 1)[1], "refused"),
    "blank lines": (_spoil_line(lambda line: b"\n\n" + line), "same"),
    "no newline at the end": (lambda data, at: data.rstrip(b"\n"), "same"),
    "a cell too many": (_spoil_line(lambda line: line + b",1"), "refused"),
    "a cell too few": (_spoil_line(lambda line: line.rsplit(b",", 1)[0]), "refused"),
    "an empty first cell": (_spoil_line(lambda line: b"," + line.split(b",", 1)[1]), "refused"),
    "words for an id": (_spoil_line(lambda line: b"what," + line.split(b",", 1)[1]), "refused"),
    "a fraction for an id": (_spoil_line(lambda line: b"1.5," + line.split(b",", 1)[1]), "refused"),
    "a huge id": (_spoil_line(lambda line: b"99999999999999999999," + line.split(b",", 1)[1]), "refused"),
    "nan for an id": (_spoil_line(lambda line: b"nan," + line.split(b",", 1)[1]), "refused"),
    "a column twice": (
        lambda data, at: b"\n".join(line.split(b",", 1)[0] + b"," + line for line in data.split(b"\n")[:-1]) + b"\n",
        "refused",
    ),
    "a column missing": (
        lambda data, at: b"\n".join(line.split(b",", 1)[1] for line in data.split(b"\n")[:-1]) + b"\n",
        "refused",
    ),
    "semicolons": (lambda data, at: data.replace(b",", b";"), "refused"),
    "blanks around cells": (lambda data, at: data.replace(b",", b" , "), "refused"),
    "comment line": (lambda data, at: b"# made by hand\n" + data, "refused"),
    "gzip by name only": (lambda data, at: data, "refused"),
}


def text_case(folder: Path, random: np.random.Generator) -> Case:
    """A CSV table spoiled as text."""
    names = bool(random.integers(2))
    tables, which = sound(names), str(random.choice(["edges", "nodes"]))
    change = str(random.choice(sorted(TEXTS)))
    make, expected = TEXTS[change]
    kind = "csv.gz" if random.random() < 0.2 or change == "gzip by name only" else "csv"
    for name, table in tables.items():
        data = _csv(table)
        if name == which:
            data = make(data, int(random.integers(1000)))
        if kind == "csv.gz" and not (name == which and change == "gzip by name only"):
            data = gzip.compress(data)
        (folder / f"{name}.{kind}").write_bytes(data)
    return Case(f"{kind} of {which}: {change}", argv_of(folder, kind, names), expected)


def byte_case(folder: Path, random: np.random.Generator) -> Case:
    """A table of any kind with bytes changed."""
    names = bool(random.integers(2))
    kind = str(random.choice(["parquet", "csv", "tsv", "csv.gz", "csv.zst", "pq"]))
    for name, table in sound(names).items():
        file = folder / f"{name}.{kind}"
        if kind in ("parquet", "pq"):
            pa.parquet.write_table(table, file)
        elif kind == "csv.zst":
            file.write_bytes(pa.compress(_csv(table), "zstd", asbytes=True))
        else:
            data = _csv(table, "\t" if kind == "tsv" else ",")
            file.write_bytes(gzip.compress(data) if kind == "csv.gz" else data)
    way = (flip_bits, cut, extend, empty, zero_page)[int(random.integers(5))]
    return Case(f"{kind}: {way(folder, random)}", argv_of(folder, kind, names), "either")


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(6)
    return {
        "edge_index": random.integers(0, VERTICES, (2, EDGES)),
        "feat": random.standard_normal((VERTICES, 4), dtype=np.float32),
        "label": random.integers(0, 3, VERTICES),
        "split": random.integers(0, 3, VERTICES).astype(np.uint8),
        "edge_weight": random.random(EDGES, dtype=np.float32),
        "edge_type": random.integers(0, 3, EDGES),
    }


ARRAYS: dict[str, tuple[Callable[[np.ndarray], object], dict[str, str]]] = {
    "big endian": (lambda a: a.astype(a.dtype.newbyteorder(">")), {"else": "same"}),
    "Fortran order": (np.asfortranarray, {"else": "same"}),
    "no dimension": (lambda a: a.reshape(-1)[0], {"else": "refused"}),
    "one dimension more": (lambda a: a[..., None], {"else": "refused", "label": "same"}),
    "one dimension less": (lambda a: a[0], {"else": "refused"}),
    "transposed": (lambda a: a.T, {"else": "same", "edge_index": "refused", "feat": "refused"}),
    "no rows": (lambda a: a[:0], {"else": "refused"}),
    "no columns": (lambda a: a.reshape(*a.shape[:1], -1)[:, :0], {"else": "refused", "feat": "either"}),
    "a row short": (lambda a: a[..., :-1] if a.ndim == 2 and len(a) == 2 else a[:-1], {"else": "refused"}),
    "strings": (lambda a: a.astype("U8"), {"else": "refused"}),
    "bytes": (lambda a: a.astype("S8"), {"else": "refused"}),
    "objects": (lambda a: a.astype(object), {"else": "refused"}),
    "complex": (lambda a: a.astype(complex), {"else": "refused"}),
    "times": (lambda a: a.astype(np.int64).astype("M8[s]"), {"else": "refused"}),
    "records": (lambda a: np.zeros(a.shape, [("a", "i4"), ("b", "f4")]), {"else": "refused"}),
    "booleans": (
        lambda a: a.astype(bool),
        {"else": "refused", "feat": "either", "label": "either", "edge_weight": "either"},
    ),
    "whole floats": (lambda a: np.rint(a).astype(np.float64), {"else": "either", "edge_index": "refused"}),
    "halves": (lambda a: a + 0.5, {"else": "refused", "feat": "either", "edge_weight": "either"}),
    "NaN": (
        lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, np.nan, a),
        {"else": "refused", "label": "either"},
    ),
    "infinite": (lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, np.inf, a), {"else": "refused"}),
    "negative": (
        lambda a: np.where(
            np.arange(a.size).reshape(a.shape) == 3, -5, a.astype(np.float64 if a.dtype.kind == "f" else np.int64)
        ),
        {"else": "refused", "feat": "either", "edge_weight": "either"},
    ),
    "huge": (
        lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, np.int64(1 << 61), a.astype(np.int64)),
        {"else": "refused", "feat": "either", "edge_weight": "either"},
    ),
    "unsigned": (lambda a: a.astype(np.uint64), {"else": "either"}),
    "long doubles": (lambda a: a.astype(np.longdouble), {"else": "either", "edge_index": "refused"}),
    "an npz": (lambda a: {"arr_0": a}, {"else": "refused"}),
    "text": (lambda a: b"0 1\n1 2\n", {"else": "refused"}),
}


def array_case(folder: Path, random: np.random.Generator) -> Case:
    """A folder of .npy files, one of which is another array."""
    made = arrays()
    name, change = str(random.choice(sorted(made))), str(random.choice(sorted(ARRAYS)))
    make, expected = ARRAYS[change]
    for other, array in made.items():
        np.save(folder / f"{other}.npy", array)
    new, file = make(made[name]), folder / f"{name}.npy"
    if isinstance(new, dict):
        np.savez(folder / "aside.npz", **new)
        (folder / "aside.npz").rename(file)
    elif isinstance(new, bytes):
        file.write_bytes(new)
    else:
        np.save(file, new)
    return Case(f"{name}.npy: {change}", [str(folder)], expected.get(name, expected["else"]))


def array_byte_case(folder: Path, random: np.random.Generator) -> Case:
    """A folder of .npy files with bytes changed; or the whole in an .npz, which is no source."""
    made = arrays()
    if random.random() < 0.1:
        np.savez(folder / "all.npz", **made)
        return Case("an npz", [str(folder / "all.npz")], "refused")
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "relations.txt").write_text("a\nb\nc\n")
    way = (flip_bits, cut, extend, empty, zero_page)[int(random.integers(5))]
    return Case(way(folder, random), [str(folder)], "either")


KINDS = (column_case, text_case, byte_case, array_case, array_byte_case)
