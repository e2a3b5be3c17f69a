"""What tests of workers share."""

import checked
import pytest

from weft.nn.conv.blackbox import BlackBox

_LOOKED = checked.looked_once(BlackBox._looked)


@pytest.fixture(scope="module", autouse=True)
def alike_black_boxes_are_looked_at_once():
    """On each worker and by each plan it would take more time than they train for; what is refused is looked at again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlackBox, "_looked", _LOOKED)
        yield
