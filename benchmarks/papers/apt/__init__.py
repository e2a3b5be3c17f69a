"""APT: Adaptive Parallel Training for Graph Neural Networks."""

from papers.apt import table3

SHEETS = (table3.SHEET,)
