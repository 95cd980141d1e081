"""Names that the profiler writes without escaping the quotes in them, which makes its file no JSON.

Kineto replaces newlines and backslashes in a name, quotes not: in an annotation ``say "hi"``, a
folder, file or class of that name. The name ends its line, or (torch 2.11) the numbers of the
process and the thread do. torch 2.15 replaces them in names, but not in the file that a recorded
frame was called from, which numbers follow.
"""

from __future__ import annotations

import re

_NAME = re.compile(
    rb'^([^"\n]*(?:"ph": "X", "cat": "[^"\n]*", )?"(?:name|traceName|CallFrom)": ")(.*)$',
    re.MULTILINE,
)
_END = re.compile(rb'"(?:, "pid": [^"]*, "tid": [^"]*,|(?:, "[^"]*": -?\d+)+|,| *})?$')
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def escape_quotes(text: bytes) -> bytes:
    """The text of a trace, with the bare quotes in its names escaped: in time that grows with its
    length alone, whatever it holds."""
    return _NAME.sub(_escaped, text)


def _escaped(line: re.Match[bytes]) -> bytes:
    end = _END.search(line[2])
    if end is None:
        return line[0]
    name = line[2][: end.start()]
    return line[1] + _BARE_QUOTE.sub(rb'\\"', name) + end[0]
