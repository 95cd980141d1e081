"""Each marker that can be judged on the CPU: kept it passes, broken it fails with its own words."""

from __future__ import annotations

import pytest

CASES = {
    "max_kernels": (
        "max_kernels(3)", "max_kernels(2)",
        ["E   max_kernels: 3 > limit 2"],
    ),
    "max_kernels_match": (
        'max_kernels(1, match="GELU")', 'max_kernels(0, match="gelu|mm")',
        ["E   max_kernels(match='gelu|mm'): 2 > limit 0"],
    ),
    "expect_kernels": (
        'expect_kernels("aten::mm", "gelu", "add")', 'expect_kernels("mm", "relu", "add")',
        ["E   expect_kernels: kernel 2: expected 'relu', got aten::gelu",
         "  3 kernels, expected 'mm', 'relu', 'add'"],
    ),
    "forbid_kernels": (
        'forbid_kernels("softmax")', 'forbid_kernels("softmax", "gelu")',
        ["E   forbid_kernels: 1 forbidden kernel ran: #2 aten::gelu ('gelu')"],
    ),
    "max_latency": (
        'max_latency("100s")', "max_latency(us=0.001)",
        ["E   max_latency: *s > limit 0.001us",
         "  x*, 99 % CI *..*us, * rounds*; a second look:*"],
    ),
}  # fmt: skip
MARKED = {
    "max_kernels_match": ("matches 'gelu|mm'", (1, 2)),
    "expect_kernels": ("not expected", (2,)),
    "forbid_kernels": ("forbidden", (2,)),
}
"""A limit on names marks the operators that break it, and says above the table why."""


@pytest.mark.parametrize(
    ("words", "marked"),
    [
        pytest.param(
            words,
            MARKED.get(name),
            id=name,
            marks=pytest.mark.project(
                f"""
@pytest.mark.{kept}
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.{broken}
def test_broken(kernel_profile):
    kernel_profile(three)
"""
            ),
        )
        for name, (kept, broken, words) in CASES.items()
    ],
)
def test_a_limit_passes_when_kept_and_fails_when_broken(
    result: pytest.RunResult, words: list[str], marked: tuple[str, tuple[int, ...]] | None
) -> None:
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    why, guilty = marked or ("", ())
    # A latency has no line of its own, only the call.
    is_call = "max_latency" in words[0]
    line, code = ("12", "kernel_profile(three)") if is_call else ("5", "return F.gelu(x @ x) + 1")
    one, two, three = (f"{'>' if at in guilty else ' '} {at}" for at in (1, 2, 3))
    result.stdout.fnmatch_lines(
        [
            *(line.replace("[", "[[]") for line in words),
            f"  at test_it.py:{line}",
            f"    {line} | {code}",
            "  CPU operators counted, not GPU kernels*",
            *([f"  operators (> {why}):"] if marked else []),
            "  #   *us  operator    line * called by",
            f"{one} * aten::mm    test_it.py:5 * aten::matmul",
            f"{two} * aten::gelu  test_it.py:5",
            f"{three} * aten::add   test_it.py:5",
        ]
    )
    if not marked:
        result.stdout.no_fnmatch_line("*(>*")


def test_a_compilation_at_every_call_breaks_max_recompiles(run) -> None:
    result = run(
        """
sizes = iter(range(2, 1000))
f = torch.compile(lambda x, n: x[:n] * n, dynamic=False, backend="eager")
long = torch.ones(2000)
@pytest.mark.max_recompiles(0)
def test_settles(kernel_profile):
    kernel_profile(torch.compile(lambda x: x * 2, backend="eager"), x)
@pytest.mark.max_recompiles(0)
def test_never_settles(kernel_profile):
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        kernel_profile(lambda: f(long, next(sizes)))
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E   max_recompiles: 2 > limit 0"])


@pytest.mark.parametrize(
    "marker",
    [
        "max_launches(1)",
        'max_cuda_time("1us")',
        'max_launch_overhead("1us")',
        'max_exposed_comm("1us")',
        "max_memcpys(0)",
        'max_memcpy_bytes("1 B")',
        "max_syncs(0)",
        'max_peak_memory("1 B")',
        "max_allocations(0)",
    ],
)
def test_a_limit_that_only_a_gpu_has_skips_with_its_name(run, marker: str) -> None:
    result = run(
        f"""
@pytest.mark.{marker}
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*not applicable on the CPU: {marker.split('(')[0]}*"])


def test_a_limit_that_the_cpu_has_is_judged_beside_one_that_it_has_not(run) -> None:
    result = run(
        """
@pytest.mark.max_syncs(0)
@pytest.mark.max_kernels(2)
def test_it(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(failed=1)


def test_all_violations_of_all_profiles_stand_in_one_failure(run) -> None:
    result = run(
        """
@pytest.mark.max_kernels(0)
@pytest.mark.forbid_kernels("gelu")
def test_it(kernel_profile):
    kernel_profile(three)
    with kernel_profile.region("second"):
        x + 1
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 3 > limit 0",
            "E   forbid_kernels: 1 forbidden*",
            "  at test_it.py:5",
            "    5 | *",
            "E   max_kernels: 1 > limit 0",
        ]
    )


@pytest.mark.project(
    """
@pytest.fixture
def y():
    return x + 1  # not of the call phase
@pytest.mark.max_kernels(3)
def test_kept(y):
    three()
@pytest.mark.max_kernels(2)
def test_broken(y):
    three()
@pytest.mark.max_latency("1s")
def test_host_time(y):
    three()
"""
)
def test_a_marked_test_without_the_fixture_has_its_call_phase_profiled(
    result: pytest.RunResult,
) -> None:
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_latency: not measured*kernel_profile(fn)*",
            "E   max_kernels: 3 > limit 2",
        ]
    )


def test_markers_are_registered_with_their_help(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.max_kernels(3): at most this many kernels a call*",
            "@pytest.mark.kernelprof(*",
        ]
    )
