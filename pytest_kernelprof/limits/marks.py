"""Which limits the markers of a test give it."""

from __future__ import annotations

import difflib
import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.comparisons import FORMS, HELP, Promise, parse_promise
from pytest_kernelprof.limits.kinds import KINDS, Limit, parse_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

OPTIONS_MARKER = "kernelprof"
_CLOSE = 0.8
_OURS = frozenset({*KINDS, *FORMS, OPTIONS_MARKER})


def marker_lines() -> list[str]:
    """The lines that register our limits and promises, for ``pytest --markers``."""
    lines = [f"{kind.example}: {kind.help}" for kind in KINDS.values()]
    lines += [f"{form.partition(' or ')[0]}: {HELP[name]}" for name, form in FORMS.items()]
    return lines


def is_marked(item: pytest.Item) -> bool:
    """Whether any marker of ours stands on the test."""
    return any(mark.name in _OURS for mark in item.iter_markers())


def limits_of(item: pytest.Item) -> tuple[Limit, ...]:
    """The limits of a test, an inner level replacing an outer limit of the same key.

    Raises:
        MarkerError: a marker is malformed, misspelt, or stands twice on one function.
    """
    found: dict[tuple[str, str], Limit] = {}
    for mark in _marks(item):
        if mark.name in KINDS:
            limit = parse_limit(mark.name, mark.args, mark.kwargs)
            found.setdefault(limit.key, limit)
    _refuse_doubles(item)
    return tuple(found.values())


def promises_of(item: pytest.Item) -> tuple[Promise, ...]:
    """The comparisons that markers promise, an inner level replacing an outer one.

    Raises:
        MarkerError: a marker is malformed, stands twice, or on a test that cannot keep it.
    """
    found: dict[tuple[str, int, str | None], Promise] = {}
    for mark in _marks(item):
        if mark.name in FORMS:
            promise = parse_promise(mark.name, mark.args, mark.kwargs)
            found.setdefault(promise.key, promise)
    _refuse_doubles(item)
    promises = tuple(found.values())
    fixtures = getattr(item, "fixturenames", ())
    if promises and not {"kernel_profile", "kernel_benchmark"} & set(fixtures):
        raise MarkerError(
            f"{promises[0].name} compares what the test hands to kernel_profile(fn, *args): ask "
            "for the fixture kernel_profile, or compare in the test, kernel_profile.compare(f, g, "
            "*args)"
        )
    return promises


def option_marks(item: pytest.Item) -> Iterator[pytest.Mark]:
    """The markers ``kernelprof(...)`` of a test, the innermost level first."""
    return (mark for mark in _marks(item) if mark.name == OPTIONS_MARKER)


def refuse_misspelt(item: pytest.Item, options_form: str) -> None:
    """Raise for a marker that is nearly one of ours: it would limit nothing and pass.

    Raises:
        MarkerError: with the name that was probably meant.
    """
    strangers = {mark.name for mark in item.iter_markers()} - _OURS
    for name in sorted(strangers):
        meant = _nearly(name)
        if meant and name not in _registered(item.config):
            form = KINDS[meant].form if meant in KINDS else FORMS.get(meant, options_form)
            raise MarkerError(
                f"@pytest.mark.{name} is no marker; {meant} was probably meant. "
                f"The form is: {form}. (If {name} is a marker of your own, register it.)"
            )


@functools.cache
def _nearly(name: str) -> str:
    """The name of ours that a marker's name nearly is, if any."""
    return next(iter(difflib.get_close_matches(name, sorted(_OURS), n=1, cutoff=_CLOSE)), "")


def _registered(config: pytest.Config) -> set[str]:
    lines = config.getini("markers")
    return {line.split(":")[0].split("(")[0].strip() for line in lines}


def _marks(item: pytest.Item) -> Iterator[pytest.Mark]:
    """All markers of a test, the innermost level first.

    ``get_closest_marker`` would put a decorator before a ``pytest.param`` mark and a base class
    before a derived one, and could not compose; so the levels are read here, each from its end.
    """
    for node in reversed(item.listchain()):
        yield from reversed(node.own_markers)


def _same(mark: pytest.Mark) -> tuple[str, object, object]:
    """The marker's title, and what makes two of its kind the same."""
    if mark.name in FORMS:
        promise = parse_promise(mark.name, mark.args, mark.kwargs)
        return promise.name, *promise.key[1:]
    name, qualifier = parse_limit(mark.name, mark.args, mark.kwargs).key
    return f"{name}({qualifier})" if qualifier else name, qualifier, None


def _refuse_doubles(item: pytest.Item) -> None:
    """Of two on one level one would be dropped without a word."""
    for where, marks in _written(item):
        keys = [_same(mark) for mark in marks if mark.name in (KINDS.keys() | FORMS.keys())]
        for key in keys:
            if keys.count(key) > 1:
                raise MarkerError(
                    f"{key[0]} stands twice on {where}; keep one (a class, a module or a "
                    "pytest.param may carry another, which the inner level replaces)"
                )


def _written(item: pytest.Item) -> Iterator[tuple[str, list[pytest.Mark]]]:
    """The markers of each level as they were written, with the level's name: a base class is a
    level of its own, and so is what ``pytest.param`` gives."""
    parameters = getattr(getattr(item, "callspec", None), "marks", ())
    own = [mark for mark in item.own_markers if not any(mark is other for other in parameters)]
    yield item.name, own
    for node in item.listchain():
        written = getattr(node, "obj", None)
        if isinstance(written, type):
            yield from ((one.__name__, _marks_on(one)) for one in written.__mro__)
        elif isinstance(written, ModuleType):
            yield node.name, _marks_on(written)


def _marks_on(written: object) -> list[pytest.Mark]:
    marks = vars(written).get("pytestmark", ())
    each: Iterable[Any] = marks if isinstance(marks, (list, tuple)) else [marks]
    return [getattr(mark, "mark", mark) for mark in each]
