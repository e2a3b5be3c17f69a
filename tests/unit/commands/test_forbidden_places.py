"""Places that a command can't read, make or replace are refused in a sentence, before anything is computed."""

import errno
import os
import shlex
import stat
import threading
from pathlib import Path

import pytest

from weft import cli, config
from weft.config import check_writable, file_to_write, path_here, typed
from weft.errors import ConfigError, StorageError
from weft.graph import DirectoryWriter, Graph, communities, without_passwords, written_beside


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "g"
    communities(folder, vertices=60, edges=300, width=3, classes=2, block=30)
    return folder


@pytest.fixture
def forbidden(monkeypatch, tmp_path):
    """A folder of somebody else's, which this user may not search."""
    folder, found = tmp_path / "private", Path.stat

    def found_or_not(path, **how):
        if folder in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return found(path, **how)

    monkeypatch.setattr(Path, "stat", found_or_not)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["info", "{private}/g"],
        ["verify", "{private}/g"],
        ["partition", "{graph}", "{private}/p", "--parts", "2"],
        ["generate", "rmat", "{private}/g"],
        ["import", "{private}/e.csv", "{private}/../new"],
        ["train", "{private}/g"],
        ["train", "{graph}", "--out", "{private}/m"],
        ["embed", "{graph}", "--model", "{private}/m", "--out", "{private}/m.npy"],
        ["probe", "--out", "{private}/c.toml"],
    ],
    ids=" ".join,
)
def test_folders_that_may_not_be_searched_are_named(graph, forbidden, capsys, words):
    assert cli.main([word.format(graph=graph, private=forbidden) for word in words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("weft: no permission for ") and str(forbidden) in said and said.count("\n") == 1
    assert "check" in said and "owner and mode" in said


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 12 MiB"), RuntimeError("can't start new thread")])
def test_no_memory_is_told(graph, capsys, monkeypatch, error):
    def none_left(*given, **more):
        raise error

    monkeypatch.setattr(Graph, "open", none_left)
    assert cli.main(["info", str(graph)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"weft: info ran out of memory ({error}): ") and said.count("\n") == 1


def test_a_password_in_an_address_is_not_told(capsys):
    assert cli.main(["info", "nosuch://me:secret@host/parts"]) == 2
    said = capsys.readouterr().err
    assert "nosuch://me@host/parts" in said and "secret" not in said
    for same in ("abfs://container@account/parts", "http://[::1]:80/a@b", "s3://bucket/a:b@c", "https://host:80/g"):
        assert without_passwords(same) == same


@pytest.mark.parametrize(("names", "where"), [((), "a disk"), (("/tmp/x",), "/tmp/x")])
def test_a_full_disk_is_not_taken_for_standard_output(graph, capsys, monkeypatch, names, where):
    def full(*given, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *names)

    monkeypatch.setattr(Graph, "open", full)
    assert cli.main(["info", str(graph)]) == 2
    told = f"weft: no space left on {where}: free some where results go, and in TMPDIR\n"
    assert capsys.readouterr().err == told


def test_a_file_is_no_place_for_a_folder(graph, tmp_path, capsys):
    (tmp_path / "file").write_text("precious")
    for words in (["generate", "rmat"], ["partition", str(graph)], ["import", str(graph)]):
        for more in ([], ["--overwrite"]):
            assert cli.main([*words, str(tmp_path / "file"), *more]) == 2
            assert "file is a file, and a graph is a folder: choose another name" in capsys.readouterr().err
    assert cli.main(["train", str(graph), "--out", str(tmp_path / "file" / "m")]) == 2
    assert f"as {tmp_path / 'file'} is a file: name another place" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "precious"


def test_what_is_mounted_is_not_replaced(graph, tmp_path, monkeypatch, capsys):
    with pytest.raises(StorageError, match="/proc is a mount point, which can't be replaced: name a place within it"):
        check_writable(Path("/proc"))
    out = tmp_path / "a disk"
    out.mkdir()
    (tmp_path / "link").symlink_to(out)
    mounts = tmp_path / "mountinfo"
    mounts.write_text("36 35 0:1 / {} rw shared:9 - ext4 /dev/sda rw\n".format(str(out).replace(" ", r"\040")))
    monkeypatch.setattr(config, "_MOUNTS", mounts)
    for place in (out, tmp_path / "link"):
        assert cli.main(["train", str(graph), "--out", str(place)]) == 2
        assert f"{place} is a mount point" in capsys.readouterr().err
        with pytest.raises(StorageError, match="is a mount point"):
            DirectoryWriter(place, overwrite=True).check()
    check_writable(out / "m")


def test_a_folder_is_replaced_only_where_its_own_folder_may_be_written(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and allowed(path, mode))
    with pytest.raises(StorageError, match=f"m can't be written, as {tmp_path} is read-only or another user's"):
        check_writable(tmp_path / "m")


def test_a_pipe_is_written_into(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with written_beside(file_to_write(pipe)) as beside:
        beside.write_text("all of it")
    reader.join()
    assert read == ["all of it"] and stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


def test_no_path_holds_a_nul_character():
    with pytest.raises(ConfigError, match="holds a NUL character, which none can: name another"):
        path_here("a\0b")


def test_what_is_said_to_be_typed_is_accepted_of_names_that_begin_with_a_dash(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    communities(Path("-g"), vertices=60, edges=300, width=3, classes=2, block=30)
    assert cli.main(["train", "--out=-m", "--fanouts", "2", "--epochs", "1", "--hidden", "4", "--", "-g"]) == 0
    _, _, told = capsys.readouterr().out.rpartition("saved to ")
    said = told.split("`")[1]
    assert said == "weft embed ./-g --model ./-m"
    assert cli.main([*shlex.split(said)[1:], "--out", "m.npy"]) == 0 and Path("m.npy").exists()
    assert typed("my model") == "'my model'" and typed("m") == "m"
