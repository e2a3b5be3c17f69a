"""The kinds of work that a cluster's rates are given for."""

KINDS: dict[str, str] = {
    "draw": "seconds an edge drawn",
    "gather": "seconds a byte of rows gathered",
}
