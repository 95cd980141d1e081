"""The operators of one round as a tree: what each of them, and all below it, launched."""

from __future__ import annotations

import msgspec


class OperatorNode(msgspec.Struct, frozen=True):
    """Operators of one name under the same operators, together.

    Attributes:
        name: theirs; empty of the whole round.
        calls: how many there are.
        kernels: how many kernels they launched, and those below them; on the CPU how many
            operators that compute there are among them.
        us: what these take, in microseconds.
        below: what they called, in the order of the first call.
    """

    name: str
    calls: int
    kernels: int
    us: float
    below: tuple[OperatorNode, ...] = ()
