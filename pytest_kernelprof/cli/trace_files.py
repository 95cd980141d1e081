"""How large a trace file may be that a command is given: one option of those that read some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.errors import TraceError

if TYPE_CHECKING:
    import argparse


def add_max_size(parser: argparse.ArgumentParser) -> None:
    """The option ``--max-size``."""
    parser.add_argument(
        "--max-size",
        default="8 GB",
        metavar="SIZE",
        help="refuse a file that is larger than SIZE when unpacked (default: %(default)s)",
    )


def max_bytes(chosen: argparse.Namespace) -> int:
    """What it says, in bytes.

    Raises:
        TraceError: it is no size.
    """
    from pytest_kernelprof.units import parse_bytes

    try:
        return parse_bytes(chosen.max_size)
    except ValueError as error:
        raise TraceError(f"--max-size: {error}") from None
