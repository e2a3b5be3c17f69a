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
