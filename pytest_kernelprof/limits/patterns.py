"""Patterns and kernels: which match, which are forbidden, where a sequence first goes wrong."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from pytest_kernelprof.schema.profile import Hit, Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pytest_kernelprof.schema.profile import Kernel

# Inductor's C++ kernels and autograd's nodes: on the CPU names that the dispatcher does not know.
_NO_OPERATOR = re.compile(r"[\W_]*(cpp|graph_|aoti_torch_|autograd::|\w*Backward\d)", re.IGNORECASE)

Patterns = tuple[str | None, ...]
"""Regular expressions; None stands for any run of kernels."""


def matches(kernel: Kernel, pattern: str) -> bool:
    """Whether a pattern is found in the kernel's full name, short name or operator chain.

    Names differ between GPUs and on the CPU, operators don't. Case is ignored.
    """
    compiled = _compiled(pattern)
    texts = (kernel.name, kernel.short_name, *kernel.operators)
    return any(compiled.search(text) for text in texts)


def hits(kernels: Sequence[Kernel], patterns: Patterns) -> tuple[Hit, ...]:
    """The kernels that match any of the patterns, each with the first that it matches."""
    found = []
    for position, kernel in enumerate(kernels, 1):
        pattern = next((one for one in patterns if one and matches(kernel, one)), None)
        if pattern:
            found.append(Hit(position, kernel.short_name, pattern))
    return tuple(found)


def names_nothing(
    patterns: Patterns, kernels: Iterable[Kernel], operators: Callable[[], Collection[str]]
) -> tuple[str, ...]:
    """Find the patterns that cannot match on the CPU, where kernels are operators.

    Args:
        patterns: those of one limit.
        kernels: what ran; a pattern that matches one of them is possible.
        operators: returns the names of all operators, and is called only where they are needed.

    Returns:
        The patterns that match neither a kernel that ran, nor the name of any operator, and do not
        begin as the names of compiled kernels and autograd nodes do.
    """
    ran = list(kernels)
    left = [
        one
        for one in _named(patterns)
        if not _NO_OPERATOR.match(one) and not any(matches(kernel, one) for kernel in ran)
    ]
    names = operators() if left else ()
    return tuple(one for one in left if not any(map(_compiled(one).search, names)))


def first_mismatch(kernels: Sequence[Kernel], patterns: Patterns) -> Mismatch | None:
    """Where the kernels first differ from the patterns; None where they are as expected.

    Keeps the set of pattern positions that are reachable after each kernel, so that many wildcards
    stay linear.
    """
    reachable = _skip_runs({0}, patterns)
    for position, kernel in enumerate(kernels, 1):
        after = _skip_runs(_step(reachable, kernel, patterns), patterns)
        if not after:
            wanted = _named({patterns[i] for i in reachable if i < len(patterns)})
            return Mismatch(
                len(kernels), position, kernel.short_name, kernel.operators, tuple(sorted(wanted))
            )
        reachable = after
    if len(patterns) in reachable:
        return None
    return Mismatch(len(kernels), wanted=_named(patterns[min(reachable) :]))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _step(at: set[int], kernel: Kernel, patterns: Patterns) -> set[int]:
    after = set()
    for i in at:
        if i < len(patterns):
            pattern = patterns[i]
            if pattern is None:
                after.add(i)
            elif matches(kernel, pattern):
                after.add(i + 1)
    return after


def _skip_runs(at: set[int], patterns: Patterns) -> set[int]:
    reached = set(at)
    for i in range(len(patterns)):
        if i in reached and patterns[i] is None:
            reached.add(i + 1)
    return reached


def _named(patterns: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if pattern is not None)
