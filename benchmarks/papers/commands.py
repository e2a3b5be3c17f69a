"""Commands of Weft as people give them, run by all workers of a sandbox."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from papers.bench import Bench, output_of
from weft.lab import Sandbox


@dataclass(frozen=True)
class Probed:
    """Hosts as `weft probe` found them."""

    file: Path
    seconds: float  # that it took


@cache
def probed(bench: Bench, hosts: int, link: str) -> Probed:
    """A sandbox's hosts, probed once for all sheets that are measured."""
    file, start = bench.data / f"cluster-{hosts}-{link}.toml", time.perf_counter()
    printed(["probe", f"--out={file}"], hosts, link)
    return Probed(file, time.perf_counter() - start)


def printed(words: Sequence[str], hosts: int, link: str, timeout: float = 1200.0) -> str:
    """What the first worker prints of `weft WORDS` on hosts with links of a rate."""
    command = [sys.executable, "-m", "weft.cli", *words]
    return output_of(f"weft {words[0]}", command, Sandbox(hosts=hosts, link=link), timeout)
