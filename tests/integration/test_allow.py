"""``allow`` and ``allow=``: work that is wanted does not count, and is shown apart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from textwrap import dedent

import pytest

Run = Callable[..., pytest.RunResult]

CODE = """
import threading, pytest_kernelprof
from pytest_kernelprof import allow
def log(x):
    return x.sum()
def step():
    {block}
        log(x)
    return x + 1
"""
LOGS = CODE.format(block='with allow("kernels", why="logging"):')
COUNTS = CODE.format(block="if True:")
TEST = """
{markers}
def test_it(kernel_profile):
    kernel_profile(step)
"""


def marked(*markers: str) -> str:
    return TEST.format(markers="\n".join(f"@pytest.mark.{one}" for one in markers))


@pytest.mark.parametrize(
    "marker",
    [
        "max_kernels(1)",
        'max_kernels(0, match="sum")',
        'forbid_kernels("sum")',
        'expect_kernels("aten::add")',
    ],
)
def test_a_limit_on_kernels_does_not_count_those_of_a_block(run: Run, marker: str) -> None:
    run(LOGS + marked(marker)).assert_outcomes(passed=1)
    run(COUNTS + marked(marker)).assert_outcomes(failed=1)


def test_a_failure_shows_apart_what_is_allowed_where_and_why(run: Run) -> None:
    result = run(LOGS + marked("max_kernels(0)"))
    result.assert_outcomes(failed=1)
    # The cause and the marks are about the other kernel alone.
    result.stdout.re_match_lines(
        [
            r"E   max_kernels: 1 > limit 0",
            r"  1 more allowed: logging \(test_it\.py:\d+\)$",
            r"  1 .*aten::sum .*\(allowed\)",
            r"> 2 .*aten::add ",
        ]
    )


def test_metrics_and_the_document_keep_what_is_allowed(run: Run, pytester: pytest.Pytester) -> None:
    run(LOGS + marked("max_kernels(1)"), "--kernelprof-json=run.json").assert_outcomes(passed=1)
    (test,) = json.loads((pytester.path / "run.json").read_text())["tests"]
    (profile,) = test["profiles"]
    kernels = profile["metrics"]["kernels"]
    assert (kernels["value"], set(kernels["allowed"])) == (2, {1})
    (verdict,) = profile["verdicts"]
    assert verdict["measured"] == 1
    assert re.fullmatch(r"1 more allowed: logging \(test_it\.py:\d+\)", verdict["apart"])


def test_a_snapshot_keeps_what_is_allowed(run: Run) -> None:
    run(COUNTS + marked("max_kernels(2)"), "--kernelprof-update").assert_outcomes(passed=1)
    result = run(LOGS + marked("max_kernels(2)"), "--kernelprof-require-snapshots")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*changed*")
    fewer = LOGS.replace("        log(x)", "        pass")
    changed = run(fewer + marked("max_kernels(2)"), "--kernelprof-report")
    changed.stdout.fnmatch_lines(["*operator gone: aten::sum*"])


def test_rounds_that_allow_differently_are_judged_one_by_one(run: Run) -> None:
    """Every second call logs, and counts two kernels then; one call does not say that it may."""
    code = """
    from pytest_kernelprof import allow
    calls = []
    def step():
        calls.append(1)
        if len(calls) % 2:
            with allow("kernels", why="logging"):
                x.sum()
        elif {unallowed}:
            x.sum()
        return x + 1
    @pytest.mark.max_kernels(1)
    def test_it(kernel_profile):
        kernel_profile(step)
        assert set(kernel_profile.last.metrics["kernels"].rounds) == {rounds}
    """
    fine = dedent(code).format(unallowed=False, rounds="{1, 2}")
    run(fine).assert_outcomes(passed=1)
    result = run(dedent(code).format(unallowed=True, rounds="{2}"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 2 > limit 1*"])


def test_blocks_nest_and_the_innermost_gives_the_reason(run: Run) -> None:
    code = """
from pytest_kernelprof import allow
again = allow("kernels", "syncs", why="outer")
def step():
    with again:
        x.sum()
        with allow("kernels", why="inner"), again, allow("syncs", why="other kind"):
            x.cos()
        x.sin()
    return x + 1
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(step)
    print([one.allowed for one in kernel_profile.last.kernels])
"""
    result = run(code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 1 > limit 0*",
            "  3 more allowed: outer (test_it.py:*) x2, outer (test_it.py:*)",
        ]
    )


def test_work_of_another_thread_is_not_taken_out(run: Run) -> None:
    code = """
import threading
from pytest_kernelprof import allow
def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start(); thread.join()
def theirs():
    with allow("kernels", why="only mine"):
        in_thread(lambda: x.sum())
def own():
    def work():
        with allow("kernels", why="its own"):
            x.sum()
    in_thread(work)
@pytest.mark.max_kernels(0)
@pytest.mark.parametrize("step", [theirs, own])
def test_it(kernel_profile, step):
    kernel_profile(step)
"""
    result = run(code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*_ test_it[[]theirs] _*", "E   max_kernels: 1 > limit 0*"])


def test_threads_share_one_object(run: Run) -> None:
    code = """
import threading
from pytest_kernelprof import allow
shared = allow("kernels", why="shared")
def step():
    def work():
        for _ in range(20):
            with shared:
                x.sum()
    threads = [threading.Thread(target=work) for _ in range(4)]
    [one.start() for one in threads]; [one.join() for one in threads]
    return x + 1
@pytest.mark.max_kernels(1)
def test_it(kernel_profile):
    kernel_profile(step)
    assert kernel_profile.last.kernel_count == 81
"""
    run(code).assert_outcomes(passed=1)


def test_an_exception_leaves_the_block(run: Run) -> None:
    code = """
from pytest_kernelprof import allow
def step():
    try:
        with allow("kernels", why="may fail"):
            x.sum(); raise ValueError
    except ValueError:
        return x + 1
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(step)
"""
    result = run(code)
    result.stdout.fnmatch_lines(
        ["E   max_kernels: 1 > limit 0*", "  1 more allowed: may fail (test_it.py:*)"]
    )


def test_a_block_that_is_left_open_takes_nothing_out(run: Run) -> None:
    code = """
from pytest_kernelprof import allow
kept = []
def step():
    kept.append(allow("kernels", why="open"))
    kept[-1].__enter__()
    return x + 1
@pytest.mark.max_kernels(0)
def test_it(kernel_profile):
    kernel_profile(step)
"""
    result = run(code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 1 > limit 0*"])


def test_any_text_is_a_reason(run: Run) -> None:
    written = r"\"%25#' \\ \n\x1b[31m \ud800 \u00fc" + "y" * 300  # as it stands in the code
    code = LOGS.replace('why="logging"', f'why="{written}"')
    result = run(code + marked("max_kernels(0)"))
    result.assert_outcomes(failed=1)
    told = " ".join(" ".join(result.outlines).split())
    assert r"""1 more allowed: "%25#' \ \n\x1b[31m ? üyyy""" in told
    assert 100 < told.count("y" * 10) * 10 < 200


@pytest.mark.parametrize("name", ["max_memcpys", "max_syncs"])
def test_a_block_of_another_kind_takes_no_kernel_out(run: Run, name: str) -> None:
    kind = {"max_memcpys": "copies", "max_syncs": "syncs"}[name]
    run(LOGS.replace('"kernels"', f'"{kind}"') + marked("max_kernels(1)")).assert_outcomes(failed=1)


def test_compiled_code_has_no_graph_break_and_is_not_compiled_again(run: Run) -> None:
    code = """
from pytest_kernelprof import allow
import pytest_kernelprof
def step(x):
    with allow("kernels", why="inside"):
        y = x.sin()
    with pytest_kernelprof.allow("syncs", "copies", why="more"):
        return y + 1
compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
def outside(x):
    with allow("kernels", why="around"):
        return compiled(x)
@pytest.mark.max_kernels(2)
@pytest.mark.max_recompiles(0)
def test_inside(kernel_profile):
    compiled(x)  # no round is recorded
    kernel_profile(compiled, x)
@pytest.mark.max_kernels(1)
def test_inside_is_counted(kernel_profile):
    kernel_profile(compiled, x)
@pytest.mark.max_kernels(0)
@pytest.mark.max_recompiles(0)
def test_outside(kernel_profile):
    kernel_profile(outside, x)
"""
    result = run(code)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*_ test_inside_is_counted _*", "E   max_kernels: 2 > limit 1*"])


def test_nothing_happens_where_nothing_is_measured(run: Run) -> None:
    code = LOGS + marked("max_kernels(0)")
    run(code, "--kernelprof-disable").assert_outcomes(passed=1)
    run(LOGS + "\ndef test_plain():\n    step()\n").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("block", "given"),
    [
        ('allow("sync", why="a")', "allow('sync', why='a')"),
        ('allow("syncs", "all", why="a")', "allow('syncs', 'all', why='a')"),
        ('allow(why="a")', "allow(why='a')"),
        ('allow(["syncs"], why="a")', "allow(['syncs'], why='a')"),
        ('allow("syncs")', "allow('syncs', why='')"),
        ('allow("syncs", why=" ")', "allow('syncs', why=' ')"),
        ('allow("syncs", why=3)', "allow('syncs', why=3)"),
        ('allow(x, why="a")', "allow(tensor(*"),
    ],
)
def test_a_malformed_block_is_an_error_with_its_form(run: Run, block: str, given: str) -> None:
    code = CODE.format(block=f"with {block}:") + marked("max_kernels(9)")
    result = run(code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*MarkerError: {given.replace('[', '[[]')}*"])
    told = " ".join(result.outlines)
    assert "expected one or more of syncs, copies, kernels, and a reason as why=" in told
    assert 'Write with pytest_kernelprof.allow("syncs", why="logging"):' in told
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


LIBRARY = """
def log(x):
    return x.sum()
"""
USES = """
import noisy
def step():
    noisy.log(x)
    return x + 1
"""


@pytest.mark.parametrize(
    ("allow", "outcome"),
    [
        ('"noisy.py"', "passed"),
        ('"noisy.py:2"', "passed"),
        ('"*/nois*.py"', "passed"),
        ('["other.py", "noisy.py"]', "passed"),
        ('"noisy.py:1"', "failed"),
        ('"isy.py"', "failed"),
        ('"other.py"', "failed"),
    ],
)
def test_a_limit_allows_a_file_or_its_line(
    run: Run, pytester: pytest.Pytester, allow: str, outcome: str
) -> None:
    pytester.makepyfile(noisy=LIBRARY)
    result = run(USES + marked(f"max_kernels(1, allow={allow})"))
    result.assert_outcomes(**{outcome: 1})


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("nth", [0, 1, 2])
def test_lines_of_one_call_do_not_allow_the_kernels_of_others(
    run: Run, pytester: pytest.Pytester, every: int, nth: int
) -> None:
    """Each call launches as many, and some of them from another line than that which is allowed."""
    pytester.makepyfile(noisy=LIBRARY)
    code = """
import noisy
calls = []
def step():
    calls.append(1)
    noisy.log(x) if len(calls) % {every} != {nth} else x.sum()
    return x + 1
@pytest.mark.max_kernels(1, allow="noisy.py")
@pytest.mark.kernelprof(rounds=4)
def test_it(kernel_profile):
    kernel_profile(step)
"""
    result = run(code.format(every=every, nth=nth % every))
    result.assert_outcomes(failed=1)
    told = " ".join(" ".join(result.outlines).split())
    assert "max_kernels: 2 > limit 1" in told
    assert "allow= needs known lines (kernel_profile(fn), or stacks=True) and rounds that" in told


def test_what_lines_allow_is_shown_apart(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(noisy=LIBRARY)
    result = run(USES + marked('max_kernels(0, allow="noisy.py")'))
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 1 > limit 0",
            "  1 more allowed: noisy.py:2",
            "  if intended, allow max_kernels(1, allow=[[]'noisy.py']) at test_it.py:*",
        ]
    )


def test_the_innermost_limit_says_what_it_allows(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(noisy=LIBRARY)
    module = 'pytestmark = pytest.mark.max_kernels(1, allow="noisy.py")\n'
    run(USES + module + marked()).assert_outcomes(passed=1)
    result = run(USES + module + marked("max_kernels(1)"))
    result.assert_outcomes(failed=1)


def test_a_block_of_a_test_needs_stacks_for_its_lines(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(noisy=LIBRARY)
    code = """
{}
@pytest.mark.max_kernels(1, allow="noisy.py")
def test_it(kernel_profile):
    with kernel_profile.region():
        step()
"""
    result = run(USES + code.format(""))
    result.assert_outcomes(failed=1)
    told = " ".join(" ".join(result.outlines).split())
    assert "allow= needs known lines (kernel_profile(fn), or stacks=True)" in told
    run(USES + code.format("@pytest.mark.kernelprof(stacks=True)")).assert_outcomes(passed=1)


def test_a_region_takes_out_what_is_allowed_in_it(run: Run) -> None:
    code = """
def test_it(kernel_profile):
    with kernel_profile.region(max_kernels=1):
        step()
"""
    run(LOGS + code).assert_outcomes(passed=1)
    run(COUNTS + code).assert_outcomes(failed=1)


@pytest.mark.parametrize("allow", ["3", '""', "[3]", '":12"', "None", "{1: 2}"])
def test_a_malformed_place_is_an_error(run: Run, allow: str) -> None:
    result = run(COUNTS + marked(f"max_kernels(9, allow={allow})"))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["E   MarkerError: max_kernels: allow=*is no file: expected one as*"]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
