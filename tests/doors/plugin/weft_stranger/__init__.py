"""One part of each kind, added to Weft from outside."""
