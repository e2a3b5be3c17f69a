"""`python -m papers apt gsplit --quick`: measure, print, and build the pages."""

import argparse
import os
import signal
import sys
from pathlib import Path

from papers import PAPERS
from papers.bench import QUICK, ROOT, WHOLE, Bench
from papers.page import PICTURES, html, markdown, pictures, terminal
from papers.records import FOLDER, Records
from papers.run import measure, sheets_of
from papers.sheet import check_rights
from weft.errors import WeftError


def main() -> int:
    """Measure what is asked for, print it, and build the pages from all records."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__)
    parser.add_argument("papers", nargs="+", choices=PAPERS, help="whose sheets")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller graphs, fewer cases and epochs: under three minutes on two quiet processors, not half an hour",
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="a sheet, such as 'Table 3'; may be repeated"
    )
    parser.add_argument("--again", action="store_true", help="also what has a record of this commit")
    parser.add_argument("--report", action="store_true", help="measure nothing: print the records, and build the pages")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "data" / "papers", help="where graphs are kept that were made"
    )
    parser.add_argument(
        "--shared", type=Path, default=ROOT.parent / "shared" / "data", help="the folder of real graphs"
    )
    parser.add_argument("--records", type=Path, default=FOLDER)
    parser.add_argument(
        "--html", type=Path, default=ROOT / "data" / "papers" / "papers.html", help="the page with plots"
    )
    args = parser.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hosts without names are no news
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that sandboxes are removed
    bench = Bench(QUICK if args.quick else WHOLE, args.data, args.shared)
    try:
        for paper in args.papers:
            _paper(paper, bench, args)
    except WeftError as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2
    args.html.parent.mkdir(parents=True, exist_ok=True)
    args.html.write_text(html(args.records), encoding="utf-8")
    if args.records == FOLDER:
        (ROOT / "docs" / "papers.md").write_text(markdown(FOLDER), encoding="utf-8")
        PICTURES.mkdir(exist_ok=True)
        for name, drawing in (drawn for paper in PAPERS for drawn in pictures(paper, FOLDER).items()):
            (PICTURES / f"{name}.svg").write_text(drawing, encoding="utf-8")
    print(f"\nthe page with plots: {args.html}")
    return 0


def _paper(paper: str, bench: Bench, args: argparse.Namespace) -> None:
    sheets, records = sheets_of(paper, args.only), Records(paper, args.records)
    if not args.report:
        check_rights(paper, sheets)
        bench.data.mkdir(parents=True, exist_ok=True)
    for sheet in sheets:
        if not args.report:
            command = f"make papers PAPER={paper}{' QUICK=1' if args.quick else ''}"
            measure(sheet, bench, records, command, args.again)
        print(terminal(sheet, records, bench.size), flush=True)


if __name__ == "__main__":
    sys.exit(main())
