"""Ways to damage a folder of arrays, each drawn by a seed: what disks, copies, editors and other programs do to files.

A way takes the folder and a random generator, changes files, and says what it did. Bytes that are changed by hand keep the
sums of the manifest; `lie` writes sums that fit, as a program would that makes such a folder wrongly.
"""

import ast
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

Way = Callable[[Path, np.random.Generator], str]
_HEADER = 128


def _file(folder: Path, random: np.random.Generator) -> Path:
    """One of the folder's files; index arrays and small ones as often as large ones."""
    return Path(random.choice([str(file) for file in sorted(folder.iterdir()) if file.is_file()]))


def _array_file(folder: Path, random: np.random.Generator) -> Path:
    return Path(random.choice([str(file) for file in sorted(folder.glob("*.npy"))]))


def flip_bits(folder: Path, random: np.random.Generator) -> str:
    """One to three bits of a file are flipped."""
    file = _file(folder, random)
    data = bytearray(file.read_bytes())
    for _ in range(int(random.integers(1, 4))):
        bit = int(random.integers(len(data) * 8))
        data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)
    return f"flip in {file.name}"


def cut(folder: Path, random: np.random.Generator) -> str:
    """A file ends too early."""
    file = _file(folder, random)
    data = file.read_bytes()
    file.write_bytes(data[: int(random.integers(len(data)))])
    return f"cut {file.name}"


def extend(folder: Path, random: np.random.Generator) -> str:
    """A file goes on after its end."""
    file = _file(folder, random)
    file.write_bytes(file.read_bytes() + random.bytes(int(random.integers(1, 300))))
    return f"extend {file.name}"


def empty(folder: Path, random: np.random.Generator) -> str:
    """A file is there, and holds nothing."""
    file = _file(folder, random)
    file.write_bytes(b"")
    return f"empty {file.name}"


def remove(folder: Path, random: np.random.Generator) -> str:
    """A file is gone."""
    file = _file(folder, random)
    file.unlink()
    return f"remove {file.name}"


def folder_for_file(folder: Path, random: np.random.Generator) -> str:
    """There is a folder where a file should be."""
    file = _file(folder, random)
    file.unlink()
    file.mkdir()
    return f"folder in place of {file.name}"


def zero_page(folder: Path, random: np.random.Generator) -> str:
    """Some bytes read as zeros, as after a crash of the machine."""
    file = _file(folder, random)
    data = bytearray(file.read_bytes())
    first = int(random.integers(len(data)))
    end = min(len(data), first + int(random.integers(8, 4096)))
    if not any(data[first:end]):
        data[first] ^= 1
    else:
        data[first:end] = bytes(end - first)
    file.write_bytes(data)
    return f"zeros in {file.name}"


def swap(folder: Path, random: np.random.Generator) -> str:
    """Two files have each other's name."""
    files = sorted(folder.glob("*.npy"))
    if len(files) < 2:
        return flip_bits(folder, random)
    one, other = (files[at] for at in random.choice(len(files), 2, replace=False))
    aside = folder / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return f"swap {one.name} and {other.name}"


def _headers(shape: list[int], dtype: str, random: np.random.Generator) -> tuple[str, object, object]:
    """Another type, order and shape for an array."""
    dtypes = [
        "<i4",
        ">i4",
        "<i8",
        ">i8",
        "<u4",
        "<f4",
        "<f8",
        "<f2",
        "|u1",
        "|b1",
        "|O",
        "<U1",
        "|S4",
        "<c8",
        "<M8[s]",
        "zz",
        "",
    ]
    shapes = [
        [],
        [-1],
        [0],
        [*shape, 1],
        [1, *shape],
        [2 * max(shape, default=1)],
        [1 << 62],
        [1 << 40, 1 << 40],
        "x",
        [1.5],
        shape[::-1],
    ]
    if random.random() < 0.5:
        return dtypes[int(random.integers(len(dtypes)))], False, shape
    if random.random() < 0.2:
        return dtype, True, shape
    return dtype, False, shapes[int(random.integers(len(shapes)))]


def _with_header(file: Path, dtype: object, fortran: object, shape: object) -> None:
    shape = tuple(shape) if isinstance(shape, list) else shape
    text = repr({"descr": dtype, "fortran_order": fortran, "shape": shape}).encode().ljust(_HEADER - 11) + b"\n"
    head = b"\x93NUMPY\x01\x00" + (len(text)).to_bytes(2, "little") + text
    file.write_bytes(head + file.read_bytes()[_HEADER:])


def _entry(file: Path) -> tuple[list[int], str]:
    header = ast.literal_eval(file.read_bytes()[10:_HEADER].decode().strip())
    return list(header["shape"]), header["descr"]


def header(folder: Path, random: np.random.Generator) -> str:
    """An array's header names another type, order or shape."""
    file = _array_file(folder, random)
    shape, dtype = _entry(file)
    new = _headers(shape, dtype, random)
    if new == (dtype, False, shape):
        new = (dtype, False, [*shape, 1])
    _with_header(file, *new)
    return f"header of {file.name}: {new}"


def header_and_manifest(folder: Path, random: np.random.Generator) -> str:
    """Header and manifest agree on another type or shape of the same bytes."""
    file = _array_file(folder, random)
    shape, dtype = _entry(file)
    dtypes = [
        kind
        for kind in (
            "<i4",
            "<i8",
            "<u4",
            "<u8",
            ">i4",
            ">i8",
            "<f4",
            "<f8",
            "<f2",
            "|u1",
            "|i1",
            "<u2",
            "|S4",
            "<U1",
            "<M8[s]",
        )
        if kind != dtype
    ]
    new, size = str(random.choice(dtypes)), file.stat().st_size - _HEADER
    made = [*shape]
    made[0] = size // np.dtype(new).itemsize // int(np.prod(shape[1:], dtype=int) or 1) if shape else 0
    if random.random() < 0.3:
        new, made = dtype, [*shape, 1] if random.random() < 0.5 else [shape[0] // 2, 2]
    manifest = _manifest(folder)
    if file.stem not in manifest.get("arrays", {}):
        return header(folder, random)
    _with_header(file, new, False, made)
    manifest["arrays"][file.stem] |= {"shape": made, "dtype": new}
    _write(folder, manifest)
    return f"{file.name} is said to be {new} {made}"


def _manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def _write(folder: Path, manifest: object) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


_ODD = [None, "", "x", -1, 0, 1, 1 << 70, 1.5, True, [], {}, [1], {"a": 1}, float("nan"), ["a", 1, None]]


def edit_manifest(folder: Path, random: np.random.Generator) -> str:
    """Something in the manifest is missing, of another kind, or new."""
    manifest = _manifest(folder)
    where = manifest
    name = str(random.choice(sorted(manifest)))
    if name == "arrays" and random.random() < 0.9:
        where = manifest["arrays"]
        name = str(random.choice(sorted(where)))
        if random.random() < 0.7:
            where = where[name]
            name = str(random.choice(sorted(where)))
    before = json.dumps(where[name])
    if random.random() < 0.3:
        del where[name]
        what = "gone"
    else:
        odd = [value for value in _ODD if json.dumps(value) != before]
        where[name] = odd[int(random.integers(len(odd)))]
        what = where[name]
    if random.random() < 0.05:
        manifest, name, what = _ODD[int(random.integers(len(_ODD)))], "all", ""
    _write(folder, manifest)
    return f"manifest: {name} = {what!r} (was {before[:40]})"


_WRONG = {  # values that an array can't hold, for graphs of 200 vertices and 4 classes
    "indptr": [-1, 1 << 40, -(1 << 63), "reversed"],
    "indices": [-1, 200, (1 << 31) - 1, -(1 << 31)],
    "edge_weight": [np.nan, np.inf],
    "edge_type": [-1, 2, 1 << 30],
    "edge_features": [np.nan, np.inf, -np.inf],
    "vertex_type": [3, 255],
    "features": [np.nan, np.inf, -np.inf],
    "labels": [-2, 4, 1 << 30],
    "split": [4, 255],
    "original_ids": [-1, 200, 1 << 60],
    "bounds": [-5, 1000, "reversed"],
    "shares": [0, -1, np.nan, np.inf],
    "names_offsets": [-1, 1 << 40, "reversed"],
    "names_text": [0xFF],
}


def lie(folder: Path, random: np.random.Generator) -> str:
    """Some values of an array are beyond what it may hold, and all sums fit."""
    manifest, files = _manifest(folder), sorted(folder.glob("*.npy"))
    file = files[int(random.integers(len(files)))]
    array = np.load(file)
    if not array.size:
        return flip_bits(folder, random)
    wrong = _WRONG[file.stem.rstrip("_0123456789")]
    value, at = wrong[int(random.integers(len(wrong)))], int(random.integers(array.size))
    if value == "reversed":
        array = array[::-1].copy()
    else:
        array.reshape(-1)[at] = value
    np.save(file, array)
    manifest["arrays"][file.stem]["crc32"] = zlib.crc32(file.read_bytes()[_HEADER:])
    _write(folder, manifest)
    return f"{file.name}[{at}] = {value}, with a sum that fits"


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        flip_bits,
        cut,
        extend,
        empty,
        remove,
        folder_for_file,
        zero_page,
        swap,
        header,
        header_and_manifest,
        edit_manifest,
        lie,
    )
}


def damaged(folder: Path, copy: Path, way: str, seed: int) -> str:
    """A copy of a folder, damaged in a way; what was done to it."""
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(folder, copy)
    return WAYS[way](copy, np.random.default_rng([seed, *map(ord, way)]))
