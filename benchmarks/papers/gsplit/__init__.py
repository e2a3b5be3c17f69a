"""GSplit: Scaling Graph Neural Network Training on Large Graphs via Split-Parallelism."""

from papers.gsplit import table1, table2, table5

SHEETS = (table1.SHEET, table2.SHEET, table5.SHEET)
