"""The properties of a test in JUnit files, and wherever else its reports go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.schema.run import Profile

_OURS = "kernelprof."


def forget_properties(item: pytest.Item) -> None:
    """Of a test that is run again, or that has taken more: what was said of it holds no more."""
    item.user_properties[:] = [
        one for one in item.user_properties if not str(one[0]).startswith(_OURS)
    ]


def tell_properties(item: pytest.Item, profiles: Sequence[Profile]) -> None:
    """Say what a test took, in place of what was said before."""
    from pytest_kernelprof.report.junit import properties_of

    forget_properties(item)
    item.user_properties += [(_OURS + name, value) for name, value in properties_of(profiles)]
