"""weft report run: predicted and measured seconds by stage, from what a run wrote."""

import json
from dataclasses import asdict

import pytest
from answers import answer
from rich.console import Console

from weft import cli
from weft.errors import ConfigError, StorageError
from weft.plan import Settings, leap
from weft.report import answer_as_dict, print_run, read_run, run_stages
from weft.training import EpochEnded

STAGES = {"sample": 0.5, "fetch": 0.4, "exchange": 1.0, "compute": 2.0, "wait": 0.3}


@pytest.fixture
def log(tmp_path):
    """A run by leap, whose first epoch took longer; then two epochs by a plan that nobody predicted."""

    def ended(number, seconds, plan, factor):
        stages = {name: took * factor for name, took in STAGES.items()}
        rows = {"own": 600, "cache": 300, "remote": 100} if plan == str(leap(3)) else {"own": 50}
        event = EpochEnded(number, 1.0, seconds, None, False, {}, plan, stages, rows)
        return {"record": "EpochEnded", "version": 1, "time": 0.0, **asdict(event)}

    records = [{"record": "Planned", "answer": answer_as_dict(answer())}, {"record": "Notice", "text": "hello"}]
    records += [ended(0, 9.0, str(leap(3)), 3.0), ended(1, 3.0, str(leap(3)), 1.0), ended(2, 3.4, str(leap(3)), 1.2)]
    records += [ended(3, 2.0, "pull+local+local seeds=home", 0.5)]
    file = tmp_path / "run.jsonl"
    file.write_text("weft: some other line\n" + "".join(json.dumps(record) + "\n" for record in records))
    return file


def begun(batches=4, **settings):
    """The line of a run that begins, or goes on."""
    return json.dumps({"record": "Started", "batches": batches, "settings": Settings.of(**settings).flat()}) + "\n"


def test_what_each_stage_took_beside_what_was_predicted(log):
    chosen, other = read_run(log)
    assert chosen.plan == str(leap(3)) and len(chosen.measured) == 3
    assert chosen.predicted["epoch"] == 5.07 and chosen.predicted["fetch"] == 2.86
    assert chosen.usual == pytest.approx(
        {name: 1.1 * took for name, took in STAGES.items()} | {"epoch": 3.2, "sync": 0}
    )
    assert other.predicted is None and other.usual["epoch"] == 2.0  # its only one


def test_the_first_epoch_of_a_resumed_run_does_not_count(log):
    """Its process opens connections, too."""
    *_, second, _ = log.read_text().splitlines(keepends=True)
    log.write_text(
        begun() + log.read_text() + begun(checkpoint="kept", resume=True, workers=3) + second.replace("3.4", "99.0")
    )
    chosen, _ = read_run(log)
    assert len(chosen.measured) == 4 and chosen.first == [0, 3]
    assert chosen.usual["epoch"] == pytest.approx(3.2)


def test_an_epoch_of_several_plans_does_not_count(log):
    """Where there is another."""
    *_, second, _ = log.read_text().splitlines(keepends=True)
    log.write_text(log.read_text() + json.dumps(json.loads(second) | {"seconds": 99.0, "whole": False}) + "\n")
    chosen, _ = read_run(log)
    assert len(chosen.measured) == 4 and chosen.usual["epoch"] == pytest.approx(3.2)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (begun(), "without --resume"),
        (
            begun(checkpoint="kept", resume=True, hidden=16, fanouts=(3, 3)),
            r"hidden = 16, 128 before, fanouts = \[3, 3\], None before",
        ),
        (begun(checkpoint="kept", resume=True, batches=5), "batches = 5, 4 before"),
    ],
)
def test_another_run_in_the_file_is_refused(log, line, what):
    """Its epochs would be taken for the first one's, and its predictions for theirs."""
    log.write_text(begun() + log.read_text() + line)
    with pytest.raises(ConfigError, match=rf"line 9 of .* begins another run \({what}\): write each to a file"):
        read_run(log)


def test_a_run_that_goes_on_under_a_newer_weft_is_the_same_one(log):
    """Which has settings that the first one's records don't name."""
    first, newer = json.loads(begun()), json.loads(begun(checkpoint="kept", resume=True))
    assert first["settings"].pop("sampler") == newer["settings"]["sampler"]
    log.write_text(json.dumps(first) + "\n" + log.read_text() + json.dumps(newer) + "\n")
    assert len(read_run(log)) == 2


def test_the_table(log, capsys):
    print_run(read_run(log), Console(width=100))
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.split()[3:]}
    told = capsys.readouterr()
    assert not told.out
    assert lines["sync"] == ["sync", "0.22", "0", "–"]
    assert lines["wait"][1] == "–"
    assert lines[str(leap(3)).split()[0]][-2:] == ["3", "epochs"]
    assert lines["pull+local+local"][-2:] == ["1", "epoch"]


def test_the_command(log, capsys):
    assert cli.main(["report", "run", str(log)]) == 0
    told = capsys.readouterr().out
    assert told.count("feature rows read") == 1  # where there is but one place, nothing is to be said
    assert "feature rows read: 3,000 (own 60.0%, cache 30.0%, remote 10.0%)" in told
    assert "+58%" in told and "not predicted: the planner chooses where --plan is left out" in told
    assert cli.main(["report", "run", str(log), "--json"]) == 0
    assert [one["plan"] for one in json.loads(capsys.readouterr().out)] == [
        str(leap(3)),
        "pull+local+local seeds=home",
    ]


def test_what_is_no_record_is_refused(tmp_path):
    with pytest.raises(StorageError, match="can't be read"):
        read_run(tmp_path / "missing")
    (tmp_path / "empty").write_text(begun())
    with pytest.raises(ConfigError, match="has no epochs: write it by"):
        read_run(tmp_path / "empty")
    (tmp_path / "torn").write_text('weft\n{"record": \n')
    with pytest.raises(ConfigError, match=r"line 2 of .*torn is no record of a run"):
        read_run(tmp_path / "torn")
    (tmp_path / "later").write_text('{"record": "Started", "version": 9}\n')
    with pytest.raises(ConfigError, match="is a record of version 9, and this weft reads version 1"):
        read_run(tmp_path / "later")
    (tmp_path / "edited").write_text('{"record": "Planned", "version": 1}\n')
    with pytest.raises(
        ConfigError, match=r"records that `weft train --log json` does not write \(KeyError: 'answer'\)"
    ):
        read_run(tmp_path / "edited")
    (tmp_path / "edited").write_text('{"record": "EpochEnded", "plan": "gdp", "seconds": [], "stages": {"a": 1}}\n')
    with pytest.raises(ConfigError, match="does not write"):
        read_run(tmp_path / "edited")


def test_a_run_that_is_still_being_written_is_read_up_to_there(tmp_path):
    epoch = json.dumps(
        {"record": "EpochEnded", "version": 1, "plan": "gdp", "seconds": 1.5, "stages": {"compute": 1.0}}
    )
    (tmp_path / "run").write_text(f"{epoch}\n{epoch}\n{epoch[:-20]}")
    (plan,) = read_run(tmp_path / "run")
    assert [one["epoch"] for one in plan.measured] == [1.5, 1.5]


def test_what_a_process_wrote_that_was_ended_in_the_midst_of_a_line_does_not_matter(log):
    """The next one has gone on in that line."""
    planned, notice, first, second, third, _ = log.read_text().splitlines(keepends=True)[1:]
    on = begun(checkpoint="kept", resume=True)
    step = '{"record": "Stepped", "version": 1, "batch": 7'
    log.write_text(begun() + planned + first[:-30] + on + first + second + step + on + third + step + "\n" + notice)
    (plan,) = read_run(log)
    assert [one["epoch"] for one in plan.measured] == [9.0, 3.0, 3.4] and plan.first == [0, 2]


def test_lines_of_batches_are_passed_over(log, monkeypatch):
    epochs = log.read_text()
    log.write_text('{"record": "Stepped", "version": 1, "loss": 1.0}\n' * 1000 + epochs)
    read, loads = [], json.loads
    monkeypatch.setattr(run_stages.json, "loads", lambda text: read.append(text) or loads(text))
    assert len(read_run(log)) == 2 and len(read) == 6
