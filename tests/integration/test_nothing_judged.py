"""Ways to judge nothing and pass: each is an error, a skip that says so, or a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]
TRACE = str(Path(__file__).parents[1] / "traces" / "mlp.json.gz")

MANY = """
import contextlib
def many():
    y = x
    for _ in range(50): y = y + 1
    return y
"""


@pytest.mark.parametrize(
    "body",
    [
        "with pytest.raises(ValueError), kernel_profile.region('r', max_kernels=0):\n"
        "        raise ValueError",
        "kernel_profile.region('r', max_kernels=0); many()",
        "kernel_profile.region('r', max_kernels=0).__enter__(); many()",
    ],
    ids=["raised inside", "never entered", "never left"],
)
def test_the_limits_of_a_region_that_was_not_measured_to_its_end(run: Run, body: str) -> None:
    result = run(
        MANY
        + f"""
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(lambda: None)
    {body}
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*max_kernels was not judged: region 'r' at test_it.py:* was not measured comp*"]
    )


def test_a_region_without_limits_may_raise(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile, kernelprof_device):
    kernel_profile(three)
    with pytest.raises(ValueError), kernel_profile.region("r"): raise ValueError
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "body",
    [
        "kernel_profile.limit(max_cuda_time='1ns'); kernel_profile(many)",
        "with kernel_profile.region('r', max_cuda_time='1ns', max_memcpys=0): many()",
        "request.node.add_marker(pytest.mark.max_cuda_time('1ns')); kernel_profile(many)",
    ],
    ids=["limit()", "region", "marker"],
)
def test_limits_of_a_gpu_alone_skip_on_the_cpu_however_they_come(run: Run, body: str) -> None:
    result = run(
        MANY
        + f"""
def test_it(kernel_profile, kernelprof_device, request):
    {body}
"""
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*not applicable on the CPU: max_cuda_time*"])


def test_a_limit_that_holds_on_the_cpu_is_judged_beside_one_that_does_not(run: Run) -> None:
    result = run(
        """
def test_it(kernel_profile, kernelprof_device):
    kernel_profile.limit(max_cuda_time="1ns", max_kernels=3)
    kernel_profile(three)
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def test_it(kernel_profile, kernelprof_device, request):\n"
            "    request.node.add_marker(pytest.mark.min_speedup(100, over=three))\n"
            "    kernel_profile(many)\n",
            "min_speedup was not judged: it compares the callable*",
        ),
        (
            "def test_it(request):\n"
            "    request.node.add_marker(pytest.mark.max_kernels(0))\n"
            "    many()\n",
            "max_kernels was not judged: its marker was added while the test ran*",
        ),
        (
            "@pytest.fixture\n"
            "def late(request):\n"
            "    request.node.add_marker(pytest.mark.min_speedup(100, over=three))\n"
            "def test_it(late): many()\n",
            "min_speedup compares the callable that the test gives to kernel_profile*",
        ),
    ],
    ids=["promise", "limit without the fixture", "promise without the fixture"],
)
def test_a_marker_that_comes_too_late(run: Run, code: str, message: str) -> None:
    result = run(MANY + code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}"])


def test_a_marker_of_a_fixture_comes_in_time(run: Run) -> None:
    result = run(
        MANY
        + """
@pytest.fixture
def early(request):
    request.node.add_marker(pytest.mark.max_kernels(0))
def test_it(early): many()
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_kernels: 50 > limit 0*"])


LOADS = f"""
from pytest_kernelprof import Profile
@pytest.mark.max_kernels(400)
def test_loads():
    assert Profile.from_trace({TRACE!r}).kernel_count
@pytest.mark.max_kernels(4)
def test_loads_and_launches():
    Profile.from_trace({TRACE!r})
    three()
@pytest.mark.max_kernels(0)
def test_launches_nothing(): pass
"""


def test_a_limit_of_a_test_that_only_loads_a_trace(run: Run) -> None:
    result = run(LOADS)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*max_kernels was not judged: the test launched nothing and read a trace, which "
            "markers judge if the fixture loads it: request kernel_profile, and write "
            "kernel_profile.load(path)"
        ]
    )


def test_a_promise_whose_comparison_raised(run: Run) -> None:
    result = run(
        MANY
        + """
@pytest.mark.min_speedup(100, over=lambda: 1 / 0)
@pytest.mark.min_speedup(0.0001, over=three)
def test_it(kernel_profile, kernelprof_device):
    with contextlib.suppress(ZeroDivisionError): kernel_profile(many)
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*min_speedup was not judged: *"])


@pytest.mark.parametrize("code", ["many()", "kernel_profile(many)"], ids=["whole call", "fixture"])
def test_a_test_that_a_plugin_calls_again_is_judged_again(
    run: Run, pytester: pytest.Pytester, code: str
) -> None:
    """Plugins that retry call the hooks of the phases by themselves, without reports between."""
    pytester.makeconftest(
        """
import pytest
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.failed:
        item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
        item._initrequest()
        item.ihook.pytest_runtest_setup(item=item)
        again = pytest.CallInfo.from_call(
            lambda: item.ihook.pytest_runtest_call(item=item), when="call"
        )
        report.outcome = "failed" if again.excinfo else "passed"
    return report
"""
    )
    fixture = "kernel_profile, " if "profile" in code else ""
    result = run(
        MANY
        + f"""
@pytest.mark.max_kernels(0)
def test_it({fixture}kernelprof_device): {code}
"""
    )
    result.assert_outcomes(failed=1)


def test_a_comparison_is_neither_true_nor_false_until_something_is_asserted(run: Run) -> None:
    result = run(
        MANY
        + """
def test_it(kernel_profile, kernelprof_device):
    assert kernel_profile.compare(many, three, check=None)
def test_of_several(kernel_profile, kernelprof_device):
    both = {"many": many, "three": three}
    assert kernel_profile.compare_all(both, reference="three", check=None)
def test_asserted(kernel_profile, kernelprof_device):
    assert kernel_profile.compare(many, three, check=None).min_speedup(0.0001)
"""
    )
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["*CannotMeasureError: a comparison is neither true nor false: assert one*"]
    )


def test_a_gpu_that_is_required_is_missed_also_where_the_test_is_expected_to_fail(
    run: Run, no_gpu: None
) -> None:
    result = run(
        """
@pytest.mark.xfail
@pytest.mark.max_kernels(0)
def test_it(kernel_profile): kernel_profile(three)
""",
        "--kernelprof-require-gpu",
        device=None,
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["E   ProfilerUnavailable: --kernelprof-require-gpu: no CUDA device*"]
    )


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.max_kernels(100)\n@pytest.mark.max_kernels(0)\n"
        "class TestIt:\n    def test_it(self): many()\n",
        "pytestmark = [pytest.mark.max_kernels(100), pytest.mark.max_kernels(0)]\n"
        "def test_it(): many()\n",
    ],
    ids=["class", "module"],
)
def test_a_limit_that_stands_twice_on_one_level(run: Run, code: str) -> None:
    result = run(MANY + code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*max_kernels is set twice on *; keep one*"])


def test_a_derived_class_may_replace_the_limit_of_its_base(run: Run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
class Base: pass
@pytest.mark.max_kernels(3)
class TestIt(Base):
    def test_it(self): three()
"""
    )
    result.assert_outcomes(passed=1)
