"""The flags of the command line: few at first, all of them on request, and shown without waiting for PyTorch."""

import argparse
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from launcher import ran

from weft import cli, cluster, training
from weft.commands import info
from weft.commands.flags import add_settings, settings_given
from weft.commands.joining import add_meeting, joined
from weft.config import read_toml
from weft.errors import ConfigError
from weft.graph import Graph, communities
from weft.plan import DEFAULTS, PLACES, ParallelSettings
from weft.stopping import heard

OWN = {
    "doctor": ["--config", "--help", "--help-all", "--json", "--out", "--set"],
    "train": ["--config", "--help", "--help-all", "--out", "--set"],
    "plan": ["--config", "--help", "--help-all", "--hosts", "--html", "--json", "--measure", "--method", "--set"],
}


def flags_in_help(capsys, *words):
    with pytest.raises(SystemExit) as end:
        cli.main([*words])
    assert end.value.code == 0
    lines = re.findall(r"^  (-.*)", capsys.readouterr().out, re.M)
    return [flag for line in lines for flag in re.findall(r"(?<!\S)--[a-z-]+", line.split("   ")[0])]


@pytest.mark.parametrize("command", OWN)
def test_first_help_is_short_and_the_other_complete(capsys, command):
    first, whole = flags_in_help(capsys, command, "--help"), flags_in_help(capsys, command, "--help-all")
    assert len(first) <= 40 or command != "train"
    settings = [f"--{key.replace('_', '-')}" for key in PLACES]
    negated = [f"--no-{key.replace('_', '-')}" for key, usual in DEFAULTS.items() if isinstance(usual, bool)]
    assert sorted(whole) == sorted([*OWN[command], *settings, *negated])
    assert set(first) < set(whole)


@pytest.mark.parametrize("words", [["--fanouts", "-1,3"], ["--fanouts=-1,3"], ["--fanouts", "full,3"]], ids=str)
def test_a_list_may_begin_with_all_neighbours(words, tmp_path, capsys):
    """argparse takes what begins with a minus for an option."""
    assert cli.main(["train", str(tmp_path / "none"), "--layers", "3", *words]) == 2
    assert "layers = 3 and 2 fanouts contradict each other" in capsys.readouterr().err


def test_any_setting_can_be_set(tmp_path, capsys):
    config = tmp_path / "run.toml"
    config.write_text("[sampling]\nfanouts = [3, 3]\n[optimisation]\nlr = 0.5\n")

    def refused(*words):
        assert cli.main(["train", str(tmp_path / "none"), "--config", str(config), *words]) == 2
        return capsys.readouterr().err

    assert "there is no graph at" in refused("--set", "optimisation.lr=0.1", "--set", "parallel.watch=off")
    assert "lr = -1.0 is out of range" in refused("--set", "optimisation.lr=-1")
    assert "write it like --set optimisation.lr=0.1" in refused("--set", "lr=0.1")
    assert "write it like --set optimisation.lr=0.01" in refused("--set", "nonsense")
    twice = refused("--set", "optimisation.lr=0.1", "--set", "optimisation.lr=0.2")
    assert "--set optimisation.lr is given twice: 0.1 and 0.2" in twice
    assert "lr is set twice" in refused("--lr", "0.2", "--set", "optimisation.lr=0.1")
    assert "the table [plan] has no setting 'slac'; did you mean 'slack'?" in refused("--set", "plan.slac=1")


@pytest.mark.parametrize(
    "words, told",
    [
        ("train g --epcohs 3", "weft train: error: unrecognized arguments: --epcohs 3; did you mean --epochs?"),
        (
            "train g --learning-rate=3",
            "weft train: error: unrecognized arguments: --learning-rate=3; did you mean --lr?",
        ),
        ("info g --help-all", "weft info: error: unrecognized arguments: --help-all; did you mean --help?"),
        ("info g --lr 3", "weft info: error: unrecognized arguments: --lr 3"),
        ("launch slurm --hsots 4", "weft launch slurm: error: unrecognized arguments: --hsots; did you mean --hosts?"),
        ("launch slurm -- train g --epcohs 3", "arguments: --epcohs 3; did you mean --epochs?"),
        ("trian g", "did you mean train?"),
        ("embed g --what prediction", "did you mean predictions?"),
    ],
    ids=str,
)
def test_a_misspelt_word_is_told_by_its_command_with_what_was_likely_meant(words, told, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words.split())
    assert end.value.code == 2
    usage, line = capsys.readouterr().err.rstrip().rsplit("\n", 1)
    assert line.endswith(told) and usage.startswith(f"usage: {line.partition(': error')[0]} ")


def test_flags_with_the_name_of_a_group_stand_beside_its_other_settings():
    given = ["--model", "gcn", "--set", "model.hidden=64", "--plan", "gdp", "--set", "plan.prefetch=0"]
    given += ["--task", "link", "--set", "task.hits=20", "--evaluation", "exact", "--set", "evaluation.every=2"]
    given += ["--checkpoint", "here", "--set", "checkpoint.keep=5"]
    parser = argparse.ArgumentParser()
    add_settings(parser)
    found = settings_given(parser.parse_args(given), "weft train")
    assert (found.model.name, found.model.hidden, found.plan.name, found.plan.prefetch) == ("gcn", 64, "gdp", 0)
    assert (found.task.name, found.task.hits, found.evaluation.every) == ("link", 20, 2)
    assert (str(found.checkpoint.folder), found.checkpoint.keep) == ("here", 5)
    assert "exact" in vars(found.evaluation).values()
    with pytest.raises(ConfigError, match=r"model is set twice, by its flag and --set model.name: drop one of them"):
        settings_given(parser.parse_args(["--model", "gcn", "--set", "model.name=sage"]), "weft train")


@pytest.mark.parametrize("words", [[], *([command] for command in cli.COMMANDS), ["train", "--help-all"]])
def test_help_imports_nothing_heavy(words):
    """Names of methods and of built-in data sets need numpy, and what graphs are read by; all other help not even that."""
    heavy = {"torch", "torch_geometric", "scipy", "rich", "jinja2"}
    heavy |= set() if words in (["partition"], ["import"]) else {"numpy", "pyarrow"}
    script = (
        "import sys; from weft import cli\n"
        f"try: cli.main({words if '--help-all' in words else [*words, '--help']})\n"
        "except SystemExit: pass\n"
        f"heavy = {heavy} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


NAME = "gr\u00e4ph"


def test_terminals_that_lack_characters_are_written_to(tmp_path):
    """Names of files, and lines of tables, may have what an old terminal's encoding has not."""
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}
    for words, code, said in ((["info"], 2, "stderr"), (["generate", "rmat"], 0, "stdout")):
        script = f"from weft.cli import main; raise SystemExit(main([*{words}, {NAME!a}]))"
        done = subprocess.run([sys.executable, "-c", script], env=plain, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code and "Traceback" not in done.stderr
        assert "gr?ph" in getattr(done, said)


@pytest.mark.parametrize("closed", [(1,), (0, 1), (0, 1, 2)])
def test_closed_streams_are_nobodys_mistake(tmp_path, closed):
    """As where a daemon starts it: nothing is printed, and no file is taken for a stream."""
    words = ["generate", "rmat", "g", "--vertices", "100", "--edges", "500"]
    then = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = f"import os, sys; [os.close(stream) for stream in {closed}]; {then}"
    done = subprocess.run(
        [sys.executable, "-c", command, "-m", "weft", *words], cwd=tmp_path, stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert Graph.open(tmp_path / "g").num_vertices == 100


NO_ROOM = "weft: standard output can't be written (No space left on device): write it to another place\n"


def test_a_full_disk_behind_standard_output_is_a_sentence(tmp_path):
    communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "weft.cli", "info", "g"]
        done = subprocess.run(words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, NO_ROOM)


def to_a_full_disk():
    """From now on this process's standard output."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def test_a_full_disk_behind_what_training_tells_is_a_sentence(tmp_path, monkeypatch):
    communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    monkeypatch.chdir(tmp_path)
    done = ran(["weft", "train", "g", "--epochs", 1, "--fanouts", 2, "--log", "json"], prepare=to_a_full_disk)
    assert (done.returncode, done.stderr) == (2, NO_ROOM)


def test_words_that_can_not_be_written_anywhere_leave_the_exit_code(tmp_path):
    """A mistake is one (2), not a lost worker (1), though its sentence meets a full disk."""
    with open("/dev/full", "w") as full:
        for streams in ({"stderr": full, "stdout": subprocess.PIPE}, {"stderr": full, "stdout": full}):
            command = [sys.executable, "-m", "weft.cli", "info", "nosuch"]
            assert subprocess.run(command, cwd=tmp_path, **streams).returncode == 2


@pytest.mark.parametrize("log", ["json", "human"])
def test_a_run_goes_on_when_nobody_reads_what_it_tells(tmp_path, monkeypatch, log):
    """As after `| head -1`: what counts is the model."""
    communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    for stream in ("stdout", "stderr"):
        unread, told = os.pipe()
        os.close(unread)
        monkeypatch.setattr(sys, stream, os.fdopen(told, "w"))
    words = ["--epochs", "2", "--fanouts", "2", "--threads", "1", "--log", log]
    assert cli.main(["train", str(tmp_path / "g"), *words, "--out", str(tmp_path / "m")]) == 0
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["state.json", "state.safetensors"]


def test_under_nohup_runs_outlive_their_terminal(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda signum: signal.SIG_DFL)
    assert signal.SIGHUP in heard()
    monkeypatch.setattr(signal, "getsignal", lambda signum: signal.SIG_IGN)
    assert heard() == (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_command_that_is_stopped_by_a_signal_says_so(monkeypatch, capsys, signum):
    """As where a queue's time is up before a run's first batch; what it was in the middle of is left as after Ctrl-C."""
    cleaned = []

    def interrupted(args):
        try:
            os.kill(os.getpid(), signum)
        finally:
            cleaned.append(args)

    before = signal.getsignal(signum)
    monkeypatch.setattr(info, "run", interrupted)
    assert cli.main(["info", "g"]) == 128 + signum
    assert capsys.readouterr().err == f"weft: stopped by {signum.name}\n"
    assert cleaned and signal.getsignal(signum) is before


def test_a_worker_among_others_is_killed_as_it_was(monkeypatch, capsys):
    """It may wait for them in compiled code, where a handler of Python's would be called too late."""
    there = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "LOCAL_WORLD_SIZE": "1"}
    seen = []

    def work(args):
        seen.append(signal.getsignal(signal.SIGTERM))
        with joined(ParallelSettings(timeout=5.0, device="cpu")):
            seen.append(signal.getsignal(signal.SIGTERM))
        return 0

    monkeypatch.setattr(info, "run", work)
    for place in ({}, there):
        for name, value in place.items():
            monkeypatch.setenv(name, value)
        assert cli.main(["info", "g"]) == 0
    assert [handler == signal.SIG_DFL for handler in seen] == [False, False, False, True]


def test_workers_that_do_not_meet_are_told_in_a_sentence(tmp_path):
    communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "weft.cli", "train", "g", "--timeout", "2", "--out", "file/m"]  # the first one's
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | place, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"worker 1 of 2 could not meet the others at 127.0.0.1:{port} within 2 s" in done.stderr


def test_paths_with_brackets_are_shown_as_they_are(tmp_path, capsys):
    """Which a terminal's library would take for styles."""
    graph, kept = tmp_path / "g[/b]", tmp_path / "c[red]k"
    communities(graph, vertices=60, edges=300, width=3, classes=2, block=30)
    assert cli.main(["info", str(graph)]) == 0
    assert "g[/b]" in capsys.readouterr().out.replace("\n", "")
    words = ["train", str(graph), "--fanouts", "2", "--checkpoint", str(kept), "--threads", "1"]
    assert cli.main([*words, "--epochs", "1"]) == 0
    assert cli.main([*words, "--epochs", "2", "--resume"]) == 0
    assert f"note  going on from {kept}/step-" in capsys.readouterr().out


def test_no_folder_for_temporary_files_is_a_sentence(monkeypatch, tmp_path, capsys):
    """As in a container whose root is read-only; `weft doctor` tells of it in its table."""
    communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])
    monkeypatch.setattr(info, "run", lambda args: len(tempfile.gettempdir()))
    assert cli.main(["info", "g"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("weft: no folder for temporary files (/tmp, ") and told.count("\n") == 1
    assert cli.main(["doctor", str(tmp_path / "g")]) == 1
    assert "no folder for them" in capsys.readouterr().out


def test_a_name_that_is_too_long_is_a_sentence(capsys):
    for words in (["info"], ["verify"], ["train"]):
        assert cli.main([*words, "n" * 300]) == 2
        assert "File name too long" in capsys.readouterr().err


def test_too_many_open_files_is_a_sentence(monkeypatch, capsys):
    for reason, told in ((errno.EMFILE, "raise ulimit -n"), (errno.ENFILE, "sysctl fs.file-max")):

        def run(args, reason=reason):
            raise OSError(reason, "Too many open files", "any.py")

        monkeypatch.setattr("weft.commands.info.run", run)
        assert cli.main(["info", "g"]) == 2
        assert told in capsys.readouterr().err


def test_rooms_are_there_once_weft_is_imported():
    """As the pages write them: weft.nn.Decoupled, weft.lab.locality; here of rooms that import neither torch nor PyG."""
    code = "import weft; print(weft.plan.Plan.__name__, weft.lab.__name__, hasattr(weft, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Plan weft.lab False\n"


def test_what_ends_a_run_at_its_end_is_said_before_it_is_planned(tmp_path, monkeypatch, capsys):
    """A disk without room for the model, and a folder of another run's checkpoints: nothing is computed for them."""
    communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    (tmp_path / "kept" / "step-000000001").mkdir(parents=True)
    words = ["train", str(tmp_path / "g"), "--fanouts", "2", "--epochs", "1", "--workers", "2", "--checkpoint"]
    monkeypatch.setattr(cluster, "launch", lambda _, it: it.check() or pytest.fail("workers were started"))
    assert cli.main([*words, str(tmp_path / "kept")]) == 2
    assert "kept holds checkpoints of an earlier run: go on from them with --resume" in capsys.readouterr().err

    monkeypatch.setattr(training, "trainer_for", lambda *_: pytest.fail("a run was begun"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    assert cli.main(["train", str(tmp_path / "g"), "--fanouts", "2", "--out", str(tmp_path / "new" / "m")]) == 2
    assert re.search(r"takes [\d.]+ \w+, and the disk of \S+/m has 100 B: free some", capsys.readouterr().err)


def test_all_commands_wait_equally_long_for_workers():
    parser = argparse.ArgumentParser()
    add_meeting(parser)
    assert parser.parse_args([]).timeout == DEFAULTS["timeout"]


def test_a_settings_file_is_utf_8_whatever_the_system_has(tmp_path, monkeypatch):
    config = tmp_path / "run.toml"
    config.write_bytes(b"\xef\xbb\xbf" + '[checkpoint]\nfolder = "läufe"\n'.encode())  # as editors of Windows begin it
    monkeypatch.setattr(Path, "read_text", lambda path, *how: path.read_bytes().decode("iso-8859-1"))
    assert read_toml(config) == {"checkpoint": {"folder": "läufe"}}
