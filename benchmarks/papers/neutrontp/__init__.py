"""NeutronTP: Load-Balanced Distributed Full-Graph GNN Training with Tensor Parallelism."""

from papers.neutrontp import figure10, figure11, figure13, figure14, figure16, table2

SHEETS = (table2.SHEET, figure10.SHEET, figure11.SHEET, figure13.SHEET, figure14.SHEET, figure16.SHEET)
