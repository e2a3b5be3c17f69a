"""Rows between workers: communicators, and routes as autograd functions whose backward is their mirror."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.exchange.column_slices import (
        Background,
        ColumnSpan,
        RowSelection,
        SliceLayout,
        send_rows,
        send_slices,
        to_columns,
        to_owners,
    )
    from weft.exchange.communicator import (
        Communicator,
        Portion,
        Recorded,
        Recorder,
        SilentWorkersError,
        SocketTransport,
        Traffic,
        bytes_of,
        sent_whole,
    )
    from weft.exchange.connections import SocketConnections
    from weft.exchange.in_process import simulate
    from weft.exchange.listener import STORE_SOCKET, given_secret, listening_at, new_secret
    from weft.exchange.route import Grouped, Owners, Route, add_rows, gather_rows
    from weft.exchange.world import World
else:
    __getattr__ = lazy_face(__name__)

__all__ = ["World", "simulate"]
