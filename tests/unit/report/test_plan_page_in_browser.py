"""The planner's page in a real browser: nothing goes wrong, every figure is drawn, and it can be read on small screens."""

import pytest
from answers import alone, answer, nasty
from headless import SEEN

from weft.report import write_page

MADE = {"usual": answer, "alone": alone, "nasty": nasty}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", MADE)
def test_the_page_is_drawn(browser, tmp_path, name, width, scheme):
    write_page(tmp_path / "plans.html", MADE[name]())
    browser.open((tmp_path / "plans.html").as_uri(), width, scheme=scheme)
    seen = browser.evaluate(SEEN)
    assert not browser.complaints()
    assert all(address.startswith(("file:", "data:")) for address in browser.requests())
    assert seen["scripts"] == 0
    assert seen["overflow"] <= 0, "the page must not be wider than the screen"
    assert seen["smallest"] >= 10
    assert seen["tracks"] and all(w > 100 and h > 20 for w, h, _, _ in seen["tracks"])
    assert seen["pieces"] and all(w > 0 and h > 10 for w, h, _, _ in seen["pieces"])
    assert seen["marks"] and all(h > 10 and 0 <= left <= width for _, h, left, _ in seen["marks"])
    assert all(w > 200 and right <= width for w, _, _, right in seen["charts"] + seen["tables"])
    assert all(left >= -1 and right <= width + 1 for _, _, left, right in seen["words"])


def test_every_figure_is_there(browser, tmp_path):
    given = answer()
    write_page(tmp_path / "plans.html", given)
    browser.open((tmp_path / "plans.html").as_uri(), 1280)
    seen = browser.evaluate(SEEN)
    assert seen["rows"] == len(given.predictions) + 1  # and the axis
    assert len(seen["tracks"]) == len([p for p in given.predictions if p.seconds]) + len(given.measured)
    assert len(seen["charts"]) == len(given.sweeps) == seen["here"]
    assert len(seen["lines"]) == sum(len(sweep.seconds) for sweep in given.sweeps)
    assert len(seen["points"]) == sum(len(times) for sweep in given.sweeps for times in sweep.seconds.values())
    assert seen["crossings"] >= 2
    assert all(w > 50 for w, _, _, _ in seen["lines"])


def test_a_broken_page_would_be_noticed(browser, tmp_path):
    page = tmp_path / "broken.html"
    page.write_text(
        "<!doctype html><div style='width:3000px'>wide</div><script>nothing.here()</script><img src='x.png'>"
    )
    browser.open(page.as_uri(), 400)
    assert any("exceptionThrown" in told for told in browser.complaints())
    assert browser.evaluate(SEEN)["overflow"] > 0
