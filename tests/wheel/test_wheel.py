"""A wheel has all that it needs, chooses its instructions, and gives the same by each, to the bit where it says so."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from first_steps import first_steps, run_here, write_tables

from weft import __version__
from weft.cli import COMMANDS

KERNELS = Path(__file__).with_name("kernels.py")


@pytest.fixture(scope="module")
def by_level(installed):
    """What the kernels give at each level that is here."""
    best = installed.python(KERNELS)
    found = {level: installed.python(KERNELS, WEFT_KERNELS=level) for level in best["LEVELS"].split()}
    return best, {one["LEVEL"]: one for one in found.values()}


def test_the_best_level_is_chosen_and_a_lower_one_by_name(by_level):
    best, levels = by_level
    assert not best["NATIVE"] and "environment" in best["file"]
    assert best["LEVEL"] == max(levels) and len(levels) >= 1
    for level, one in levels.items():
        assert one["LEVEL"] == level and one["digests"].keys() == best["digests"].keys()


def test_levels_with_fused_multiply_add_give_the_same_bits(by_level):
    levels = by_level[1]
    if not {"x86-64-v3", "x86-64-v4"} <= levels.keys():
        pytest.skip("this machine has no two such levels")
    wide, narrow = levels["x86-64-v4"]["digests"], levels["x86-64-v3"]["digests"]
    dots = ("weighted", "gat")  # of dot products it is left to the compiler what is fused
    differ = [name for name in wide if wide[name] != narrow[name]]
    assert [name for name in differ if not any(word in name for word in dots)] == []


def test_levels_differ_by_rounding_alone(by_level):
    best, levels = by_level
    for low in levels.values():
        assert [
            name for name in low["digests"] if "exact" in name and low["digests"][name] != best["digests"][name]
        ] == []
        for name, sums in low["sums"].items():
            assert sums == pytest.approx(best["sums"][name], rel=1e-12 if "float64" in name else 1e-4), name


def test_a_level_that_is_none_is_refused(installed):
    done = installed.weft("--version", WEFT_KERNELS="x86-64-v9", fails=True)
    assert (
        done.returncode == 2
        and done.stderr.startswith("weft: WEFT_KERNELS=x86-64-v9 is no level")
        and "v3" in done.stderr
    )


def test_the_lowest_level_has_no_wide_instructions(installed):
    """What a processor without AVX would stop at; the dispatcher runs on any."""
    if not shutil.which("objdump"):
        pytest.skip("no objdump")
    with zipfile.ZipFile(installed.wheel) as wheel:
        low = [name for name in wheel.namelist() if name.startswith(("weft/_kernels.", "weft/_kernels_x86_64_v2."))]
        for name in (name for name in low if name.endswith(".so")):
            code = subprocess.run(
                ["objdump", "-d", wheel.extract(name, installed.folder)], capture_output=True, text=True
            )
            assert code.returncode == 0 and "%ymm" not in code.stdout and "%zmm" not in code.stdout, name


def test_nothing_is_linked_to_torch(installed):
    with zipfile.ZipFile(installed.wheel) as wheel:
        libraries = [name for name in wheel.namelist() if ".so" in name]
        assert libraries and not any(
            b"libtorch" in wheel.read(name) or b"libc10" in wheel.read(name) for name in libraries
        )
        assert not [
            name for name in wheel.namelist() if name.startswith(("tests/", "kernels/")) or name.endswith(".cpp")
        ]


def test_version_says_what_it_was_built_with(installed):
    told = installed.weft("--version", WEFT_KERNELS="x86-64-v3").stdout
    for said in (f"weft {__version__}, commit ", "compiled by", "x86-64-v3 in use", "torch 2."):
        assert said in told


@pytest.mark.parametrize("command", COMMANDS)
def test_help(installed, command):
    assert f"usage: weft {command}" in installed.weft(command, "--help").stdout


def test_from_a_built_in_graph_to_predictions(installed):
    """With two workers too, who are started by the same environment."""
    installed.weft("import", "cora", "cora", "--overwrite")
    once = ("--model", "sage", "--fanouts", "5,5", "--epochs", "3")
    alone = installed.weft("train", "cora", *once, "--out", "model").stdout
    assert "test" in alone
    installed.weft("embed", "cora", "--model", "model", "--out", "predictions.parquet", "--what", "predictions")
    assert (installed.folder / "predictions.parquet").stat().st_size > 0
    installed.weft("partition", "cora", "parts", "--parts", "2", "--method", "random", "--overwrite")
    installed.weft("train", "parts", "--workers", "2", *once, "--plan", "split", "--out", "model-of-two")


def test_the_commands_of_the_docs(installed, tmp_path):
    """But for the first ones, by which this environment was made."""
    write_tables(tmp_path, vertices=2000, edges=20_000)
    (tmp_path / "env").symlink_to(installed.folder / "environment")
    steps = first_steps("local")
    assert list(steps) == ["environment", "installation", "import", "training", "predictions"]
    for line in list(steps.values())[2:]:
        run_here(line, tmp_path, {"PATH": "", "HOME": str(tmp_path)})
    assert (tmp_path / "predictions.parquet").stat().st_size > 0
