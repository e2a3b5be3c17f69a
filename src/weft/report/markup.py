"""HTML and SVG as text: elements whose text and attributes are escaped."""

from html import escape


def text(value: object) -> str:
    """A value as text of an element."""
    return escape(str(value))


def element(tag: str, *children: str, **attributes: object) -> str:
    """An element around children that are markup already; `class_` is class, `aria_label` aria-label; None leaves out."""
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{told}>{''.join(children)}</{tag}>"
