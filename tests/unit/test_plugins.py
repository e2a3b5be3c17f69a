"""Doors: parts by name, those that come with Weft and others'; what is refused, and in which words."""

import subprocess
import sys
from abc import ABC, abstractmethod

import pytest

import weft
from weft import plugins
from weft.errors import ConfigError
from weft.plugins import Door


class Base(ABC):
    name: str
    help: str

    @abstractmethod
    def work(self): ...


class Plain(Base):
    """Comes with Weft, as far as this door knows."""

    name, help = "plain", "does nothing special"

    def work(self):
        return 1


class Other(Plain):
    name, help = "other", "does something else"


@pytest.fixture
def door():
    return Door("worker", f"{__name__}:Base", {"plain": f"{__name__}:Plain"})


@pytest.fixture
def entry_point(tmp_path, monkeypatch):
    """Installs a package with one module and an entry point to it."""

    def install(text, value, package="stranger"):
        (tmp_path / f"{package}_weft.py").write_text(text)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[weft.plugins]\n{package} = {package}_weft{value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins.load_plugins.cache_clear()

    yield install
    plugins.load_plugins.cache_clear()


def test_parts_are_found_by_name_and_added_once(door):
    assert door.get("plain") is Plain
    assert door.register(Other) is Other
    assert door.register(Other) is Other  # the same again
    assert door.register(Plain) is Plain  # likewise
    assert door.names() == ("plain", "other")
    assert door.get("other") is Other
    assert door.help() == {"plain": "does nothing special", "other": "does something else"}
    assert door.find("nothing") is None


def test_a_name_that_is_not_known_is_refused_with_the_nearest_one(door):
    with pytest.raises(ConfigError, match=r"^worker 'plan' is not known: did you mean 'plain'\? Choose from plain$"):
        door.get("plan")
    with pytest.raises(ConfigError, match=r"^worker 'xyz' is not known: choose from plain$"):
        door.check("xyz")


def test_names_belong_to_one_part_each(door):
    class Twin(Plain):
        pass

    class Third(Other):
        pass

    with pytest.raises(ConfigError, match=r"there is a worker 'plain' already: give .*Twin another name"):
        door.register(Twin)
    door.register(Other)
    with pytest.raises(ConfigError, match=r"there is a worker 'other' already: give .*Third another name"):
        door.register(Third)


def test_a_class_that_is_defined_anew_takes_the_place_of_the_one_before(door):
    """As where a notebook's cell, or a model's file, runs again."""
    found = [door.register(type("Again", (Plain,), {"name": "again", "number": number})) for number in range(2)]
    assert door.get("again") is found[1] and door.names() == ("plain", "again")


def test_what_is_not_finished_or_of_another_kind_is_refused(door):
    class Unfinished(Base):
        name = "unfinished"

    class Nameless(Base):
        def work(self):
            return 0

    for part, words in (
        (Unfinished, "worker .*Unfinished is not finished: it has no work"),
        (Nameless, "worker .*Nameless has no name: set its attribute 'name'"),
        (int, "builtins.int is no worker: derive a class from"),
        (Plain(), "is no worker: derive a class from"),
    ):
        with pytest.raises(ConfigError, match=words):
            door.register(part)
    with pytest.raises(ConfigError, match=r"builtins.int can't be registered: .* one of weft.placements.Placement"):
        weft.register(int)


def test_names_that_could_not_be_written_or_mean_something_else_are_refused():
    door = Door("worker", f"{__name__}:Base", {}, taken=("auto", "weft.plan:NAMED"))
    for name, words in (
        ("a+b", r"worker .* can't be called 'a\+b': letters, digits, - and _ make a name"),
        ("two words", "can't be called 'two words'"),
        ("auto", "'auto' means something else where a worker is named"),
        ("split", "'split' means something else where a worker is named"),
    ):
        with pytest.raises(ConfigError, match=words):
            door.register(type("Named", (Plain,), {"name": name}))
    door.register(type("Named", (Plain,), {"name": "2-hop_b"}))


def test_what_a_placement_leaves_out_or_says_otherwise_is_refused():
    methods = dict.fromkeys(weft.Placement.__abstractmethods__, lambda self: None)
    with pytest.raises(ConfigError, match=r"placement .*Lacking is not finished: it has no takes"):
        weft.register(type("Lacking", (weft.Placement,), methods | {"name": "lacking", "help": ""}))
    both = {"name": "other", "help": "", "takes": "owner", "leaves": frozenset({"owner"})}
    with pytest.raises(ConfigError, match=r"placement .*Other: takes is a str: write frozenset\(\{...\}\)"):
        weft.register(type("Other", (weft.Placement,), methods | both))


def test_a_class_may_name_a_part():
    door = Door("worker", f"{__name__}:Base", {}, named_by="serves")

    class Serving(Plain):
        serves = dict

    door.register(Serving)
    assert door.get(plugins.class_name(dict)) is Serving


def test_a_package_adds_parts_by_an_entry_point(door, entry_point, monkeypatch):
    entry_point(f"from {__name__} import Plain\nclass Mine(Plain):\n    name, help = 'mine', 'of a package'\n", ":Mine")
    monkeypatch.setattr(plugins, "DOORS", (door,))
    assert door.get("plain") is Plain
    assert door._added == {}  # nothing was loaded for that
    assert door.get("mine").help == "of a package"
    assert door.names() == ("plain", "mine")
    door.register(Other)
    assert plugins.registered() == [Other]  # others find what is installed by themselves
    assert plugins.registered(door) == []


def test_a_package_that_cannot_be_loaded_is_named(door, entry_point):
    entry_point("import nothing_of_this_name\n", ":Mine", "broken")
    with pytest.raises(
        ConfigError, match=r"plugin 'broken' of package broken can't be loaded \(broken_weft:Mine: No mo"
    ):
        door.names()


def test_plugins_import_neither_torch_nor_rooms():
    code = "import sys, weft.plugins as p; p.SAMPLERS.check('labor'); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
