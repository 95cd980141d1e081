"""Names that the profiler writes without escaping the quotes in them, which makes its file no JSON.

Kineto puts a name on a line of its own and replaces newlines and backslashes in it, quotes not: an
annotation ``say "hi"``, a folder, file or class of that name.
"""

from __future__ import annotations

import re

_NAME = re.compile(rb'^([^"\n]*"(?:name|traceName)": ")(.*".*)("(?:,| *})?)$', re.MULTILINE)
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def escape_quotes(text: bytes) -> bytes:
    """The text of a trace, with the bare quotes in its names escaped."""
    return _NAME.sub(lambda found: found[1] + _escaped(found[2]) + found[3], text)


def _escaped(name: bytes) -> bytes:
    return _BARE_QUOTE.sub(rb'\\"', name)
