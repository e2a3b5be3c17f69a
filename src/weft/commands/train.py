"""weft train: a model on a graph."""

import argparse
from pathlib import Path

from weft.commands.flags import add_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft train`."""
    parser.add_argument("graph", type=Path, help="a graph directory")
    parser.add_argument("--out", type=Path, help="where to save the trained model")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Train, tell how it goes, and save the model."""
    from weft.commands.training import train  # here, as help need not wait for PyTorch

    return train(args)
