"""Which limits, comparisons and options the markers of a test give it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from _pytest.config import _prepareconfig

from pytest_kernelprof.errors import MarkerError
from pytest_kernelprof.limits.kinds import KINDS
from pytest_kernelprof.limits.marks import (
    Marks,
    is_marked,
    marker_lines,
    marks_of,
    refuse_misspelt,
)

# Without the plugin loaded no marker is registered.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")

# What would be shared with the outer session stays off.
BARE = (
    "--import-mode=importlib",
    "--capture=no",
    *("-p", "no:faulthandler", "-p", "no:unraisableexception", "-p", "no:threadexception"),
)
HEAD = "import pytest\nmark = pytest.mark\ndef eager(): pass\n"


Collect = Callable[[str], list[pytest.Item]]


@pytest.fixture(scope="module")
def collect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collect]:
    """The tests of a file, in one bare session for all tests here: to begin one takes long."""
    folder = tmp_path_factory.mktemp("marked")
    files = (folder / f"test_it_{number}.py" for number in itertools.count())

    def collected(source: str) -> list[pytest.Item]:
        file = next(files)
        file.write_text(HEAD + source)
        (module,) = session.perform_collect([str(file)], genitems=False)
        return list(session.genitems(module))

    with pytest.MonkeyPatch.context() as here:
        here.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        config = _prepareconfig([str(folder), *BARE])
        config._do_configure()
        session = pytest.Session.from_config(config)
        config.hook.pytest_sessionstart(session=session)
        yield collected
        config.hook.pytest_sessionfinish(session=session, exitstatus=pytest.ExitCode.OK)
        config._ensure_unconfigure()


def marks(collect: Collect, source: str, test: str = "test_it") -> Marks:
    return marks_of(item(collect, source, test))


def item(collect: Collect, source: str, test: str = "test_it") -> pytest.Item:
    return next(one for one in collect(source) if one.name == test)


def bounds(found: Marks) -> list[tuple[str, str, float]]:
    return [(limit.name, limit.qualifier, limit.bound) for limit in found.limits]


def test_an_unmarked_test_has_nothing_of_ours(collect: Collect) -> None:
    assert marks(collect, "@mark.slow\ndef test_it(): pass") == Marks()


def test_limits_of_all_levels_compose_the_innermost_first(collect: Collect) -> None:
    source = """
pytestmark = mark.max_syncs(1)
@mark.max_launches(2)
class TestAll:
    @mark.max_kernels(3)
    @mark.max_kernels(4, match="gelu")
    @mark.parametrize("n", [pytest.param(1, marks=mark.max_memcpys(5))])
    def test_it(self, n): pass
"""
    assert bounds(marks(collect, source, "test_it[1]")) == [
        ("max_memcpys", "", 5),
        ("max_kernels", "", 3),
        ("max_kernels", "gelu", 4),
        ("max_launches", "", 2),
        ("max_syncs", "", 1),
    ]


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("pytestmark = mark.max_kernels(0)\n@mark.max_kernels(3)\ndef test_it(): pass", "test_it"),
        (
            "@mark.max_kernels(0)\nclass TestAll:\n"
            "    @mark.max_kernels(3)\n    def test_it(self): pass",
            "test_it",
        ),
        (
            "pytestmark = mark.max_kernels(0)\n@mark.max_kernels(3)\nclass TestAll:\n"
            "    def test_it(self): pass",
            "test_it",
        ),
        (
            "@mark.max_kernels(0)\n"
            "@mark.parametrize('n', [pytest.param(1, marks=mark.max_kernels(3))])\n"
            "def test_it(n): pass",
            "test_it[1]",
        ),
        (
            "@mark.max_kernels(0)\nclass Base: pass\n"
            "@mark.max_kernels(3)\nclass TestAll(Base):\n    def test_it(self): pass",
            "test_it",
        ),
    ],
    ids=["function", "method", "class", "parameter", "derived class"],
)
def test_an_inner_level_replaces_the_same_limit_of_an_outer_one(
    collect: Collect, source: str, test: str
) -> None:
    assert bounds(marks(collect, source, test)) == [("max_kernels", "", 3)]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("@mark.max_kernels(1)\n@mark.max_kernels(2)\ndef test_it(): pass", "max_kernels"),
        (
            "@mark.max_kernels(1, match='gelu')\n@mark.max_kernels(2, match='gelu')\n"
            "def test_it(): pass",
            "max_kernels(gelu)",
        ),
        (
            "@mark.max_kernels(1)\n@mark.max_kernels(2)\nclass TestIt:\n"
            "    def test_it(self): pass",
            "max_kernels is set twice on TestIt",
        ),
        (
            "pytestmark = [mark.max_kernels(1), mark.max_kernels(2)]\ndef test_it(): pass",
            "max_kernels",
        ),
        (
            "@mark.max_kernels(1)\n@mark.max_kernels(2)\nclass Base: pass\n"
            "class TestIt(Base):\n    def test_it(self): pass",
            "max_kernels is set twice on Base",
        ),
        (
            "@mark.min_speedup(1.5, over=eager)\n@mark.min_speedup(2, over=eager)\n"
            "def test_it(kernel_profile): pass",
            "min_speedup is set twice on test_it",
        ),
        (
            '@mark.not_slower(than=eager)\n@mark.not_slower(than=eager, by="5%")\n'
            "def test_it(kernel_profile): pass",
            "not_slower is set twice on test_it",
        ),
    ],
    ids=["function", "match", "class", "module", "base class", "min_speedup", "not_slower"],
)
def test_the_same_limit_twice_on_one_level_is_refused(
    collect: Collect, source: str, title: str
) -> None:
    with pytest.raises(MarkerError, match=r"is set twice on .*; keep one") as error:
        marks(collect, source)
    assert title in str(error.value)


def test_a_marker_that_was_added_beside_the_same_limit_is_refused(
    collect: Collect,
) -> None:
    found = item(collect, "@mark.max_kernels(3)\ndef test_it(): pass")
    found.add_marker(pytest.mark.max_kernels(1))
    with pytest.raises(MarkerError, match="max_kernels is set twice on test_it"):
        marks_of(found)


def early(found: pytest.Item) -> list[int]:
    return [id(mark) for node in found.listchain() for mark in node.own_markers]


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("@mark.max_kernels(3)\ndef test_it(): pass", "test_it"),
        ("@mark.max_kernels(3)\nclass TestIt:\n    def test_it(self): pass", "test_it"),
        ("pytestmark = mark.max_kernels(3)\ndef test_it(): pass", "test_it"),
        (
            "@mark.max_kernels(3)\nclass Base:\n    def test_it(self): pass\n"
            "class TestIt(Base): pass",
            "test_it",
        ),
        (
            "@mark.parametrize('n', [pytest.param(1, marks=mark.max_kernels(3))])\n"
            "def test_it(n): pass",
            "test_it[1]",
        ),
        (
            "import unittest\nclass TestIt(unittest.TestCase):\n"
            "    @mark.max_kernels(3)\n    def test_it(self): pass",
            "test_it",
        ),
    ],
    ids=["function", "class", "module", "base class", "parameter", "unittest"],
)
@pytest.mark.parametrize("level", [-1, 1], ids=["on the test", "on the module"])
@pytest.mark.parametrize("append", [True, False])
def test_what_a_hook_adds_is_a_default(
    collect: Collect, source: str, test: str, level: int, append: bool
) -> None:
    found = item(collect, source, test)
    module = next(node for node in found.listchain() if isinstance(node, pytest.Module))
    node = found if level < 0 else module
    node.add_marker(pytest.mark.max_kernels(1), append=append)
    node.add_marker(pytest.mark.max_syncs(0), append=append)
    assert bounds(marks_of(found, early(found))) == [("max_kernels", "", 3), ("max_syncs", "", 0)]


def test_of_several_defaults_the_closest_wins(collect: Collect) -> None:
    found = item(collect, "def test_it(): pass")
    for bound in (1, 2):  # the hook of an inner folder is called first
        found.add_marker(pytest.mark.max_kernels(bound))
    found.parent.add_marker(pytest.mark.max_kernels(3))
    assert bounds(marks_of(found, early(found))) == [("max_kernels", "", 1)]


def test_options_of_a_hook_are_defaults_too(collect: Collect) -> None:
    found = item(collect, "@mark.kernelprof(rounds=3)\nclass TestIt:\n  def test_it(self): pass")
    found.add_marker(pytest.mark.kernelprof(rounds=9, warmup=2))
    options = marks_of(found, early(found)).options
    assert [mark.kwargs for mark in options] == [{"rounds": 3}, {"rounds": 9, "warmup": 2}]


def test_what_comes_later_than_hooks_is_no_default(collect: Collect) -> None:
    found = item(collect, "def test_it(): pass")
    found.add_marker(pytest.mark.max_kernels(9))
    before = early(found)
    found.add_marker(pytest.mark.max_kernels(1))
    assert bounds(marks_of(found, before)) == [("max_kernels", "", 1)]


def test_one_marker_object_on_base_and_derived_class_is_no_double(
    collect: Collect,
) -> None:
    source = """
few = mark.max_kernels(3)
@few
class Base: pass
@few
class TestIt(Base):
    def test_it(self): pass
"""
    assert bounds(marks(collect, source)) == [("max_kernels", "", 3)]


def test_a_derived_class_may_have_the_name_of_its_base(collect: Collect) -> None:
    source = """
@mark.max_kernels(0)
class TestIt: pass
@mark.max_kernels(3)
class TestIt(TestIt):
    def test_it(self): pass
"""
    assert bounds(marks(collect, source)) == [("max_kernels", "", 3)]


def test_stacked_parameters_may_each_bring_the_same_limit(collect: Collect) -> None:
    source = """
@mark.parametrize("a", [pytest.param(1, marks=mark.max_kernels(1))])
@mark.parametrize("b", [pytest.param(2, marks=mark.max_kernels(2))])
def test_it(a, b): pass
"""
    assert len(marks(collect, source, "test_it[2-1]").limits) == 1


def test_comparisons_stand_apart_from_limits(collect: Collect) -> None:
    source = """
@mark.max_kernels(3)
@mark.min_speedup(1.5, over=eager)
@mark.min_speedup(1.2, over=eager, metric="latency")
def test_it(kernel_profile): pass
"""
    found = marks(collect, source)
    assert [limit.name for limit in found.limits] == ["max_kernels"]
    assert [(one.bound, one.metric) for one in found.comparisons] == [(1.5, ""), (1.2, "latency")]


def test_an_inner_comparison_replaces_an_outer_one(collect: Collect) -> None:
    source = """
@mark.min_speedup(100, over=eager)
class TestAll:
    @mark.min_speedup(2, over=eager)
    def test_it(self, kernel_profile): pass
"""
    assert [one.bound for one in marks(collect, source).comparisons] == [2]


def test_a_comparison_without_the_fixture_is_refused(collect: Collect) -> None:
    with pytest.raises(MarkerError, match="min_speedup compares the callable that the test gives"):
        marks(collect, "@mark.min_speedup(2, over=eager)\ndef test_it(): pass")


@pytest.mark.parametrize("fixture", ["kernel_profile", "kernel_benchmark"])
def test_a_comparison_with_either_fixture_is_taken(collect: Collect, fixture: str) -> None:
    source = f"@mark.min_speedup(2, over=eager)\ndef test_it({fixture}): pass"
    assert len(marks(collect, source).comparisons) == 1


def test_options_come_as_their_markers_the_innermost_first(collect: Collect) -> None:
    source = """
pytestmark = mark.kernelprof(rounds=24)
@mark.kernelprof(warmup=3)
def test_it(): pass
"""
    found = marks(collect, source)
    assert [mark.kwargs for mark in found.options] == [{"warmup": 3}, {"rounds": 24}]


def test_a_malformed_marker_is_refused_with_its_form(collect: Collect) -> None:
    with pytest.raises(MarkerError, match=r"'many' is not a whole number\. Write max_"):
        marks(collect, "@mark.max_kernels('many')\ndef test_it(): pass")


def test_a_malformed_marker_is_ours_all_the_same(collect: Collect) -> None:
    assert is_marked(item(collect, "@mark.max_kernels('many')\ndef test_it(): pass"))


@pytest.mark.parametrize("name", ["slow", "max_kernel"])
def test_a_marker_of_another_name_is_not_ours(collect: Collect, name: str) -> None:
    assert not is_marked(item(collect, f"@mark.{name}\ndef test_it(): pass"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max_kernel", "max_kernels"),
        ("max_sync", "max_syncs"),
        ("forbid_kernel", "forbid_kernels"),
        ("min_speed_up", "min_speedup"),
    ],
)
def test_a_marker_that_is_nearly_ours_is_refused_with_the_right_form(
    collect: Collect, written: str, meant: str
) -> None:
    found = item(collect, f"@mark.{written}(1)\ndef test_it(): pass")
    with pytest.raises(MarkerError) as error:
        refuse_misspelt(found)
    assert str(error.value) == (
        f"@pytest.mark.{written} is not a marker; did you mean {meant}? Write "
        f"{KINDS[meant].form}, or register {written} if it is your own marker "
        f"(see {MarkerError.page})"
    )


def test_a_misspelt_options_marker_is_refused_with_the_form_of_the_options(
    collect: Collect,
) -> None:
    found = item(collect, "@mark.kernelproff(rounds=3)\ndef test_it(): pass")
    with pytest.raises(MarkerError, match=r"Write kernelprof\(warmup=3\)"):
        refuse_misspelt(found, "kernelprof(warmup=3)")


def test_a_registered_marker_may_have_a_name_like_ours(collect: Collect) -> None:
    found = item(collect, "@mark.max_launche(1)\ndef test_it(): pass")  # by no other test here
    with pytest.raises(MarkerError, match="did you mean max_launches"):
        refuse_misspelt(found)
    found.config.addinivalue_line("markers", "max_launche(n): mine")
    refuse_misspelt(found)


def test_a_marker_that_is_not_near_ours_is_nobodys_business(collect: Collect) -> None:
    refuse_misspelt(item(collect, "@mark.slow\ndef test_it(): pass"))


def test_every_marker_is_registered_with_a_form_and_what_it_says() -> None:
    lines = marker_lines("kernelprof(rounds=24): how to profile a test")
    assert lines[0] == (
        'max_kernels(3): at most this many kernels a call; match="copy" counts only those whose '
        "name or operator matches this regular expression (case ignored)"
    )
    assert [line.partition("(")[0] for line in lines] == [*KINDS, "kernelprof"]
