"""LeapGNN: Accelerating Distributed GNN Training Leveraging Feature-Centric Model Migration."""

from papers.leapgnn import figure11, figure13, figure14, figure16, figure19, figure23, table1, table3

SHEETS = (
    table1.SHEET,
    table3.SHEET,
    *figure11.SHEETS,
    figure13.SHEET,
    figure14.SHEET,
    figure16.SHEET,
    *figure19.SHEETS,
    *figure23.SHEETS,
)
