"""What things hold in Python: copied, and put back."""

import json
import sys
from collections import OrderedDict
from enum import IntEnum
from types import SimpleNamespace

from weft.nn import attributes
from weft.nn.attributes import Snapshot, as_json, from_json, is_helper


def test_what_is_within_a_container_is_put_back_unless_it_is_a_table():
    for count, left in ((10_000, []), (10_001, ["changed"])):
        thing = SimpleNamespace(rows=[[] for _ in range(count)])
        before = Snapshot([thing])
        thing.rows[7].append("changed")
        thing.rows.append("more")
        assert before.has_changed()
        before.put_back()
        assert len(thing.rows) == count and thing.rows[7] == left


def test_what_a_script_defines_is_the_users_own_wherever_its_process_began(monkeypatch):
    """On Ray's nodes the main module is a file of Ray's, in which classes of a script are said to be."""
    kind = type("Clock", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/env/site-packages/ray/default_worker.py", raising=False)
    attributes._is_own_code.cache_clear()
    assert is_helper(kind())
    attributes._is_own_code.cache_clear()
    assert not is_helper(OrderedDict())


def test_a_number_of_an_enumeration_is_one_again():
    Phase = IntEnum("Phase", "COLD WARM")
    assert from_json(json.loads(json.dumps(as_json((Phase.WARM, 1)))), (Phase.COLD, 0)) == (Phase.WARM, 1)
    assert from_json(json.loads(json.dumps(as_json(Phase.WARM))), Phase.COLD) is Phase.WARM
