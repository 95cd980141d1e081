"""The properties of a test in JUnit files, and wherever else its reports go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_kernelprof.schema.run import Comparison, Profile

_OURS = "kernelprof."
_VERDICT = f"{_OURS}verdict"


def forget_properties(item: pytest.Item) -> None:
    """Of a test that is run again, or that has taken more: what was said of it holds no more."""
    item.user_properties[:] = [
        one for one in item.user_properties if not str(one[0]).startswith(_OURS)
    ]


def tell_properties(
    item: pytest.Item, profiles: Sequence[Profile], comparisons: Sequence[Comparison]
) -> None:
    """Say what a test took, in place of what was said before."""
    from pytest_kernelprof.report.exports import properties_of

    forget_properties(item)
    properties = properties_of(profiles, comparisons)
    item.user_properties += [(_OURS + name, value) for name, value in properties]


def tell_verdict(item: pytest.Item, report: pytest.TestReport, verdict: str) -> None:
    """Say how a test fared that its profiles do not say, unless they say that a limit is broken or
    a number missing."""
    for properties in (item.user_properties, report.user_properties):
        if dict(properties).get(_VERDICT) not in ("failed", "incomplete"):
            properties[:] = [one for one in properties if one[0] != _VERDICT]
            properties.append((_VERDICT, verdict))


def tell_suite(config: pytest.Config, words: str) -> None:
    """Say of the whole run, in its JUnit file, what was not judged."""
    from _pytest.junitxml import xml_key

    if words and xml_key in config.stash:
        config.stash[xml_key].add_global_property(f"{_OURS}not_judged", words)
