"""The names under which our own annotations stand in a trace; written by capture, read by trace."""

from __future__ import annotations

PREFIX = "kernelprof::"
ROUND = PREFIX + "round#"
"""Followed by the round's number: one call of the wrapped function."""
FIRST_SENTINEL = PREFIX + "sentinel#first"
LAST_SENTINEL = PREFIX + "sentinel#last"
LINE = PREFIX + "line#"
"""Followed by ``file:line``: a source line of the user, in attribution runs only."""
