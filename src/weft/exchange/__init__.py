"""Rows between workers: a wire to the others, and routes as autograd functions whose backward is their mirror."""

from weft.exchange.columns import Spread, to_columns, to_owners
from weft.exchange.in_process import simulate
from weft.exchange.route import Route
from weft.exchange.wire import Traffic, Wire
from weft.exchange.world import World

__all__ = ["Route", "Spread", "Traffic", "Wire", "World", "simulate", "to_columns", "to_owners"]
