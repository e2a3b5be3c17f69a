"""GSplit: Scaling Graph Neural Network Training on Large Graphs via Split-Parallelism."""

from papers.gsplit import figure6, table1, table2, table4, table5

LEFT_OUT = (
    "epochs on the GPUs of one machine, against Quiver above all: what systems load, compute and send is counted here in "
    "place of them."
)
SHEETS = (table1.SHEET, table2.SHEET, table4.SHEET, table5.SHEET, *figure6.SHEETS)
