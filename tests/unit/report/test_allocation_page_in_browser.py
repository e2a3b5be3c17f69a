"""The page of allocations in a real browser: nothing goes wrong, every bar is drawn, and it fits small screens."""

import pytest
from allocations import MADE, comparison
from headless import SEEN

from weft.report import write_allocations


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", MADE)
def test_the_page_is_drawn(browser, tmp_path, name, width, scheme):
    write_allocations(tmp_path / "page.html", MADE[name]())
    browser.open((tmp_path / "page.html").as_uri(), width, scheme=scheme)
    seen = browser.evaluate(SEEN)
    assert not browser.complaints()
    assert all(address.startswith(("file:", "data:")) for address in browser.requests())
    assert seen["scripts"] == 0
    assert seen["overflow"] <= 0, "the page must not be wider than the screen"
    assert seen["smallest"] >= 10
    assert all(w > 100 and h > 20 for w, h, _, _ in seen["tracks"])
    assert all(h > 10 and 0 <= left <= width for _, h, left, _ in seen["marks"])
    assert all(w > 200 and right <= width for w, _, _, right in seen["tables"])


def test_every_bar_is_there(browser, tmp_path):
    given = comparison()
    write_allocations(tmp_path / "page.html", given)
    browser.open((tmp_path / "page.html").as_uri(), 1280)
    seen = browser.evaluate(SEEN)
    measured = sum(len(allocation.measured) for allocation in given.allocations)
    assert seen["rows"] == 3 * (len(given.allocations) + 1)  # and the axes
    assert len(seen["tracks"]) == len(seen["pieces"]) == len(seen["marks"]) == 3 * len(given.allocations) + measured
    assert len(seen["tables"]) == 2 and seen["title"] == "Weft: allocations of debian, 4 parts"
