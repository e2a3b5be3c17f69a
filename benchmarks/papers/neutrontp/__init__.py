"""NeutronTP: Load-Balanced Distributed Full-Graph GNN Training with Tensor Parallelism."""

from papers.neutrontp import (
    figure5,
    figure10,
    figure11,
    figure12,
    figure13,
    figure14,
    figure16,
    figure16_time,
    table2,
    table3,
    table4,
)

LEFT_OUT = (
    "3.41 to 4.81 times faster than Sancus, which trains by embeddings of earlier epochs, as no plan of Weft's does; how "
    "busy a GPU is (62.85% against DistDGL's 19.91%, Fig. 15), for this machine has none; and NeutronStar's own program "
    "(4.68 to 8.72 times), for which halo stands. DistDGL itself (1.29 to 6.36 times) is measured in "
    "[strategies](strategies.md#how-fast-it-is)."
)
SHEETS = (
    table2.SHEET,
    table3.SHEET,
    table4.SHEET,
    figure5.SHEET,
    figure10.SHEET,
    figure11.SHEET,
    figure12.SHEET,
    figure13.SHEET,
    figure14.SHEET,
    figure16.SHEET,
    figure16_time.SHEET,
)
