"""AdaGL: Adaptive Learning for Agile Distributed Training of Gigantic GNNs."""

from papers.adagl import epochs, figure5, table1, tables

SHEETS = (table1.SHEET, *epochs.SHEETS, *figure5.SHEETS, *tables.SHEETS)
