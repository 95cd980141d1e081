"""``kernelprof open``: a trace in Perfetto, in the browser of this machine, served to that one page
on the loopback interface."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.cli.trace_files import add_max_size, max_bytes
from pytest_kernelprof.errors import TraceError

if TYPE_CHECKING:
    import argparse
    from typing import BinaryIO

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


HELP = "a trace in Perfetto, in the browser"
PORT = 9001
"""The one port of this machine that Perfetto's Content-Security-Policy lets it read from."""

_OTHERWISE = (
    "without a network: `kernelprof show` tells what the trace holds, and a Perfetto that is "
    "served nearby opens the file where it is dragged into its window"
)

_NOT_READ = "a browser may ask whether the page may reach this machine, which it has to"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The trace, and how it is opened."""
    parser.add_argument("trace", help="a Chrome trace of torch.profiler, plain or .gz")
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    parser.add_argument(
        "--timeout",
        default="5min",
        metavar="TIME",
        help="end if nothing has read it by then (default: %(default)s)",
    )
    add_max_size(parser)
    parser.epilog = (
        f"The file is served to https://ui.perfetto.dev alone, on this machine's port {PORT}, "
        f"until it was read once; it goes to no other machine; {_OTHERWISE}. exit "
        "status: 0 it was read, 1 it was not, 2 no trace, or the port is taken"
    )


def run(chosen: argparse.Namespace) -> int:
    """Serve the trace until it was read; 1 if it was not.

    Raises:
        TraceError: the file is no trace that can be read, an option's value is none, or the port
            is taken.
    """
    return serve(chosen.trace, chosen.timeout, max_bytes(chosen), browse=not chosen.no_browser)


def serve(trace: str, timeout: str, largest: int, *, browse: bool, port: int = PORT) -> int:
    """The same on any port.

    Raises:
        TraceError: as of ``run``.
    """
    from pytest_kernelprof.cli.open import HOST, OneFile
    from pytest_kernelprof.trace.reader import read_trace
    from pytest_kernelprof.units import parse_duration, printable

    try:
        timeout_s = parse_duration(timeout)
    except ValueError as error:
        raise TraceError(f"--timeout: {error}") from None
    file = Path(read_trace(trace, max_bytes=largest).source)
    try:
        server = OneFile(file, port)
    except OSError as error:
        raise TraceError(
            f"port {port} of {HOST} cannot be had ({error.strerror}), and Perfetto reads from no "
            "other: end what has it (another `kernelprof open`, `trace_processor --httpd`), or "
            f"open https://ui.perfetto.dev and drag {trace} into its window"
        ) from None
    with server:
        print(f"{printable(trace)} for Perfetto, until it is read:\n{server.link}", flush=True)
        opened = browse and webbrowser.open(server.link)
        if not opened:
            print(
                "open that address in a browser of this machine, or of one that is connected by "
                f"`ssh -L {port}:{HOST}:{port}`;\n{_OTHERWISE}",
                flush=True,
            )
        try:
            read = server.was_read(timeout_s)
        except KeyboardInterrupt:
            read = False
    print("it was read" if read else f"nothing has read it: {_NOT_READ}")
    return 0 if read else 1
