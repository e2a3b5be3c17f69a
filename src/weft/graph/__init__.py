"""Graphs on disk: importing, the graph directory, generators and built-in data sets."""
