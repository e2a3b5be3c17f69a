"""HTML and SVG as text: elements whose text and attributes are escaped, and pages without script or network."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is fetched, no script runs


def text(value: object) -> str:
    """A value as text of an element."""
    return escape(str(value))


def element(tag: str, *children: str, **attributes: object) -> str:
    """An element around children that are markup already; `class_` is class, `aria_label` aria-label; None leaves out."""
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{shown}>{''.join(children)}</{tag}>"


def document(title: str, *main: str) -> str:
    """A page's text, which needs no script and no network: its title, and what it shows as markup."""
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        element("title", text(title)),
        f"<style>\n{_style()}</style>",
    ]
    body = element("body", element("main", *main))
    return f"<!doctype html>\n{element('html', element('head', *head), body, lang='en')}\n"


def section(title: str, content: str) -> str:
    """A part of a page under a heading."""
    return element("section", element("h2", title), content)


def tiles(shown: Mapping[str, str]) -> str:
    """Figures with their names."""
    return element("dl", *(element("div", element("dt", text(k)), element("dd", text(v))) for k, v in shown.items()))


def table(about: str, columns: Iterable[str], rows: Iterable[str], groups: Iterable[tuple[str, int]] = ()) -> str:
    """A table that scrolls in its own box, by keyboard too; `groups`: names of so many columns each, above theirs."""
    upper = [element("th", text(name), colspan=width, scope="colgroup") for name, width in groups]
    lower = [element("th", text(name), scope="col") for name in columns]
    head = element("thead", element("tr", *upper) if upper else "", element("tr", *lower))
    shown = element("table", head, element("tbody", *rows))
    return element("div", shown, class_="scroll", role="region", tabindex=0, aria_label=about)


def row(name: str, cells: Iterable[str], kind: str | None = None, marks: Mapping[int, str] | None = None) -> str:
    """A row of a table; `marks`: classes of cells, by number."""
    shown = [element("td", text(cell), class_=(marks or {}).get(number)) for number, cell in enumerate(cells)]
    return element("tr", element("th", text(name), scope="row"), *shown, class_=kind)


def _style() -> str:
    """Light and dark, wide and narrow."""
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")
