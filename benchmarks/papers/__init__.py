"""The papers' evaluations on this machine: a package a paper, a small file a table or figure, each a `Sheet`.

`make papers PAPER=apt` (or `PYTHONPATH=src:benchmarks python -m papers apt`) measures what is not measured yet at this
commit, prints the paper's claim, Weft's figure and whether the shape holds, and builds docs/papers.md from the records.
"""

PAPERS = ("apt", "gsplit", "adagl", "leapgnn", "neutrontp", "beyond")  # the last one: what none of them has
