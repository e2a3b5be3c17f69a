"""What no paper has: the five papers' strategies and Weft's mixes on one map."""

from collections.abc import Mapping

from papers.beyond import map as told
from papers.beyond import measured, picture
from papers.sheet import Picture

SHEETS = (told.SHEET, measured.SHEET)
PICTURES: Mapping[str, Picture] = {"which-plan-wins": Picture((told.SHEET, measured.SHEET), picture.draw)}
