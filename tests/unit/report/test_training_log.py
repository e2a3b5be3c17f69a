"""What people see of a run: bars and lines, and TensorBoard's log."""

import errno
from types import SimpleNamespace

import pytest

from weft.errors import StorageError
from weft.plan import Settings
from weft.report import training_log
from weft.training import EpochEnded, Started, Stepped


class Writer:
    """In the place of TensorBoard's, which may not be here."""

    def __init__(self, folder):
        self.told = []
        WRITERS.append(self)

    def add_scalar(self, name, value, at):
        self.told.append((name, value, at))

    def flush(self):
        self.told.append("flushed")

    def close(self):
        self.told.append("closed")


WRITERS = []


def opened(folder, monkeypatch):
    monkeypatch.setattr(training_log, "find_spec", lambda name: True)
    monkeypatch.setattr(training_log, "import_module", lambda name: SimpleNamespace(SummaryWriter=Writer))
    return training_log.listener_for(Settings.of(tensorboard=folder, log="none"))


def test_what_tensorboard_is_told_is_written_at_once(tmp_path, monkeypatch):
    """A run may be ended at any time, and its process."""
    WRITERS.clear()
    with pytest.raises(KeyboardInterrupt), opened(tmp_path, monkeypatch) as listen:
        listen(EpochEnded(0, 0.5, 2.0, 0.25, True, {}, "gdp", {}, {}))
        assert WRITERS[0].told == [("loss", 0.5, 1), ("seconds", 2.0, 1), ("validation", 0.25, 1), "flushed"]
        raise KeyboardInterrupt
    assert WRITERS[0].told[-1] == "closed"


def test_tensorboards_folder_is_looked_at_first(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    WRITERS.clear()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="file is a file: name another"), opened(folder, monkeypatch):
            pass
    assert not WRITERS


@pytest.mark.parametrize("when", ["__init__", "add_scalar", "flush", "close"])
def test_what_tensorboard_can_not_write_is_told_in_a_sentence(tmp_path, monkeypatch, when):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Writer, when, full)
    with (
        pytest.raises(StorageError, match=f"no space left while writing {tmp_path}: free some"),
        opened(tmp_path, monkeypatch) as listen,
    ):
        listen(EpochEnded(0, 0.5, 2.0, 0.25, True, {}, "gdp", {}, {}))


def test_speed_is_of_training_not_of_what_was_before_it(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(training_log, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    shown = training_log.Human()
    clock[0] = 30.0  # a plan was found
    shown(Started("a plan", {}, 1, 10, 0, 0, True))
    clock[0] = 32.0
    shown(Stepped(0, 1, 0.5, 100, 8_000_000))
    assert shown._bars.tasks[0].fields["shown"] == "loss 0.500  4.0M edges/s"
