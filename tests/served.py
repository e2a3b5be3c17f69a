"""A folder served over HTTP on this machine, as object stores do: in ranges. What was asked for is counted."""

import socket
import struct
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Served:
    """What is served, and what was asked for of it; faults by the name of the file."""

    def __init__(self, folder):
        self.folder, self.asked = Path(folder), []  # (name, first byte, end)
        self.ranges = True  # does the server know HTTP's ranges?
        self.statuses = {}  # that it answers, in place of a file
        self.failing = {}  # by file, what its next answers are, one each: a status, "reset" or "cut"
        self.silent = set()  # files of which it never says a word
        self.unmeasured = set()  # files of which it does not say how long they are
        self.headers = {}  # by file, what it tells of it besides
        self.ended = threading.Event()

    def bytes_of(self, name):
        """How many bytes of a file's data were asked for."""
        return sum(end - max(128, first) for asked, first, end in self.asked if asked == name and end > 128)

    def names(self):
        return {name for name, _, _ in self.asked}


@contextmanager
def served(folder):
    """The server's state, which has its `url`."""
    state = Served(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rpartition("/")[2]
            if name in state.silent:
                state.ended.wait(30)
                return
            file = state.folder / name
            fault = state.failing[name].pop(0) if state.failing.get(name) else None
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()
                return
            status = fault if isinstance(fault, int) else state.statuses.get(name, 200 if file.exists() else 404)
            if status != 200:
                self.send_error(status)
                return
            data, span = file.read_bytes(), self.headers.get("Range", "")
            first, end = 0, len(data)
            if span and state.ranges:
                low, _, high = span.removeprefix("bytes=").partition("-")
                first, end = int(low), min(len(data), int(high) + 1)
                if first >= len(data):
                    self.send_error(416)
                    return
            state.asked.append((name, first, end))
            self.send_response(206 if span and state.ranges else 200)
            if name not in state.unmeasured:
                self.send_header("Content-Length", str(end - first))
            self.end_headers()
            self.wfile.write(data[first : (first + end) // 2 if fault == "cut" else end])

        def do_HEAD(self):
            name = self.path.rpartition("/")[2]
            file = state.folder / name
            self.send_response(state.statuses.get(name, 200 if file.exists() else 404))
            if name not in state.unmeasured:
                self.send_header("Content-Length", str(file.stat().st_size if file.exists() else 0))
            for header in state.headers.get(name, {}).items():
                self.send_header(*header)
            self.end_headers()

        def log_message(self, *args):
            """Not to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/graphs/parts"
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
