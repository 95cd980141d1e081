"""One trace file over HTTP on the loopback interface, for one page to read once."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

READER = "https://ui.perfetto.dev"
"""The one page that browsers let read it."""
HOST = "127.0.0.1"
_PATIENCE_S = 30
_LONGEST_NAME = 100
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


class OneFile(ThreadingHTTPServer):
    """Serves a file under an address that nobody guesses, and knows when it was read.

    Whatever is asked for beside it does not exist: another path, another method, another host's
    name (a name that was pointed here, by which foreign pages would read it), another page.

    Attributes:
        read: set once the file was read to its end.
        address: where it is, for the page that reads it.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True  # who stops reading half-way keeps nobody from ending

    def __init__(self, file: Path, port: int) -> None:
        """Args: port: 0 for any that is free."""
        super().__init__((HOST, port), _Request)
        self.file = file
        self.read = threading.Event()
        self.host = f"{HOST}:{self.server_address[1]}"
        # A browser may open several connections and use one: each has a thread of its own.
        self.path = f"/{secrets.token_urlsafe(9)}/{plain_name(file.name)}"
        self.address = f"http://{self.host}{self.path}"

    @property
    def link(self) -> str:
        """The page, told what to open."""
        return f"{READER}/#!/?url={self.address}"

    def __enter__(self) -> Self:
        """Serve, on a thread of its own."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End that."""
        self.shutdown()
        self.server_close()

    def was_read(self, within_s: float) -> bool:
        """Whether it was, as soon as it is."""
        return self.read.wait(within_s)

    def handle_error(self, *_: object, **__: object) -> None:
        """A reader that goes away is no error of ours."""


class _Request(BaseHTTPRequestHandler):
    server: OneFile
    timeout = _PATIENCE_S
    server_version, sys_version = "kernelprof", ""

    def do_GET(self) -> None:
        """The file."""
        if self._is_known():
            with self.server.file.open("rb") as file:
                size = self._begin(file)
                shutil.copyfileobj(file, self.wfile)
                self.wfile.flush()
                if file.tell() >= size:
                    self.server.read.set()

    def do_HEAD(self) -> None:
        """Its size."""
        if self._is_known():
            with self.server.file.open("rb") as file:
                self._begin(file)

    def do_OPTIONS(self) -> None:
        """That the page may read it, which browsers may ask for before it does."""
        if self._is_known():
            self.send_response(HTTPStatus.NO_CONTENT)
            self._allow()
            self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

    def send_error(self, *_: object, **__: object) -> None:
        """Of all that is wrong: it is not there, whatever it is."""
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object, **__: object) -> None:
        """Requests are nothing that the terminal is to be full of."""

    def _is_known(self) -> bool:
        known = (
            self.path == self.server.path
            and self.headers.get_all("Host") == [self.server.host]
            and self.headers.get("Origin", READER) == READER
        )
        if not known:
            self.send_error()
        return known

    def _begin(self, file: BinaryIO) -> int:
        size = os.fstat(file.fileno()).st_size
        self.send_response(HTTPStatus.OK)
        self._allow()
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        return size

    def _allow(self) -> None:
        self.send_header("Access-Control-Allow-Origin", READER)


def plain_name(name: str) -> str:
    """A file's name as an address holds it without escapes: its end, and nothing but letters,
    digits, dots and dashes."""
    return _NOT_PLAIN.sub("_", name)[-_LONGEST_NAME:]
