"""What imports leave alone."""

import gc
import threading

import pytest

from weft.lazy import importing


@pytest.mark.parametrize("on", [True, False])
def test_garbage_is_collected_after_imports_as_before(on):
    if not on:
        gc.disable()
    try:
        with pytest.raises(ImportError), importing():
            with importing():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == on
    finally:
        gc.enable()


def test_other_threads_leave_it_on():
    found = []

    def imports():
        with importing():
            found.append(gc.isenabled())

    thread = threading.Thread(target=imports)
    thread.start()
    thread.join()
    assert found == [True]
