"""Progress where there is no terminal: silent at first, then a line now and then, with the time that is left."""

import pytest

from weft.report import StageProgress
from weft.report.progress import line_of


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        ((30, 120, 60.0), "placing edges: 30 of 120 in 60 s, about 3 min left"),
        ((0, 120, 60.0), "placing edges: 0 of 120 in 60 s"),
        ((4_000_000, 0, 300.0), "placing edges: 4,000,000 in 5 min"),
        ((120, 120, 60.0), "placing edges: 120 of 120 in 60 s, about 0 s left"),
    ],
)
def test_lines(figures, line):
    assert line_of("placing edges", *figures) == line


def test_short_stages_are_silent_and_long_ones_tell(capsys):
    with StageProgress() as progress:
        for done in range(5):
            progress("counting", done, 5)
    assert capsys.readouterr().err == ""
    with StageProgress(quiet=0.0) as progress:
        progress("counting", 1, 5)
        progress("placing", 2, 4)
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in told] == ["counting", "placing"] and "2 of 4" in told[1]
