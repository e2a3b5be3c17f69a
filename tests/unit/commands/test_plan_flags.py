"""Flags of `weft plan` that are refused before anything is computed."""

import pytest

from weft import cli
from weft.commands.plan import host_counts
from weft.errors import ConfigError


def test_numbers_of_hosts():
    assert host_counts("1..64") == [1, 2, 4, 8, 16, 32, 64]
    assert host_counts("3..9") == [3, 4, 8, 9] and host_counts("3..3") == [3]
    assert host_counts("4,2,1,2") == [1, 2, 4]  # efficiency is of the fewest
    for wrong in ("3..1", "0..4", "0", "2,-1"):
        with pytest.raises(ConfigError, match="numbers of hosts start at 1, and a range goes upwards"):
            host_counts(wrong)
    for wrong in ("", "1..", "1..2..3", "a"):
        with pytest.raises(ConfigError, match=r"is not a range such as 1\.\.64, or a list such as 2,3,4"):
            host_counts(wrong)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["plan", "--html", "."], ". is a folder: name a file"),
        (["plan", "--html", "none/page.html"], "none/page.html is in a folder that is not there: make it"),
        (["report", "partition", "graph", "parts", "--html", "none/page.html"], "is in a folder that is not there"),
        (["probe", "--out", "."], ". is a folder: name a file"),
        (["plan", "--cluster", "c.toml", "--measure", "-3"], "--measure -3: give how many epochs are trained"),
    ],
)
def test_what_can_not_be_written_or_measured_is_refused_first(tmp_path, monkeypatch, capsys, flags, reason):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*flags[:1], "graph", *flags[1:]] if flags[0] == "plan" else flags) == 2
    assert reason in capsys.readouterr().err


def test_more_hosts_or_workers_than_can_be(tmp_path):
    with pytest.raises(ConfigError, match=r"--hosts 99999999999: 65,536 hosts are the most"):
        host_counts("99999999999")
