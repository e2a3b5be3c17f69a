"""LeapGNN: Accelerating Distributed GNN Training Leveraging Feature-Centric Model Migration."""

from papers.leapgnn import figure11, figure13, figure14, figure16, figure19, figure23, table1, table3

LEFT_OUT = (
    "up to 4.8 times faster than the paper's Naive, whose model goes to the features of each layer: no plan of Weft's does. "
    "And what migration adds to an epoch, 4.6% in the paper: models that move are counted with all that workers send in "
    "Fig. 13, not by themselves."
)
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
