"""What these tests share with those of workers, and the benchmark, is beside them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "workers"), str(ROOT / "benchmarks")]
