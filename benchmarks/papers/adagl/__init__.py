"""AdaGL: Adaptive Learning for Agile Distributed Training of Gigantic GNNs."""

from papers.adagl import figure5, table1, tables

SHEETS = (table1.SHEET, *figure5.SHEETS, *tables.SHEETS)
