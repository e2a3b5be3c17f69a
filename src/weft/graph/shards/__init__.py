"""Tables that outgrow a machine to a graph directory: tasks that each hold a piece, and meet in files that all see.

A task is a pure function of that folder, a stage and a number, so it may run anywhere, again, and after a stop. What comes
out are the bytes that `weft import` and `weft partition` write.
"""
