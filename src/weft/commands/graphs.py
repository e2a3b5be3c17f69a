"""The graph that a command is given: a directory, or an address, from which what is needed comes to the user's cache."""

import argparse

import weft.graph


def add_graph(parser: argparse.ArgumentParser, text: str = "a graph directory", *, nargs: str | None = None) -> None:
    """Declare the argument; `nargs`: may it be left out?"""
    text = f"{text}, or the address of one (s3://...)"
    parser.add_argument("graph", type=weft.graph.graph_place, nargs=nargs, help=text)
