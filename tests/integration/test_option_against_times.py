"""--kernelprof-against with times: real processes that take turns, on a clock that the CPU has.

In the place of ``cuda_time`` stands what the code under test says that it takes, with a little
scatter; all else is what runs on a GPU.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.baselines import supervisor
from pytest_kernelprof.plugin import against_revision, run_record
from pytest_kernelprof.records.comparison import Paired, ProfileComparison, RunComparison
from pytest_kernelprof.records.document import Run as AnyRun
from pytest_kernelprof.records.profile import Profile
from pytest_kernelprof.summary.comparisons import BaselineSummary, baseline_summary

Run = Callable[..., pytest.RunResult]
Found = dict[str, list[ProfileComparison]]

OLD = """
US = {"slow": 100.0, "quick": 100.0, "tiny": 1.0}
def call(x): return x + 1
def other(x): return x + 1
def more(x): return x + 1
def calls(): return 2
"""
NEW = """
US = {"slow": 108.0, "quick": 80.0, "tiny": 1.04, "margin": 52.0, "more": 60.0}
def call(x): return x + 1
def other(x): return (x + 1).t()
def more(x): return x + 1 + 1
def calls(): return 1
"""
CLOCK = """
import os, random, pytest
from pkg import code
from pytest_kernelprof.gpu import inventory
from pytest_kernelprof.measure import sessions

chance, up, running = random.Random(os.getpid()), [], []

@pytest.fixture(autouse=True)
def _is_running(request):
    running[:] = [request.node.name.removeprefix("test_")]

def why_untimed(call):
    up.append(call)  # as if the call had brought CUDA up
    return ""

def times_of(taken):
    us = code.US.get(running[0], 50.0)
    return tuple(us * chance.gauss(1.0, 0.002) for _ in range(taken.facts.profile.rounds))

sessions.MoreRounds.why_untimed, sessions.times_of = why_untimed, times_of
inventory.cuda_is_up = lambda: bool(up)
"""
TESTS = """
import pytest, torch
from pkg import code
x = torch.ones(8, 4)
tries = []

def test_same(kernel_profile):
    kernel_profile(code.call, x)
def test_slow(kernel_profile):
    kernel_profile(code.call, x)
@pytest.mark.kernelprof(margin="10%")
def test_margin(kernel_profile):
    kernel_profile(code.call, x)
def test_tiny(kernel_profile):
    kernel_profile(code.call, x)
def test_other_work(kernel_profile):
    kernel_profile(code.other, x)
def test_another_number_of_calls(kernel_profile):
    for _ in range(code.calls()):
        kernel_profile(code.call, x)
def test_several(kernel_profile):
    for _ in range(3):
        kernel_profile(code.call, x)
    with kernel_profile.region("block"):
        code.call(x)
@pytest.mark.flaky(reruns=1)
def test_repeated(kernel_profile):
    tries.append(1)
    kernel_profile(code.call, x)
    assert len(tries) > 1
def test_more(kernel_profile):
    kernel_profile(code.more, x)
def test_quick(kernel_profile):
    kernel_profile(code.call, x)
def test_raises(kernel_profile):
    kernel_profile(code.call, x)
    raise ValueError("by itself")
"""


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    made = Repository(pytester.path)
    made.write({"pytest.ini": "[pytest]\npythonpath = .\n"})
    made.commit({"pkg/__init__.py": "", "pkg/code.py": OLD})
    made.write({"pkg/code.py": NEW, "tests/test_it.py": TESTS, "tests/conftest.py": CLOCK})
    return made


@pytest.fixture
def against(
    pytester: pytest.Pytester,
    repository: Repository,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    quick_references: None,
) -> Run:
    """A run of its own process."""
    place = tmp_path_factory.mktemp("place")
    monkeypatch.setattr(supervisor, "make_folder", partial(supervisor.make_folder, str(place)))
    monkeypatch.setenv("TMPDIR", str(place))
    for name in ("MoreRounds.why_untimed", "times_of"):  # the conftest's are put in their place
        monkeypatch.setattr(f"pytest_kernelprof.measure.sessions.{name}", None)
    monkeypatch.setattr("pytest_kernelprof.gpu.inventory.cuda_is_up", None)

    def run(*options: str) -> pytest.RunResult:
        usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
        found = pytester.runpytest_inprocess(*usual, "--kernelprof-against=main", *options)
        assert [*place.glob("kernelprof-*")] == []  # neither trees nor traces
        return found

    monkeypatch.setenv("COLUMNS", "160")
    return run


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """How each profile of each test compares, by the test's name."""
    seen: Found = {}

    def noted(run: AnyRun, baseline: RunComparison) -> BaselineSummary:
        found = baseline_summary(run, baseline)
        seen.clear()
        for one in found.profiles:
            seen.setdefault(one.test.rpartition("test_")[2], []).append(one)
        return found

    monkeypatch.setattr(run_record, "baseline_summary", noted)
    return seen


def timings(profiles: list[ProfileComparison]) -> list[Paired | None]:
    return [one.paired for one in profiles]


def test_one_pair_clears_what_is_not_slower(against: Run, found: Found) -> None:
    result = against("-p", "rerunfailures", "-k", "not slow and not quick and not more", "-v")
    result.assert_outcomes(passed=7, failed=1)
    held = {name: of for name, of in found.items() if {one.change for one in of} == {"same"}}
    assert held.keys() == {"same", "margin", "tiny", "several", "repeated"}
    *calls, block = timings(held["several"])
    assert block is None
    for timing in (*timings(held["same"]), *calls):
        assert timing is not None
        assert (timing.change, timing.why, timing.margin) == ("same", "", 0.05)
        assert [(pair.first, pair.turns) for pair in timing.pairs] == [("baseline", 6)]
    margins = [one.margin for one in (*timings(held["margin"]), *timings(held["tiny"])) if one]
    assert margins == [0.1, pytest.approx(0.2, rel=0.01)]
    repeated = timings(held["repeated"])[0]
    assert repeated is not None
    assert (repeated.change, repeated.why) == ("not compared", "the test was repeated")
    (calls_differ,), (other,) = found["another_number_of_calls"], found["other_work"]
    assert calls_differ.reason == "different work: 1 profiles, 2 in the baseline"
    assert other.change == "not compared"
    assert other.reason.startswith(
        "different work: the result is float32 4x8, strides (1, 4), cpu, in the baseline "
    )
    result.stdout.fnmatch_lines(
        [
            "*one of 5 compared tests is worse than main (*",
            "against *main: 3 not compared, 5 unchanged",
        ]
    )


IN_TURN = r"medians (100\.\d|99\.9)us -> 10[78]\.\dus"


def test_four_pairs_convict_what_is_slower(against: Run, found: Found) -> None:
    result = against("-k", "slow or quick or same", "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.re_match_lines(
        [
            r"E   worse than main: GPU time \+[78]\.\d %, margin 5 %$",
            rf"  mean of 4 interleaved pairs, all beyond the margin; {IN_TURN}$",
            r"  if intended, allow kernelprof\(margin='10%'\) at test_it\.py:\d+ until main has$",
            r"  this change$",
        ]
    )
    result.stdout.re_match_lines(
        [
            # The times of operators on the CPU decide whether one is named that is slower.
            r"✗ (code\.py:3|test_it\.py:\d+): .*GPU time \+[78]\.\d %.* \(test_slow\)$",
            r"  to do: (undo the change$|find what slows down )",
            r"  operators ",
        ]
    )
    for name, change in (("slow", "worse"), ("quick", "better")):
        timing = timings(found[name])[0]
        assert timing is not None
        assert timing.change == found[name][0].change == change
        firsts = ["baseline", "current", "baseline", "current"]
        assert sorted(str(pair.first) for pair in timing.pairs) == sorted(firsts)
    result.stdout.fnmatch_lines(
        [
            "1 of 3 tests is worse than main (*",
            "*operators *change *range *test",
            "✗ *1 *+[78].? % *+?.?..+?.? % *test_slow",
            "better",
            "* *1 *-*.? % *test_quick",
            "3 calls timed (interleaved), margin 5 %, their GPU time *",
        ]
    )


def test_what_its_counts_have_judged_takes_one_pair(against: Run, found: Found) -> None:
    against("-k", "more").assert_outcomes(failed=1)
    assert [one.change for one in found["more"]] == ["worse"]
    (timing,) = timings(found["more"])
    assert timing is not None
    assert (timing.change, len(timing.pairs)) == ("not compared", 1)
    assert timing.why == "more kernels already fail the test"
    assert timing.ratio == pytest.approx(1.2, abs=0.01)


LATER = """
import torch
from pkg import code
def test_more(kernel_profile):
    kernel_profile(code.more, torch.ones(8, 4))
    kernel_profile(code.call, torch.ones(8, 4))
"""


def test_a_later_call_of_a_test_that_counts_have_judged_takes_one_pair(
    against: Run, repository: Repository, found: Found
) -> None:
    repository.write({"tests/test_it.py": LATER})
    result = against("--kernelprof-report")
    result.assert_outcomes(failed=1)
    assert [one.change for one in found["more"]] == ["worse", "undecided"]
    later = timings(found["more"])[1]
    assert later is not None
    assert (len(later.pairs), later.why) == (1, "more kernels already fail the test")
    assert later.ratio == pytest.approx(1.2, abs=0.01)


WARNED = [
    "*KernelprofWarning: worse than main: operators 1 -> 2",
    "*  at code.py:5",
    "*    5 | def more(x): *",
    "*      | added operator: aten::add",
]


def test_counts_alone_and_only_warned_of(against: Run, found: Found) -> None:
    result = against(
        "-k", "several or more", "-o", "kernelprof_against_exact=true", "--kernelprof-warn-only"
    )
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.OK
    assert timings(found["several"]) == [None] * 4
    assert {one.change for one in found["several"]} == {"same"}
    assert [one.change for one in found["more"]] == ["worse"]
    result.stdout.fnmatch_lines(WARNED)
    result.stdout.fnmatch_lines(
        [
            "1 of 2 tests is worse than main (*",
            "only a warning: 1 test is worse than main",
        ]
    )


def test_a_margin_below_what_pairs_can_tell_is_a_usage_error(against: Run) -> None:
    result = against("--kernelprof-margin=1%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--kernelprof-margin: got '1%'; expected a percentage of 2% or *"]
    )


OVER = """
import pytest, torch
from pkg import code
x = torch.ones(8, 4)
pytestmark = pytest.mark.max_kernels(0)
def test_slow(kernel_profile): kernel_profile(code.call, x)
def test_more(kernel_profile): kernel_profile(code.more, x)
def test_other(kernel_profile): kernel_profile(code.other, x)
"""


def test_over_its_own_limit_counts_alone_are_compared(
    against: Run, repository: Repository, found: Found
) -> None:
    repository.write({"tests/test_it.py": OVER})
    against().assert_outcomes(failed=3)
    changes = {name: one.change for name, (one,) in found.items()}
    assert changes == {"slow": "same", "more": "worse", "other": "not compared"}
    (timing,) = timings(found["slow"])
    assert timing is not None
    assert (timing.change, timing.why) == ("not compared", "the test exceeds a limit of its own")


LATENCY = """
import pytest, torch
from pkg import code
pytestmark = pytest.mark.max_latency("10s")
def test_one(kernel_profile): kernel_profile(code.call, torch.ones(8, 4))
def test_two(kernel_profile): kernel_profile(code.call, torch.ones(8, 4))
"""


def test_how_many_calls_were_timed_in_turn_is_told_in_every_format(
    against: Run, repository: Repository
) -> None:
    """Also of calls that did not change, which have no row."""
    repository.write({"tests/test_it.py": LATENCY})
    pages = ("--kernelprof-markdown=run.md", "--kernelprof-html=run.html")
    result = against(*pages)
    result.assert_outcomes(passed=2)
    told = " ".join(str(result.stdout).split())  # as wide as it comes
    assert re.search(r"against main: .*2 calls timed \(interleaved\), margin 5 %", told)
    for name in ("run.md", "run.html"):
        page = (repository.folder / name).read_text().replace("\u200c", "").replace("\\", "")
        page = page.replace("\N{NO-BREAK SPACE}", " ")
        assert "2 calls timed (interleaved), margin 5 %" in page


NOTHING = """
import pytest, torch
from pkg import code
def test_same(kernel_profile): kernel_profile(code.call, torch.ones(8, 4))
def test_nothing(kernel_profile): pass
"""


def test_a_test_that_measures_nothing_is_told_as_not_compared(
    against: Run, repository: Repository
) -> None:
    repository.write({"tests/test_it.py": NOTHING})
    result = against()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "None of 1 compared test is worse than main (*",
            "not compared test_it.py::test_nothing: the test fails on your code",
        ]
    )


MISSING = """
import pytest, torch
from pkg import code
x = torch.ones(8, 4)
def test_both(kernel_profile):
    kernel_profile(code.more, x)
    kernel_profile(code.call, x)
"""


def test_what_is_missing_is_an_error_also_where_what_is_worse_only_warns(
    against: Run, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second profile is as the revision's, but for a metric that could not be had."""
    repository.write({"tests/test_it.py": MISSING})
    judge = against_revision.judge

    def judge_without(current: list[Profile], *more: Any) -> tuple[ProfileComparison, ...]:
        kept = {k: v for k, v in current[1].metrics.items() if k != "would_wait"}
        return judge([current[0], replace(current[1], metrics=kept)], *more)

    monkeypatch.setattr(against_revision, "judge", judge_without)
    result = against("--kernelprof-warn-only", "-o", "kernelprof_against_exact=true")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*against: would_wait is missing; main (*) has it"])
    result.stdout.fnmatch_lines(WARNED)
