"""Serve one trace file over HTTP on the loopback interface, for one page to read once."""

from __future__ import annotations

import re
import secrets
import threading
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

READER = "https://ui.perfetto.dev"
"""The only page that browsers allow to read it."""
HOST = "127.0.0.1"
_PATIENCE_S = 30
_LONGEST_NAME = 100
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


class OneFile(ThreadingHTTPServer):
    """Serves a file under an address that cannot be guessed, and knows when it was read.

    Every other request gets "not found": another path, method or page, and another host name (one
    that points here, by which foreign pages could read the file).

    Attributes:
        read: set when the file was read to its end.
        address: the address of the file, for the page that reads it.

    Raises:
        OSError: the port is not available.
    """

    daemon_threads = True  # a reader that stops half-way does not block the end

    def __init__(self, file: Path, port: int) -> None:
        """Args: port: 0 for any free one."""
        super().__init__((HOST, port), _Request)
        self.file = file
        self.read = threading.Event()
        self.host = f"{HOST}:{self.server_address[1]}"
        # A browser may open several connections and use one: each has a thread of its own.
        self.path = f"/{secrets.token_urlsafe(9)}/{plain_name(file.name)}"
        self.address = f"http://{self.host}{self.path}"

    @property
    def link(self) -> str:
        """The address of the page that opens the file."""
        return f"{READER}/#!/?url={self.address}"

    def __enter__(self) -> OneFile:
        """Serve on a thread of its own."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object, **__: object) -> None:
        """Ignore it: the reader went away."""


class _Request(SimpleHTTPRequestHandler):
    server: OneFile
    timeout = _PATIENCE_S
    server_version, sys_version = "kernelprof", ""

    def parse_request(self) -> bool:
        """Answer nothing but what the page asks for."""
        known = super().parse_request() and (
            self.path == self.server.path
            and self.headers.get_all("Host") == [self.server.host]
            and self.headers.get("Origin", READER) == READER
        )
        if not known:
            self.send_error()
        return known

    def translate_path(self, path: str) -> str:
        """The one file."""
        return str(self.server.file)

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send the file, and note when that is done."""
        super().copyfile(source, outputfile)
        self.wfile.flush()
        self.server.read.set()

    def end_headers(self) -> None:
        """Let the page read the answer, and nobody keep it."""
        self.send_header("Access-Control-Allow-Origin", READER)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def do_OPTIONS(self) -> None:
        """Allow the page to read it; browsers may ask before."""
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def send_error(self, *_: object, **__: object) -> None:
        """Say "not found", whatever is wrong."""
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        super().end_headers()

    def log_message(self, *_: object, **__: object) -> None:
        """Log nothing: requests would fill the terminal."""


def plain_name(name: str) -> str:
    """Return the end of a file's name as letters, digits, dots and dashes, which an address holds
    without escapes."""
    return _NOT_PLAIN.sub("_", name)[-_LONGEST_NAME:]
