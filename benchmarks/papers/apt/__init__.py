"""APT: Adaptive Parallel Training for Graph Neural Networks."""

from papers.apt import figure8a, figure8b, figure8c, figure9, figure10, figure11, figure12, planning, table3, table4

SHEETS = (
    table3.SHEET,
    table4.SHEET,
    figure8a.SHEET,
    figure8b.SHEET,
    figure8c.SHEET,
    figure9.SHEET,
    figure10.SHEET,
    figure11.SHEET,
    figure12.SHEET,
    planning.SHEET,
)
