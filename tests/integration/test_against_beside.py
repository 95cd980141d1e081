"""The reference of --kernelprof-against works beside the run where nothing is timed: it collects at
the same time, and its process is not waited for once it has nothing more to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.baselines import supervisor, worker

Run = Callable[..., pytest.RunResult]

QUICK = pytest.mark.usefixtures("quick_references")
TEST = """
import torch
from pkg import m
def test_it(kernel_profile): kernel_profile(m.f, torch.ones(8))
"""
# ``mark`` notes what a side does in a file of its name, and tells of the other side.
SIDES = """
import pathlib
place = pathlib.Path({place!r})
side = "baseline" if "kernelprof-against-" in __file__ else "current"
def mark(what): (place / f"{{side}}-{{what}}").touch()
"""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.setattr(supervisor, "make_folder", partial(supervisor.make_folder, str(folder)))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def against(pytester: pytest.Pytester, place: Path) -> Run:
    """Run tests against a commit, which has these files with another content, or lacks them."""

    def run(files: dict[str, str], *options: str, committed: str | None = None) -> pytest.RunResult:
        made = Repository(pytester.path)
        code = "def f(x): return x + 1"
        made.commit({"pytest.ini": "[pytest]\npythonpath = .", "pkg/__init__.py": ""})
        if committed is not None:
            made.commit(dict.fromkeys(files, committed))
        made.commit({"pkg/m.py": code, "test_it.py": TEST})
        sides = SIDES.format(place=str(place))
        made.write({name: sides + text for name, text in files.items()})
        usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
        return pytester.runpytest_inprocess(*usual, "--kernelprof-against=HEAD", *options)

    return run


def is_compared(result: pytest.RunResult) -> None:
    result.stdout.fnmatch_lines("None of 1 test is worse than HEAD (*")
    assert result.ret == pytest.ExitCode.OK


BOTH = """
import time
mark("collects")
other = "current" if side == "baseline" else "baseline"
deadline = time.monotonic() + 60
while not (place / f"{other}-collects").exists():
    assert time.monotonic() < deadline, "the other side does not collect meanwhile"
    time.sleep(0.01)
"""


@QUICK
def test_both_sides_collect_at_the_same_time(against: Run) -> None:
    """Each loads this file while the other one does, too."""
    is_compared(against({"test_both.py": BOTH}))


@QUICK
def test_what_the_run_leaves_out_is_not_collected_there(against: Run, place: Path) -> None:
    given = ("--ignore=test_out.py", "--ignore-glob=*_glob.py")
    is_compared(against({"test_out.py": "mark('out')", "test_glob.py": "mark('glob')"}, *given))
    assert not [*place.glob("*-out"), *place.glob("*-glob")]


@QUICK
def test_a_file_without_measured_tests_that_has_changed_is_no_code_of_the_revision(
    against: Run,
) -> None:
    result = against({"test_plain.py": "mark('plain')\ndef test_plain(): pass"}, committed="x = 1")
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*taken from the revision*")
    is_compared(result)


@QUICK
def test_what_such_a_file_loads_does_not_count(against: Run, pytester: pytest.Pytester) -> None:
    """It has the user's own code loaded there: the reference begins anew, without that file."""
    loads = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("mine", {str(pytester.path / "pkg" / "m.py")!r})
sys.modules["mine"] = importlib.util.module_from_spec(spec)
mark("loads")
def test_plain(): pass
"""
    result = against({"test_plain.py": loads})
    result.assert_outcomes(passed=2)
    is_compared(result)


@QUICK
def test_a_file_that_only_the_run_has_is_not_missed(against: Run) -> None:
    """Named on the command line, and no test by its name."""
    result = against({"pkg/new.py": '">>> 1\\n1"'}, "--doctest-modules", "pkg/new.py", "test_it.py")
    is_compared(result)


LATE = """
import atexit, tempfile, time, pytest
class Late:
    def __del__(self, sleep=time.sleep, touch=(place / "baseline-late").touch):
        sleep(10)
        touch()
if side == "baseline":
    late, made = Late(), tempfile.TemporaryDirectory(prefix="made-", dir=place)
    atexit.register(mark, "exit")
@pytest.fixture(scope="session", autouse=True)
def ends():
    yield
    mark("ends")
def pytest_unconfigure():
    mark("unconfigured")
"""


def test_the_end_of_its_interpreter_is_not_waited_for(
    against: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that pytest, its fixtures and ``atexit`` do there is done. Not quick references: these
    have no such end."""
    monkeypatch.setattr(worker, "_END_S", 120.0)
    is_compared(against({"conftest.py": LATE}))
    found = {one.name for one in place.iterdir()}
    assert found >= {f"baseline-{what}" for what in ("ends", "unconfigured", "exit")}
    assert "baseline-late" not in found
    left = ("kernelprof-against-*", "kernelprof-traces-*", "made-*")
    assert not [path for one in left for path in place.glob(one)]
