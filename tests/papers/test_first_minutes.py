"""From a wheel to predictions: the docs have the commands, and show the seconds that are on record."""

from first_minutes import FOLDER, NAME, PAGE, TABLE, table
from first_steps import first_steps
from papers.records import Records


def test_the_docs_show_what_the_records_say():
    shown = TABLE.search(PAGE.read_text())
    assert shown is not None
    assert shown[0] == table(Records(NAME, FOLDER)), "run `python benchmarks/first_minutes.py WHEEL --record`"


def test_the_docs_have_each_step():
    local, slurm = first_steps("local"), first_steps("slurm")
    assert list(local) == ["environment", "installation", "import", "training", "predictions"]
    assert list(slurm) == ["environment", "installation", "import", "partition", "training", "predictions"]
    assert local["training"].startswith("env/bin/weft train ") and slurm["training"].startswith("srun -N 4 ")
