SHEETS = ()
