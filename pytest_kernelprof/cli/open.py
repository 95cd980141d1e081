"""``kernelprof open``: a trace in Perfetto, in the browser of this machine."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelprof.cli.trace_files import add_max_size, max_bytes
from pytest_kernelprof.errors import TraceError

if TYPE_CHECKING:
    import argparse

HELP = "open a trace in Perfetto, in the browser"
PORT = 9001
"""The one port of this machine that Perfetto's Content-Security-Policy lets it read from."""

_OTHERWISE = (
    "without a network, use `kernelprof show`, or drag the file into the window of a local Perfetto"
)
_NOT_READ = "a browser may ask whether the page may access this machine: allow that"
EXAMPLE = "open trace.json.gz"
STATUS = "0 if the trace was read, 1 if not, 2 for an error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The trace, and how it is opened."""
    parser.add_argument("trace", help="a Chrome trace of torch.profiler; no other machine gets it")
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    parser.add_argument(
        "--timeout",
        default="5min",
        metavar="TIME",
        help="stop if nothing has read it after TIME (default: %(default)s)",
    )
    add_max_size(parser)


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
    from pytest_kernelprof.cli.loopback import HOST, OneFile
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
            f"port {port} of {HOST} is not available ({error.strerror}), and Perfetto reads from "
            "no other: end the process that uses it (another `kernelprof open`, "
            "`trace_processor --httpd`), or open https://ui.perfetto.dev and drag "
            f"{trace} into its window"
        ) from None
    with server:
        print(f"{printable(trace)} for Perfetto, until it is read:\n{server.link}", flush=True)
        opened = browse and webbrowser.open(server.link)
        if not opened:
            print(
                "open that address in a browser of this machine, or of another one connected with "
                f"`ssh -L {port}:{HOST}:{port}`;\n{_OTHERWISE}",
                flush=True,
            )
        try:
            read = server.was_read(timeout_s)
        except KeyboardInterrupt:
            read = False
    print("it was read" if read else f"nothing has read it: {_NOT_READ}")
    return 0 if read else 1
