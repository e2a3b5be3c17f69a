"""`weft` as a script, for what starts scripts alone: launcher.py."""

import sys

from weft.cli import main

if code := main():
    sys.exit(code)
