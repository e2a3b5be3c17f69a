"""AdaGL: Adaptive Learning for Agile Distributed Training of Gigantic GNNs."""

from papers.adagl import figure5, tables

SHEETS = (*figure5.SHEETS, *tables.SHEETS)
