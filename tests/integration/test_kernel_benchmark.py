"""The bridge to pytest-benchmark: every mode of it, with the real plugin, on the CPU."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelprof.gpu import inventory

Run = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def _there(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-benchmark is loaded as for users, who do not ask for it."""
    others = os.environ["PYTEST_ADDOPTS"].replace("-p no:benchmark", "")
    monkeypatch.setenv("PYTEST_ADDOPTS", others)


TRACES = Path(__file__).parents[1] / "traces"
# Short, and with few rounds: what is looked at is what is timed, not how well.
QUICK = ("--benchmark-max-time=0.01", "--benchmark-min-rounds=3")
CALLED = """
called = []
def counted():
    called.append(1)
    return three()
"""
KEPT = """
@pytest.mark.max_kernels(3)
def test_kept(kernel_benchmark, kernelprof_device):
    assert kernel_benchmark(three).shape == (8, 8)
"""
BROKEN = """
@pytest.mark.max_kernels(2)
def test_broken(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three)
"""
REFUSED = "*max_kernels: the test calls benchmark, whose calibration*kernel_benchmark(fn, *args)*"


def saved(pytester: pytest.Pytester) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((pytester.path / "out.json").read_text())
    return data


def the_facts(data: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = data["benchmarks"][0]["extra_info"]["kernelprof"]
    return facts


def test_a_call_is_judged_and_timed(run: Run, pytester: pytest.Pytester) -> None:
    result = run(KEPT + BROKEN, *QUICK, "--benchmark-json=out.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["E   max_kernels: 3 > limit 2", "  at test_it.py:5", "    5 | return F.gelu(x @ x) + 1"],
        consecutive=True,
    )
    data = saved(pytester)
    assert [one["name"] for one in data["benchmarks"]] == ["test_kept", "test_broken"]
    assert data["benchmarks"][0]["options"]["timer"] == "kernelprof-wall"
    assert data["benchmarks"][0]["stats"]["rounds"] >= 3
    facts = the_facts(data)
    assert facts["kernels"] == 3
    assert facts["timer"] == "wall"
    assert facts["complete"] is True
    assert facts["latency_us"] > 0
    assert facts["cuda_time_us"] is None  # not available on the CPU
    assert {"bound", "bound_reason", "place", "peak_memory_bytes", "memcpy_bytes"} <= set(facts)


def test_the_machine_info_tells_of_the_gpu(run: Run, pytester: pytest.Pytester) -> None:
    import torch

    run(KEPT, *QUICK, "--benchmark-json=out.json").assert_outcomes(passed=1)
    gpu = saved(pytester)["machine_info"]["gpu"]
    assert gpu["torch"] == torch.__version__
    assert {"name", "driver"} <= set(gpu) or gpu["missing"].startswith("no CUDA device")


def test_our_table_follows_that_of_pytest_benchmark(run: Run) -> None:
    result = run(KEPT + "def test_other(kernel_profile):\n    kernel_profile(three)\n", *QUICK)
    result.stdout.fnmatch_lines(
        ["* benchmark: 1 tests *", "test_kept *", "* kernel profiles *", "✓*test_kept"]
    )
    result.stdout.no_fnmatch_line("*test_other*")  # for all there is --kernelprof-report


def test_the_report_has_all_profiles_and_comes_once(run: Run) -> None:
    result = run(
        KEPT + "def test_other(kernel_profile):\n    kernel_profile(three)\n",
        *QUICK,
        "--kernelprof-report",
    )
    result.stdout.fnmatch_lines(
        [
            "* benchmark: 1 tests *",
            "* kernel profiles *",
            "1 more test has no limit*",
            "2 profiles*",
        ]
    )
    assert str(result.stdout).count("kernel profiles") == 1


def test_a_quiet_pytest_benchmark_prints_neither_table(run: Run) -> None:
    result = run(KEPT, *QUICK, "--benchmark-quiet")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kernel profiles*")


def test_what_is_profiled_is_the_callable_and_not_the_rounds(run: Run) -> None:
    result = run(
        CALLED
        + """
@pytest.mark.max_kernels(3)
@pytest.mark.expect_kernels("aten::mm", "gelu", "add")
def test_it(kernel_benchmark, kernelprof_device, kernel_profile):
    kernel_benchmark(counted)
    assert len(called) > 20
    assert len(kernel_profile.profiles) == 1
    assert kernel_profile.last.kernel_count == 3
""",
        *QUICK,
    )
    result.assert_outcomes(passed=1)


def test_keywords_and_the_result_are_handed_on(run: Run) -> None:
    result = run(
        """
def test_it(kernel_benchmark, kernelprof_device):
    n = iter(range(1000000))
    assert kernel_benchmark(lambda a, *, b: (a, b, next(n)), 1, b=2) == (1, 2, 0)
def test_own_timer(kernel_benchmark, kernelprof_device):
    assert kernel_benchmark.run(lambda timer: timer, kwargs={"timer": 3}) == 3
""",
        *QUICK,
    )
    result.assert_outcomes(passed=2)


def test_setup_makes_the_arguments_of_each_call(run: Run, pytester: pytest.Pytester) -> None:
    result = run(
        """
def test_it(kernel_benchmark, kernelprof_device):
    seen = []
    def in_place(t):
        assert t[0, 0] == 1
        seen.append(t.add_(1))
    kernel_benchmark.run(in_place, setup=lambda: (torch.ones(2, 2),), rounds=7)
""",
        "--benchmark-json=out.json",
    )
    result.assert_outcomes(passed=1)
    assert saved(pytester)["benchmarks"][0]["stats"]["rounds"] == 7


def test_options_of_the_benchmark_marker_are_kept(run: Run, pytester: pytest.Pytester) -> None:
    code = '@pytest.mark.benchmark(group="mine", min_rounds=4, max_time=0.001)' + KEPT
    result = run(code, "--benchmark-json=out.json", "--benchmark-timer=time.process_time")
    result.assert_outcomes(passed=1)
    (one,) = saved(pytester)["benchmarks"]
    assert (one["group"], one["options"]["min_rounds"]) == ("mine", 4)
    assert one["options"]["timer"] == "kernelprof-wall"


def test_a_saved_run_is_compared_with_the_next(run: Run) -> None:
    run(KEPT, *QUICK, "--benchmark-save=first").assert_outcomes(passed=1)
    result = run(KEPT, *QUICK, "--benchmark-compare", "--benchmark-compare-fail=min:1000000000%")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["* benchmark: 2 tests *", "test_kept*(NOW)*"])
    assert "machine_info is different" not in str(result.stdout) + str(result.stderr)
    slower = "import time\n" + KEPT.replace("(three)", "(lambda: time.sleep(0.05) or three())")
    worse = run(slower, *QUICK, "--benchmark-compare", "--benchmark-compare-fail=min:100%")
    assert worse.ret != 0
    worse.stdout.fnmatch_lines(["* benchmark: 2 tests *", "* kernel profiles *"])
    worse.stderr.fnmatch_lines(["*Performance has regressed*"])


def test_with_pytest_benchmark_disabled_the_profile_is_judged(run: Run) -> None:
    result = run(KEPT + BROKEN, "--benchmark-disable")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*benchmark: *tests*")


@pytest.mark.project(KEPT + BROKEN)
def test_under_xdist_the_profile_is_judged(result_of_workers: pytest.RunResult) -> None:
    result_of_workers.assert_outcomes(passed=1, failed=1)


def test_skipped_benchmarks_are_skipped(run: Run) -> None:
    run(KEPT + BROKEN, "--benchmark-skip").assert_outcomes(skipped=2)


def test_only_benchmarks_run_with_benchmark_only(run: Run) -> None:
    result = run(KEPT + "def test_other(): pass\n", *QUICK, "--benchmark-only")
    result.assert_outcomes(passed=1, skipped=1)


def test_a_blocked_pytest_benchmark_is_an_error_with_the_remedy(run: Run) -> None:
    result = run(
        KEPT + "@pytest.mark.xfail" + BROKEN + "def test_other(kernel_profile):"
        "\n    kernel_profile(three)\n",
        "-p",
        "no:benchmark",
    )
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*kernel_benchmark needs pytest-benchmark*install*"])


@pytest.mark.parametrize("there", [True, False])
def test_the_bridge_does_not_depend_on_how_plugins_are_loaded(
    pytester: pytest.Pytester, run_apart: Run, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        pytest.importorskip("pytest_benchmark")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_it(kernel_benchmark):\n    assert kernel_benchmark(int) == 0\n")
    plugins = ["pytest_kernelprof.plugin.hooks"] + ["pytest_benchmark.plugin"] * there
    chosen = [argument for name in plugins for argument in ("-p", name)]
    result = run_apart(*chosen, *QUICK * there, "--kernelprof-device=cpu")
    result.assert_outcomes(**{"passed" if there else "errors": 1})


def test_with_kernelprof_disabled_it_is_timed_and_not_limited(run: Run) -> None:
    result = run(BROKEN, *QUICK, "--kernelprof-disable")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["* benchmark: 1 tests *"])
    result.stdout.no_fnmatch_line("*kernel profiles*")


def test_with_both_disabled_the_code_runs_once(run: Run) -> None:
    code = """
@pytest.mark.parametrize("timer", ["wall", "cuda"])
def test_it(kernel_benchmark, timer):
    called.clear()
    assert kernel_benchmark(counted, timer=timer).shape == (8, 8)
    assert called == [1]
"""
    result = run(CALLED + code, "--kernelprof-disable", "--benchmark-disable")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(['*not benchmarked: timer="cuda" needs a profile*'])


def test_without_a_device_it_is_timed_and_not_judged(run: Run, no_gpu: None) -> None:
    code = """
@pytest.mark.max_kernels(0)
@pytest.mark.parametrize("timer", ["wall", "cuda"])
def test_it(kernel_benchmark, timer):
    assert kernel_benchmark(three, timer=timer).shape == (8, 8)
"""
    result = run(code, *QUICK, device=None)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "* benchmark: 1 tests *",
            "kernelprof: 0 of 2 tests are within their limits; 2 not judged *",
        ]
    )
    result.stdout.fnmatch_lines(['*not benchmarked: timer="cuda" needs a profile*'])


def test_the_clock_waits_for_the_device_of_the_test(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "told", told, raising=False)
    monkeypatch.setattr(inventory, "usual_kind", lambda: pytest.fail("not asked for the CPU"))
    monkeypatch.setattr(inventory, "synchronize", lambda device: told.append(device.kind))
    code = """
def test_it(kernel_benchmark, kernelprof_device):
    kernel_benchmark(lambda: sys.told.append("call"))
"""
    run(f"import sys\n{code}", *QUICK).assert_outcomes(passed=1)
    assert set(told) == {"cpu", "call"}
    assert told[-2:] == ["cpu", "call"]  # for the result it is called once more


ONLY_BENCHMARK = """
@pytest.mark.max_kernels(3)
def test_it(benchmark):
    benchmark(three)
@pytest.mark.xfail
@pytest.mark.max_kernels(3)
def test_xfail(benchmark):
    benchmark(three)
@pytest.mark.max_kernels(3)
def test_late(request):
    request.getfixturevalue("benchmark")(three)
@pytest.mark.max_kernels(3)
def test_both(benchmark, kernel_profile, kernelprof_device):
    benchmark(three)
def test_plain(benchmark):
    benchmark(three)
"""


def assert_refused(result: pytest.RunResult) -> None:
    # test_both asks for kernel_profile and does not use it: an error of its own.
    result.assert_outcomes(passed=1, errors=4)
    result.stdout.fnmatch_lines([REFUSED] * 3)


@pytest.mark.parametrize("more", [(), ("--benchmark-disable",)], ids=str)
def test_a_marked_test_that_only_has_benchmark_is_refused(run: Run, more: tuple[str, ...]) -> None:
    assert_refused(run(ONLY_BENCHMARK, *QUICK, *more))


@pytest.mark.project(ONLY_BENCHMARK)
def test_under_xdist_a_marked_test_that_only_has_benchmark_is_refused_too(
    result_of_workers: pytest.RunResult,
) -> None:
    assert_refused(result_of_workers)


def test_benchmark_and_kernel_profile_side_by_side(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(3)
def test_it(benchmark, kernel_profile, kernelprof_device):
    kernel_profile(three)
    benchmark(three)
""",
        *QUICK,
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["* benchmark: 1 tests *", "* kernel profiles *", "1 profile*"])


def test_a_refused_test_runs_with_kernelprof_disabled(run: Run) -> None:
    code = "@pytest.mark.max_kernels(0)\ndef test_it(benchmark):\n    benchmark(three)\n"
    run(code, *QUICK, "--kernelprof-disable").assert_outcomes(passed=1)


def test_kernelprof_all_says_why_a_benchmark_fetched_as_the_test_ran_has_no_number(
    run: Run,
) -> None:
    code = "def test_it(request):\n    request.getfixturevalue('benchmark')(three)\n"
    result = run(code, *QUICK, "--kernelprof-all", "--kernelprof-report")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no number: the test calls benchmark, *"])


def test_kernelprof_all_leaves_benchmarks_alone_and_says_so(run: Run) -> None:
    code = "def test_it(benchmark):\n    benchmark(three)\n"
    result = run(code, *QUICK, "--kernelprof-all", "--kernelprof-report")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*KernelprofWarning: not profiled: pytest-benchmark times*"])
    result.stdout.no_fnmatch_line("*kernel profiles*")


def test_device_time_on_the_cpu_is_an_error_that_says_so(run: Run) -> None:
    code = """
@pytest.mark.xfail
def test_it(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three, timer="cuda")
"""
    result = run(code, *QUICK)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*timer="cuda": this test runs on the CPU*timer="wall"*'])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('(three, timer="gpu")', '*timer=\'gpu\': expected "wall" or "cuda"*'),
        ("(three, timer=None)", '*timer=None: expected "wall" or "cuda"*'),
        (".run(three, rounds=0)", "*rounds=0: expected a whole number of one or more*"),
    ],
)
def test_a_malformed_option_is_an_error_with_the_form(run: Run, call: str, message: str) -> None:
    code = f"def test_it(kernel_benchmark, kernelprof_device):\n    kernel_benchmark{call}\n"
    result = run(code, *QUICK)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_misuse_is_an_error_with_the_right_form(run: Run) -> None:
    result = run(
        """
def test_called(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three())
def test_twice(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three)
    kernel_benchmark(three)
""",
        *QUICK,
    )
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*not kernel_benchmark(fn(*args))*", "*one callable per test*parametrise*"]
    )


def test_another_timer_and_a_late_request_are_errors(run: Run) -> None:
    result = run(
        """
import time
@pytest.mark.benchmark(timer=time.time)
def test_timer(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three)
def test_late(request, kernelprof_device):
    request.getfixturevalue("kernel_benchmark")
def test_after(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three)
""",
        *QUICK,
    )
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["*kernel_benchmark brings its own timer*", "*must be an argument of the test*"]
    )


def test_a_test_that_does_not_call_it_is_an_error(run: Run) -> None:
    result = run("def test_it(kernel_benchmark, kernelprof_device): pass\n", *QUICK)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*asks for kernel_profile but profiled nothing*"])


def test_an_exception_passes_through_and_nothing_is_saved(
    run: Run, pytester: pytest.Pytester
) -> None:
    result = run(
        """
def test_at_once(kernel_benchmark, kernelprof_device):
    def fails():
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        kernel_benchmark(fails)
    pytest.fail("seen")
def test_while_timed(kernel_benchmark, kernelprof_device):
    n = iter(range(30))
    kernel_benchmark(lambda: next(n))
def test_after(kernel_benchmark, kernelprof_device):
    kernel_benchmark(three)
""",
        *QUICK,
        "--benchmark-json=out.json",
    )
    result.assert_outcomes(passed=1, failed=2)
    assert [one["name"] for one in saved(pytester)["benchmarks"]] == ["test_after"]


def test_the_fixture_is_listed_with_its_words(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--fixtures")
    words = "*times with pytest-benchmark, which has to be installed*"
    if find_spec("pytest_benchmark"):
        words = "*Profile GPU code as kernel_profile does*"
    result.stdout.fnmatch_lines(["kernel_benchmark*", words])


def test_device_times_reach_pytest_benchmark_unchanged(run: Run, pytester: pytest.Pytester) -> None:
    """A profile recorded on a GPU stands in for the measuring; all after it is real."""
    code = f"""
from types import SimpleNamespace
from pytest_kernelprof import Profile
from pytest_kernelprof.limits.marks import Marks
from pytest_kernelprof.plugin.ledger import Ledger
from pytest_kernelprof.plugin.outcome import Request
from pytest_kernelprof.records.profile import Place
from pytest_kernelprof.plugin.benchmark import Clock, KernelBenchmark
clock = Clock()
profile = Profile.from_trace({str(TRACES / "mlp.json.gz")!r})
@pytest.mark.benchmark(timer=clock)
def test_it(benchmark, request):
    recorded = SimpleNamespace(last=profile, run=lambda *_, **__: "result")
    on_a_gpu = SimpleNamespace(
        device="cuda", unmeasured="", ledger=Ledger(Marks()),
        request=lambda what, **_: Request(what))
    timed = KernelBenchmark(benchmark, recorded, on_a_gpu, clock, request.node)
    assert timed(three, timer="cuda") == "result"
    busy = profile.metrics["gpu_busy"].rounds
    if benchmark.enabled:
        assert benchmark.stats.stats.data == pytest.approx([us * 1e-6 for us in busy], rel=1e-9)
"""
    result = run(code, "--benchmark-json=out.json", "--benchmark-cprofile=tottime")
    result.assert_outcomes(passed=1)
    data = saved(pytester)
    assert data["benchmarks"][0]["options"]["timer"] == "kernelprof-cuda"
    assert the_facts(data)["gpu_busy_us"] == pytest.approx(
        data["benchmarks"][0]["stats"]["median"] * 1e6
    )
    run(code, "--benchmark-disable").assert_outcomes(passed=1)


def test_the_headline_above_the_table_counts_tests_without_a_benchmark_too(run: Run) -> None:
    result = run(
        KEPT
        + """
@pytest.mark.max_kernels(2)
@pytest.mark.parametrize("n", range(4))
def test_beside(kernel_profile, kernelprof_device, n):
    kernel_profile(three)
""",
        *QUICK,
    )
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(["* kernel profiles *", "4 of 5 tests break a limit*"])
