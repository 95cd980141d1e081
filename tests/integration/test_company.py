"""In the company of other plugins, and at the ends that a run can have, this is what happens."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest
import torch
from reported import counts_of, rows_of

Run = Callable[..., pytest.RunResult]

NEXT = """
@pytest.mark.max_kernels(3)
def test_z_next(kernel_profile):
    kernel_profile(three)
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def no_profiler_runs() -> bool:
    return not torch.autograd.profiler._is_profiler_enabled


TOGETHER = """
import asyncio, time

async def coroutine():
    await asyncio.sleep(0)
    return three()

@pytest.mark.asyncio
@pytest.mark.max_kernels(3)
async def test_async_kept():
    await coroutine()

@pytest.mark.asyncio
@pytest.mark.max_kernels(2)
async def test_async_over():
    await asyncio.gather(coroutine())

@pytest.mark.asyncio
async def test_async_with_the_fixture(kernel_profile):
    kernel_profile(three)
    with kernel_profile.region("awaited") as region:
        await coroutine()
    assert region.profile.kernel_count == 3

@pytest.mark.asyncio
async def test_async_nobody_limits():
    await coroutine()

@pytest.mark.max_kernels(3)
@pytest.mark.timeout(0.2, method="signal")
def test_too_slow_as_a_whole():
    three()
    time.sleep(30)

@pytest.mark.timeout(0.2, method="signal")
def test_too_slow_in_a_call(kernel_profile):
    kernel_profile(time.sleep, 30)

@pytest.mark.timeout(100)
@pytest.mark.max_kernels(3)
def test_quick_enough(kernel_profile):
    kernel_profile(three)
"""


def test_asyncio_timeout_and_randomly_together(run: Run) -> None:
    for name in ("pytest_asyncio", "pytest_timeout", "pytest_randomly"):
        pytest.importorskip(name)
    result = run(
        TOGETHER,
        *("-p", "asyncio", "-p", "timeout", "-p", "randomly"),
        *("-o", "asyncio_default_fixture_loop_scope=function"),
        *("--kernelprof-all", "--kernelprof-report", "-v"),
    )
    result.assert_outcomes(passed=4, failed=3)
    result.stdout.fnmatch_lines_random(
        ["Using --randomly-seed=*", "E   max_kernels: 3 > limit 2", "E *Failed: Timeout*0.2*"]
    )
    assert sorted(row for row in counts_of(result) if "too_slow" not in row) == [
        "3 test_async_nobody_limits",
        "3 test_async_with_the_fixture",
        "3 test_async_with_the_fixture [awaited]",
        "✓ 3 test_async_kept",
        "✓ 3 test_quick_enough",
        "✗ 3 > 2 test_async_over",
    ]
    assert no_profiler_runs()


def test_reruns_are_judged_each_by_itself_and_the_last_one_is_reported(run: Run) -> None:
    pytest.importorskip("pytest_rerunfailures")
    result = run(
        """
tries = iter([4, 2, 1])
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    n = next(tries)
    kernel_profile(lambda: [x + 1 for _ in range(n)])
""",
        *("-p", "rerunfailures", "--reruns=2", "--kernelprof-report"),
    )
    assert result.parseoutcomes() == {"passed": 1, "rerun": 1}
    assert result.ret == 0
    result.stdout.fnmatch_lines(["✓*2  test_it"])


class Forks:
    """A plugin that runs each test in a fork, as pytest-forked does: that one does not work with
    pytest 9."""

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        import json

        from _pytest.runner import runtestprotocol

        hook, config = item.ihook, item.config
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            data = [
                hook.pytest_report_to_serializable(config=config, report=report)
                for report in reports
            ]
            with os.fdopen(write, "w") as out:
                json.dump(data, out, default=str)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as sent:
            data = json.load(sent)
        os.waitpid(child, 0)
        for one in data:
            report = hook.pytest_report_from_serializable(config=config, data=one)
            hook.pytest_runtest_logreport(report=report)
        return True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_tests_in_forks_are_judged_and_reported(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(1)
def test_kept(kernel_profile):
    kernel_profile(lambda: x.add(1))
@pytest.mark.max_kernels(0)
def test_over():
    x.add(1)
""",
        "--kernelprof-report",
        "-v",
        plugins=[Forks()],
    )
    result.assert_outcomes(passed=1, failed=1)
    assert counts_of(result) == [
        "✗ 1 > 0 test_over",
        "✓ 1 test_kept",
    ]


DOCUMENTED = '''
def doubled(t):
    """
    >>> import torch
    >>> doubled(torch.ones(2))
    tensor([2., 2.])
    """
    return t * 2

def broken(t):
    """
    >>> 1 + 1
    3
    >>> {}["mine"]
    """
'''


def test_doctests_are_looked_at_and_fare_as_ever(run: Run) -> None:
    options = ("--doctest-modules", "--kernelprof-report")
    bare = run(DOCUMENTED, *options)
    looked_at = run(DOCUMENTED, *options, "--kernelprof-all")
    bare.assert_outcomes(passed=1, failed=1)
    looked_at.assert_outcomes(passed=1, failed=1)
    assert any(row.endswith(" test_it.doubled") for row in rows_of(looked_at))
    assert failure_of(looked_at) == failure_of(bare)


def failure_of(result: pytest.RunResult) -> str:
    reports = result.reprec.getfailures("pytest_runtest_logreport")  # type: ignore[attr-defined]
    return str(reports[0].longrepr)


PDB = """
import torch
class Pdb:
    quitting = False
    def __init__(self, *args, **kwargs):
        pass
    def reset(self):
        pass
    def set_trace(self, *args):
        pass
    def interaction(self, frame, what, *args):
        running = torch.autograd.profiler._is_profiler_enabled
        print(f"at the prompt: {type(what).__name__} profiler running: {running}")
"""


def test_pdb_opens_at_a_broken_limit_and_at_an_exception_with_no_profiler_running(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(prompt=PDB)
    pytester.syspathinsert()
    result = run(
        """
@pytest.mark.max_kernels(2)
def test_over(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_raises():
    three()
    {}["mine"]
""",
        *("--pdb", "--pdbcls=prompt:Pdb"),
    )
    result.assert_outcomes(failed=2)
    prompts = [line for line in result.outlines if line.startswith("at the prompt")]
    assert len(prompts) == 2
    assert all(line.endswith("profiler running: False") for line in prompts)


@pytest.mark.parametrize("body", ["three()", "torch.profiler.profile().start()"])
def test_a_broken_limit_and_an_error_of_ours_end_a_run_with_maxfail(run: Run, body: str) -> None:
    code = f"@pytest.mark.max_kernels(2)\ndef test_a():\n    {body}\n" + NEXT
    result = run(code, "--maxfail=1")
    if torch.autograd.profiler._is_profiler_enabled:  # the test's own, left running
        torch.autograd.profiler._disable_profiler()
        torch.autograd.profiler._run_on_profiler_stop()
    assert sum(result.parseoutcomes().values()) == 1
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


@pytest.mark.parametrize(
    "where", ["kernel_profile(stops)", "with kernel_profile.region(): stops()"]
)
def test_ctrl_c_in_measured_code_ends_the_run_and_the_profiler(
    pytester: pytest.Pytester, where: str
) -> None:
    pytester.makepyfile(
        f"""
import pytest, torch
def stops():
    torch.ones(2) + 1
    raise KeyboardInterrupt
def test_it(kernel_profile):
    {where}
"""
    )
    result = pytester.runpytest_inprocess("--kernelprof-device=cpu", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*"])
    assert no_profiler_runs()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_worker_that_is_killed_in_measured_code_is_told_and_the_others_go_on(run: Run) -> None:
    result = run(
        f"""
import os
def test_a_killed(kernel_profile):
    with kernel_profile.region():
        os.kill(os.getpid(), {signal.SIGKILL:d})
"""
        + NEXT,
        *("-n2", "--max-worker-restart=0", "--kernelprof-report"),
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*worker 'gw?' crashed while running *test_a_killed*"])
    result.stdout.fnmatch_lines(["1 more test is fine*"])


def test_without_autoloading_it_is_loaded_by_name(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code = "@pytest.mark.max_kernels(2)\ndef test_it():\n    three()\n"
    result = run(code, "-p", "kernelprof")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2"])


def test_running_out_of_memory_in_measured_code_is_the_tests_own_failure(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_a_call(kernel_profile):
    kernel_profile(torch.empty, 1 << 60)
@pytest.mark.max_kernels(3)
def test_b_whole():
    three()
    raise torch.OutOfMemoryError("CUDA out of memory")
"""
        + NEXT
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["E *RuntimeError: *alloc*", "E *OutOfMemoryError: CUDA out of*"])
    assert no_profiler_runs()


def test_unittests_that_await_are_limited_too(run: Run) -> None:
    result = run(
        """
import unittest
class TestIt(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.max_kernels(2)
    async def test_over(self):
        three()
    @pytest.mark.max_kernels(3)
    async def test_kept(self):
        three()
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E   max_kernels: 3 > limit 2"])
