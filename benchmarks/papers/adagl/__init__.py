"""AdaGL: Adaptive Learning for Agile Distributed Training of Gigantic GNNs."""

from papers.adagl import figure4, figure5, steps, table1, table2, table3, table4, table5

SHEETS = (
    table1.SHEET,
    figure4.SHEET,
    figure5.SHEET,
    table2.SHEET,
    table3.SHEET,
    table4.SHEET,
    table5.SHEET,
    steps.SHEET,
)
