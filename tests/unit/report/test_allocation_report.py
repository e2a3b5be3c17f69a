"""What a person sees of a comparison of allocations: the command, the table, the page, JSON."""

import io
import json
import re

import pytest
from allocations import MADE, comparison
from rich.console import Console

from weft import cli
from weft.graph import communities
from weft.report import print_allocations
from weft.report.allocations import allocation_page

FLAGS = (
    *("--parts", "--batches", "--slack", "--measured", "--seed", "--threads", "--html", "--json"),
    *("--fanouts", "--sampler", "--batch-size", "--hidden", "--cluster", "--hosts", "--bandwidths"),
)


def printed(given, width):
    out = io.StringIO()
    print_allocations(given, Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", MADE)
def test_tables_fit_their_terminal(name, width):
    told = printed(MADE[name](), width)
    assert all(len(line) <= width for line in told.splitlines())
    assert "cut" in told and "most out" in told


def test_the_table_tells_all():
    told = printed(comparison(), 120)
    rows = [line.split() for line in told.splitlines()]
    assert ["metis", "14.2%", "0.47", "+3.0%", "−1.0%", "+27%", "+150%"] in rows
    assert "debian, 4 parts" in told and "4 of the 10 batches" in told and "fanouts 10,10,full" in told
    assert re.search(r"leap +traffic +80,000 +160 MB +50 MB +44 MB +0.40 +0.44 \(−9.1%\)", told)


def test_pages_escape_what_they_are_given():
    told = allocation_page(MADE["nasty"]())
    assert "<script" not in told and "&lt;script" in told
    assert told.count("<figure") == 3


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return communities(folder / "g", vertices=2000, edges=20_000, width=6, classes=5, train=0.3)


class TestCommand:
    def test_flags_are_frozen(self, capsys):
        with pytest.raises(SystemExit):
            cli.main(["report", "partition", "--help"])
        assert set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) == {*FLAGS, "--help"}

    def test_directories_are_held_against_their_own_shares(self, graph, tmp_path, capsys):
        made = str(tmp_path / "made")
        asked = ["partition", str(graph.path), made, "--method", "random", "--parts", "3", "--shares", "2,1,1"]
        assert cli.main(asked) == 0
        capsys.readouterr()
        assert cli.main(["report", "partition", str(graph.path), made, "--batch-size", "50", "--json"]) == 0
        (told,) = json.loads(capsys.readouterr().out)["allocations"]
        assert told["figures"]["balance"]["vertices"] == pytest.approx(1, abs=0.01)

    def test_directories_methods_and_measurements(self, graph, tmp_path, capsys):
        made = str(tmp_path / "made")
        assert cli.main(["partition", str(graph.path), made, "--parts", "3", "--method", "metis"]) == 0
        (tmp_path / "m").write_text('{"allocation": "made", "plan": "leap", "seconds": 0.5}\n')
        capsys.readouterr()
        arguments = ["report", "partition", str(graph.path), made, "metis", "random", "--batch-size", "50"]
        arguments += ["--measured", str(tmp_path / "m"), "--bandwidths", "100mbit"]
        assert cli.main([*arguments, "--json", "--html", str(tmp_path / "page.html")]) == 0
        told = json.loads(capsys.readouterr().out)
        first, second, third = told["allocations"]
        assert (first["name"], second["name"], third["name"]) == ("made", "metis", "random")
        assert first["flows"] == second["flows"] and first["measured"] == {"leap": 0.5}
        flow = third["flows"]["leap"]
        assert flow["seconds"] == pytest.approx(max(flow["most_in"], flow["most_out"]) / 12.5e6)
        assert flow["bytes"] == pytest.approx(flow["rows"] * 6 * 4)
        assert "best for leap" in (tmp_path / "page.html").read_text()
        assert cli.main(arguments) == 0
        assert "made" in capsys.readouterr().out
        for measured, of in (('{"allocation": "other", "plan": "leap", "seconds": 0.5}\n', "other"), ("", "nothing")):
            (tmp_path / "m").write_text(measured)
            assert cli.main(arguments) == 2
            assert f"measures {of}, and made, metis, random are compared" in capsys.readouterr().err

    def test_measurements_of_what_is_not_compared_are_told_of(self, graph, tmp_path, capsys):
        lines = [("metis", "leap"), ("metis", "nfp"), ("fennel", "gdp")]
        (tmp_path / "m").write_text(
            "".join(json.dumps({"allocation": name, "plan": plan, "seconds": 1}) + "\n" for name, plan in lines)
        )
        arguments = ["report", "partition", str(graph.path), "metis", "--parts", "3", "--batch-size", "50"]
        assert cli.main([*arguments, "--measured", str(tmp_path / "m")]) == 0
        told = f"not compared here, so left out of {tmp_path / 'm'}: nfp with metis, gdp with fennel\n"
        assert told in capsys.readouterr().err

    def test_names_are_looked_at_before_anything_is_allocated(self, graph, monkeypatch, capsys):
        monkeypatch.setattr("weft.commands.report.allocated", lambda *_, **__: pytest.fail("it is allocated"))
        for wrong, told in (("metsi", "metsi is neither"), (str(graph.path), "has 1 parts, not 2")):
            assert cli.main(["report", "partition", str(graph.path), "metis", wrong, "--parts", "2"]) == 2
            assert told in capsys.readouterr().err

    def test_a_directory_has_its_name_from_within_too(self, graph, tmp_path, monkeypatch, capsys):
        made = str(tmp_path / "made")
        assert cli.main(["partition", str(graph.path), made, "--method", "random", "--parts", "3"]) == 0
        capsys.readouterr()
        monkeypatch.chdir(made)
        assert cli.main(["report", "partition", str(graph.path), ".", "--batch-size", "50", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["allocations"][0]["name"] == "made"

    def test_hosts(self, graph, capsys):
        arguments = ["report", "partition", str(graph.path), "kaminpar", "--parts", "4", "--json", "--batch-size", "50"]
        sent = []
        for more in ([], ["--hosts", "2"]):
            assert cli.main([*arguments, *more]) == 0
            sent.append(json.loads(capsys.readouterr().out)["allocations"][0]["flows"]["leap"]["bytes"])
        assert sent[1] < sent[0]

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["metis"], "how many parts? Give --parts"),
            (
                ["magic", "--parts", "2"],
                "magic is neither a partitioned graph directory nor a method: give a path, or one",
            ),
            (["{graph}", "--parts", "2"], "has 1 parts, not 2"),
            (["{graph}"], "is not partitioned"),
            (["metis", "--parts", "2", "--batches", "0"], "--batches 0 is out of range"),
            (
                ["metis", "--parts", "2", "--slack", "-1"],
                "--slack -1 is out of range: it is a part of a worker's share",
            ),
            (["metis", "--parts", "2", "--measured", "nowhere"], "nowhere can't be read"),
            (["metis", "--parts", "0"], "0 parts"),
            (["given", "--parts", "2"], "elsewhere name the directory that this makes, in place of the method"),
            (["metis", "--parts", "2", "--hosts", "1", "--bandwidths", "1"], "--bandwidths means nothing to one host"),
        ],
    )
    def test_mistakes_are_one_sentence(self, graph, capsys, arguments, sentence):
        given = [word.format(graph=graph.path) for word in arguments]
        assert cli.main(["report", "partition", str(graph.path), *given]) == 2
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1
