"""What things hold in Python: copied, and put back."""

from types import SimpleNamespace

from weft.nn.attributes import Snapshot


def test_what_is_within_a_container_is_put_back_unless_it_is_a_table():
    for count, left in ((10_000, []), (10_001, ["changed"])):
        thing = SimpleNamespace(rows=[[] for _ in range(count)])
        before = Snapshot([thing])
        thing.rows[7].append("changed")
        thing.rows.append("more")
        assert before.has_changed()
        before.put_back()
        assert len(thing.rows) == count and thing.rows[7] == left
