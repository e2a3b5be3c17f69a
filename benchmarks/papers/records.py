"""Records of what was measured: JSON lines with date, machine, commit and command; the last one of each case is kept."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from papers.bench import SIZES

HERE = Path(__file__).parent
FOLDER = HERE / "records"
CHANGED = "-dirty"  # after a commit whose files were changed since
_PAGES = ("papers.md", "pictures/papers", "installing.md", "planner-tasks.md", "full-graph-tasks.md")
_MADE = ("benchmarks/records", "benchmarks/papers/records", *(f"docs/{page}" for page in _PAGES))


@dataclass(frozen=True)
class Record:
    """One case of a sheet, measured."""

    sheet: str
    case: str
    size: str  # as it is written out
    figures: Mapping[str, float]
    seconds: float  # that it took
    date: str
    machine: str
    commit: str
    command: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What a later record takes the place of."""
        return self.sheet, self.case, self.size

    def stands(self, commit: str) -> bool:
        """Need it not be measured again at this commit?"""
        return self.commit == commit and not commit.endswith(CHANGED)


class Records:
    """The records of one paper, in a file."""

    def __init__(self, paper: str, folder: Path = FOLDER) -> None:
        self._file = folder / f"{paper}.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._kept = {record.key: record for record in (Record(**json.loads(line)) for line in lines)}

    def __getitem__(self, key: tuple[str, str, str]) -> Record:
        return self._kept[key]

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def of(self, sheet: str, size: str) -> list[Record]:
        """A sheet's records of one size."""
        return [record for record in self._kept.values() if (record.sheet, record.size) == (sheet, size)]

    def add(self, record: Record) -> None:
        """Keep a record in place of an earlier one; the file is whole at any time."""
        self._kept.pop(record.key, None)
        self._kept[record.key] = record
        self._write()

    def keep(self, sheet: str, size: str, cases: Iterable[str]) -> None:
        """Drop a sheet's records of cases and sizes that are no more, and put the others into the order of the sheet."""
        order, sizes = [(sheet, case, size) for case in cases], {*map(str, SIZES)} - {size}
        others = {key: one for key, one in self._kept.items() if key[0] != sheet or key[2] in sizes}
        self._kept = others | {key: self._kept[key] for key in order if key in self._kept}
        self._write()

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        made = self._file.with_suffix(".new")
        made.write_text("".join(json.dumps(asdict(record)) + "\n" for record in self._kept.values()))
        made.replace(self._file)


def machine() -> str:
    """This machine in a few words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{os.cpu_count()} processors ({platform.machine()}), {memory / 1e9:.0f} GB of memory"


def commit() -> str:
    """The commit of this checkout; marked where files were changed since, but for records and what is made of them."""
    try:
        changed = _git("status", "--porcelain", "--", ":/", *(f":!/{path}" for path in _MADE))
        return _git("rev-parse", "--short=10", "HEAD") + (CHANGED if changed else "")
    except (OSError, subprocess.CalledProcessError):  # an archive's files: of which commit, nobody knows
        return f"unknown{CHANGED}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(HERE), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()
