"""An HTML file that needs nothing else: no script, no network."""

from weft.report.markup import element, text
from weft.report.plan_style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is fetched, no script runs


def document(title: str, *main: str) -> str:
    """The file's text: its title, and what it shows as markup."""
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        element("title", text(title)),
        f"<style>{STYLE}</style>",
    ]
    body = element("body", element("main", *main))
    return f"<!doctype html>\n{element('html', element('head', *head), body, lang='en')}\n"


def section(title: str, content: str) -> str:
    """A part of a page under a heading."""
    return element("section", element("h2", title), content)


def boxed(table: str, name: str) -> str:
    """A table that scrolls in its own box, by keyboard too."""
    return element("div", table, class_="scroll", role="region", tabindex=0, aria_label=name)
