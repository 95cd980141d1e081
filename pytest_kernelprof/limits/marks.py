"""Read the limits and options of a test from its markers."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from _pytest.nodes import Node

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.kinds import KINDS, Key, Limit, parse_limit

OPTIONS_MARKER = "kernelprof"

_CLOSE = 0.8
_OURS = frozenset({*KINDS, OPTIONS_MARKER})
_BESIDE_NOUNS = frozenset({"max", "limit", "count", "num", "n", "of", "total"})
MEASURING = frozenset({"kernel_profile", "kernel_benchmark"})
"""The fixtures that measure a callable."""


class Marks(NamedTuple):
    """The limits and options of a test.

    Attributes:
        limits: its limits; an inner level replaces an outer limit of the same key.
        comparisons: likewise, the limits that compare two callables.
        options: its ``kernelprof(...)`` markers, the innermost first.
    """

    limits: tuple[Limit, ...] = ()
    comparisons: tuple[Limit, ...] = ()
    options: tuple[pytest.Mark, ...] = ()


def marker_lines(options_line: str) -> list[str]:
    """Return the lines that register our markers, for ``pytest --markers``; the options last."""
    return [*(f"{kind.example}: {kind.help}" for kind in KINDS.values()), options_line]


def is_marked(item: pytest.Item) -> bool:
    """Whether the test has any marker of ours, well-formed or not."""
    return any(mark.name in _OURS for mark in item.iter_markers())


def limit_names(item: pytest.Item) -> tuple[str, ...]:
    """Return the names of the limits on the test, well-formed or not."""
    names = (mark.name for mark in item.iter_markers() if mark.name in KINDS)
    return tuple(dict.fromkeys(names))


def marks_of(item: pytest.Item, early: Collection[int] = ()) -> Marks:
    """Return the limits and options of a test.

    Args:
        early: by identity, the markers that it had before its own set-up. Those that are not in the
            source come from hooks (of a conftest.py) and are defaults: what is written on the
            test, its class or its module comes first.

    Raises:
        MarkerError: a marker is malformed, set twice on one level, or compares on a test that does
            not use the fixture.
    """
    found: dict[Key, Limit] = {}
    options: list[pytest.Mark] = []
    written: dict[tuple[int, Key], pytest.Mark] = {}
    for level, mark in _marks(item, early):
        if mark.name == OPTIONS_MARKER:
            options.append(mark)
        elif mark.name in KINDS:
            limit = parse_limit(mark.name, mark.args, mark.kwargs)
            # Of two on one level, one would be dropped silently.
            if level and written.setdefault((id(level), limit.key), mark) is not mark:
                raise MarkerError(_twice(limit, level))
            found.setdefault(limit.key, limit)
    limits = tuple(limit for limit in found.values() if not limit.compares)
    comparisons = tuple(limit for limit in found.values() if limit.compares)
    if comparisons and MEASURING.isdisjoint(getattr(item, "fixturenames", ())):
        raise MarkerError(
            f"{comparisons[0].name} compares the callable that the test gives to "
            "kernel_profile(fn, *args): request the fixture kernel_profile, or compare in the "
            "test with kernel_profile.compare(f, g, *args)"
        )
    return Marks(limits, comparisons, tuple(options))


def refuse_misspelt(item: pytest.Item, options_form: str = "kernelprof(...)") -> None:
    """Raise if a marker is nearly one of ours: it would limit nothing and pass.

    Args:
        options_form: the form of the marker that gives options.

    Raises:
        MarkerError: with the name that was probably meant.
    """
    for name in sorted({mark.name for mark in item.iter_markers()} - _OURS):
        if (meant := _nearly(name)) and name not in _registered(item.config):
            form = KINDS[meant].form if meant in KINDS else options_form
            raise MarkerError(
                f"@pytest.mark.{name} is not a marker; did you mean {meant}? Write "
                f"{form}, or register {name} if it is your own marker"
            )


def meant_by_strays(item: pytest.Item) -> dict[str, str]:
    """Find unregistered markers with one whole number and a name close to a limit's.

    Returns:
        The limit that was probably meant, by the marker's name.
    """
    found = {
        mark.name: _neighbour(mark.name)
        for mark in item.iter_markers()
        if _neighbour(mark.name) and not mark.kwargs and [type(one) for one in mark.args] == [int]
    }
    return {one: meant for one, meant in found.items() if one not in _registered(item.config)}


def names_in_vain(module: ModuleType) -> tuple[str, ...]:
    """Return our markers in the ``pytestmark`` of a module where pytest does not read it."""
    names = (getattr(mark, "name", "") for mark in _marks_on(module))
    return tuple(dict.fromkeys(name for name in names if name in _OURS))


@functools.cache
def _nearly(name: str) -> str:
    """The name of ours that a marker's name nearly is, if any."""
    import difflib  # most runs have no such marker

    return next(iter(difflib.get_close_matches(name, sorted(_OURS), n=1, cutoff=_CLOSE)), "")


@functools.cache
def _neighbour(name: str) -> str:
    """Return the limit with the same noun, if the name is not that limit's: ``kernel_limit``."""
    nouns = [word for word in name.split("_") if word not in _BESIDE_NOUNS]
    return "" if name in _OURS else _LIMITS_BY_NOUN.get(_stem("_".join(nouns)), "")


def _stem(noun: str) -> str:
    """Remove the plural ending of a noun."""
    return noun.rstrip("es")


_LIMITS_BY_NOUN = {
    **{_stem(name.removeprefix("max_")): name for name in KINDS if name.startswith("max_")},
    **dict.fromkeys(("op", "operator"), "max_kernels"),
}


def _registered(config: pytest.Config) -> set[str]:
    return {line.split(":")[0].split("(")[0].strip() for line in config.getini("markers")}


def _marks(
    item: pytest.Item, early: Collection[int]
) -> Iterator[tuple[Node | type | None, pytest.Mark]]:
    """Yield the markers of a test, innermost level first, each with the level it is written on.

    ``get_closest_marker`` puts a decorator before a ``pytest.param`` mark and a base class before a
    derived one, and cannot combine markers. So the levels are read here, each from its end.
    Defaults come last. Several of them are no mistake, as each conftest.py of nested folders may
    add its own. They keep pytest's order: the first is the closest, as the hook of the innermost
    folder is called first.
    """
    defaults: list[pytest.Mark] = []
    for node in reversed(item.listchain()):
        if any(mark.name in _OURS for mark in node.own_markers):
            within = _levels_within(node)
            by_hooks = set(early) - within.keys() - set(map(id, _marks_on(_written(node))))
            for mark in reversed(node.own_markers):
                if id(mark) not in by_hooks:
                    yield within.get(id(mark), node), mark
            defaults += [mark for mark in node.own_markers if id(mark) in by_hooks]
    for mark in defaults:
        yield None, mark


def _levels_within(node: Node) -> dict[int, type | None]:
    """Return the levels of a node's markers, by identity, that are not the node: base classes; and
    None for markers of ``pytest.param``, as each of stacked parameters may have its own."""
    parameters = getattr(getattr(node, "callspec", None), "marks", ())
    levels: dict[int, type | None] = {id(mark): None for mark in parameters}
    written = _written(node)
    if isinstance(written, type):
        for one in written.__mro__:
            levels |= {id(mark): one for mark in _marks_on(one)}
    return levels


def _written(node: Node) -> object:
    """Return the function, class or module of a node."""
    return getattr(node, "obj", None)


def _marks_on(written: object) -> list[pytest.Mark]:
    """Return its markers in the source; for a class, without those of its bases."""
    if isinstance(written, type):
        marks = vars(written).get("pytestmark", ())
    else:
        marks = getattr(written, "pytestmark", ())
    each: Sequence[Any] = marks if isinstance(marks, (list, tuple)) else [marks]
    return [getattr(mark, "mark", mark) for mark in each]


def _twice(limit: Limit, level: Node | type) -> str:
    qualified = limit.qualifier and not limit.compares  # as in its key
    title = f"{limit.name}({limit.qualifier})" if qualified else limit.name
    where = level.__name__ if isinstance(level, type) else level.name
    return (
        f"{title} is set twice on {where}; keep one (a class, a module or a pytest.param may "
        "have its own: the innermost counts)"
    )


def not_on_the_cpu(limits: Iterable[str]) -> str:
    """Return why a test is skipped all of whose limits need a GPU."""
    page = "docs/trust.md#what-counts-without-a-gpu"
    return f"not applicable on the CPU: {', '.join(dict.fromkeys(limits))} (see {page})"
