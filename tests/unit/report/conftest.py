"""A browser for the tests of pages."""

import pytest
from headless import Chromium, find_chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on the path: install the system's package chromium to test the page in a browser")
    chromium = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()
