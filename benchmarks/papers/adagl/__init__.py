"""AdaGL: Adaptive Learning for Agile Distributed Training of Gigantic GNNs."""

from papers.adagl import epochs, figure5, table1, tables

LEFT_OUT = "graphs of a billion edges, of which the paper's 30%, 33% and 1.78 times are: all graphs here are smaller."
SHEETS = (table1.SHEET, *epochs.SHEETS, *figure5.SHEETS, *tables.SHEETS)
