"""What compilers do in measured calls on a GPU: Triton's specialisations, autotuners, graph breaks.

Each project is a process of its own: what is compiled in one is known to no other.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("_minds_who_disturbs_the_gpu")

HEAD = """
import itertools
import pytest, torch, triton
import triton.language as tl

x = torch.randn(4096, device="cuda")

@triton.jit
def scale(x, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)

def run(n, factor=1):
    scale[(triton.cdiv(n, 128),)](x, n, factor, BLOCK=128)

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n), mask=at < n)

def tune(n):
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
"""


def run(pytester: pytest.Pytester, code: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=HEAD + code)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA")
    print(*(line for line in result.outlines if "max_" in line or "scale[" in line), sep="\n")
    return result


def test_one_odd_size_after_the_warm_up_fails_and_names_kernel_and_argument(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_jit_compiles(0)
def test_odd(kernel_profile):
    run(1024)
    with kernel_profile.region():
        run(1024)
        run(2048)
        run(1023)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_jit_compiles: 1 > limit 0",
            "*to do: warm up with these arguments*",
        ]
    )


def test_a_new_constant_at_every_call_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
factors = itertools.count(2)

@pytest.mark.max_jit_compiles(0)
def test_it(kernel_profile):
    kernel_profile(lambda: run(1024, next(factors)))
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E   max_jit_compiles: * > limit 0*", "*scale[[]FACTOR = *, was *]*"]
    )


def test_sizes_of_the_warm_up_pass_and_hooks_of_others_stay(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
called = []
def hook(**kwargs):
    called.append(kwargs["fn"].name)
triton.knobs.runtime.jit_post_compile_hook = hook

@pytest.mark.max_jit_compiles(0)
@pytest.mark.max_autotunes(0)
def test_it(kernel_profile):
    kernel_profile(lambda: (run(1024), run(1023), run(1), tune(512)))
    assert called.count("scale") == 3
    assert triton.knobs.runtime.jit_post_compile_hook is hook
""",
    )
    result.assert_outcomes(passed=1)


def test_a_specialisation_that_is_read_from_the_disk_counts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(pytester.path / "cache"))
    code = """
@pytest.mark.max_jit_compiles(0)
def test_it(kernel_profile):
    with kernel_profile.region():
        run(1024)
"""
    for _ in range(2):  # the second time from the disk
        result = run(pytester, code)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["E   max_jit_compiles: 1 > limit 0"])


def test_runs_of_an_autotuner_count_once_each(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.max_autotunes(0)
def test_two_keys(kernel_profile):
    with kernel_profile.region():
        tune(512)
        tune(512)
        tune(256)

@pytest.mark.max_autotunes(0)
def test_warm(kernel_profile):
    tune(128)
    with kernel_profile.region():
        tune(128)
""",
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E   max_autotunes: 2 > limit 0"])


def test_graph_breaks_of_inductors_code(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def broken(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1

def in_a_loop(x):
    for _ in range(2):
        x = x * 2
        torch._dynamo.graph_break()
    return x

@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()

@pytest.mark.max_graph_breaks(0)
@pytest.mark.max_kernels(1)
def test_whole(kernel_profile):
    kernel_profile(torch.compile(lambda x: x * 2 + 1), x)

@pytest.mark.max_graph_breaks(0)
def test_broken(kernel_profile):
    f = torch.compile(broken)
    f(x)
    kernel_profile(f, x)

@pytest.mark.max_graph_breaks(0)
def test_left(kernel_profile):
    kernel_profile(torch.compile(in_a_loop), x)

@pytest.mark.max_graph_breaks(0)
def test_cold_block(kernel_profile):  # known, or unknown if an autotuner benched in it
    f = torch.compile(broken)
    with kernel_profile.region():
        f(x)

@pytest.mark.max_graph_breaks(0)
def test_reduce_overhead(kernel_profile):
    kernel_profile(torch.compile(broken, mode="reduce-overhead"), x)
""",
    )
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 1
    assert outcomes["failed"] + outcomes.get("errors", 0) == 4
    result.stdout.fnmatch_lines(
        [
            "E   max_graph_breaks: 1 > limit 0*",
            "*graph_break()*",
            "E   max_graph_breaks: 1 > limit 0*",
            "*in_a_loop runs uncompiled*",
            "E   max_graph_breaks: 1 > limit 0*",
        ]
    )
