"""The ini key kernelprof_benchmarks: benchmark files with Triton's perf_report are tests as they
stand."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import CodeType

import pytest
from on_workers import two_workers

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.baselines import supervisor
from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.plugin.triton_benchmarks import Configuration, chosen, configurations

testing = pytest.importorskip("triton.testing", reason="Triton is not installed")

INI = "[pytest]\nkernelprof_benchmarks = bench_*.py\n"
IMPORTS = "import torch, triton, triton.testing\n"
SOFTMAX = """
import torch
import triton
import triton.testing

@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["M"],
        x_vals=[128, 256, 512],
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "Torch"],
        plot_name="softmax",
        args={"N": 8},
    )
)
def benchmark(M, N, provider):
    x = torch.ones(M, N)
    return triton.testing.do_bench(lambda: torch.relu(x))
"""


def bench(
    plot: str = "plot", x: str = "[1]", lines: str = '["torch"]', names: str = '["Torch"]'
) -> str:
    """The decorator of a benchmark function of ``M`` and ``provider``."""
    return f"""
@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["M"], x_vals={x}, line_arg="provider", line_vals={lines}, line_names={names},
    plot_name="{plot}", args={{}}))"""


def run(
    pytester: pytest.Pytester, code: str, *options: str, ini: str = INI, device: str = "cpu"
) -> pytest.RunResult:
    """Run a file of benchmarks; its measurements are read from run.json."""
    pytester.makeini(ini)
    pytester.makepyfile(bench_it=code)
    given = ("-p", "no:cacheprovider", "-p", "no:randomly", "-ra", "--kernelprof-json=run.json")
    return pytester.runpytest_inprocess(*given, f"--kernelprof-device={device}", *options)


def measured() -> dict[str, list[float | None]]:
    """The number of operators of each measured callable, by the name of the test."""
    return {
        one.id.partition("::")[2]: [profile.metrics["kernels"].value for profile in one.profiles]
        for one in read_run("run.json").tests
    }


def code_of_triton() -> tuple[CodeType, CodeType]:
    return testing.do_bench.__code__, testing.do_bench_cudagraph.__code__


def test_each_configuration_is_a_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, SOFTMAX, "--collect-only", "-q")
    result.stdout.fnmatch_lines(
        [
            "bench_it.py::benchmark[[]softmax-M=128-triton]",
            "bench_it.py::benchmark[[]softmax-M=128-torch]",
            "bench_it.py::benchmark[[]softmax-M=256-triton]",
            "bench_it.py::benchmark[[]softmax-M=256-torch]",
            "bench_it.py::benchmark[[]softmax-M=512-triton]",
            "bench_it.py::benchmark[[]softmax-M=512-torch]",
            "",
            "6 tests collected in *",
        ],
        consecutive=True,
    )


def test_what_is_given_to_do_bench_is_measured(pytester: pytest.Pytester) -> None:
    before = code_of_triton()
    result = run(pytester, SOFTMAX, "--kernelprof-report")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["* 1  benchmark[[]softmax-M=128-torch] and 5 more"])
    assert measured() == {
        f"benchmark[softmax-M={m}-{provider}]": [1]
        for m in (128, 256, 512)
        for provider in ("triton", "torch")
    }
    assert code_of_triton() == before


@pytest.mark.parametrize(
    ("chosen", "ran"),
    [
        (["bench_it.py::benchmark[softmax-M=128-torch]"], 1),
        (["bench_it.py"], 6),
        (["-k", "256 and torch"], 1),
        (["--kernelprof-only"], 6),
    ],
    ids=["id", "file", "k", "only"],
)
def test_tests_are_chosen_as_others_are(
    pytester: pytest.Pytester, chosen: list[str], ran: int
) -> None:
    run(pytester, SOFTMAX, *chosen).assert_outcomes(passed=ran, deselected=5 * ("-k" in chosen))


def test_those_that_failed_last_run_again_alone(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(bench_it=f"{SOFTMAX}    assert M < 512\n".replace("return", "assert"))
    for passed in (4, 0):
        result = pytester.runpytest_inprocess("--lf", "--kernelprof-device=cpu")
        result.assert_outcomes(passed=passed, failed=2)


def test_workers_share_the_configurations(pytester: pytest.Pytester, python: str) -> None:
    result = run(pytester, SOFTMAX, *two_workers(python))
    result.assert_outcomes(passed=6)
    assert list(measured().values()) == 6 * [[1]]


HABITS = {
    "names imported from triton.testing, quantiles": (
        """
import torch
from triton.testing import Benchmark, do_bench, perf_report

configs = [Benchmark(
    x_names=["M", "N"], x_vals=[(4, 8), (8, 8)], line_arg="provider", line_vals=["torch"],
    line_names=["Torch"], plot_name=f"matmul-{kind}", args={"transposed": kind == "nt"},
) for kind in ("nn", "nt")]

@perf_report(configs)
def bench_matmul(M, N, provider, transposed):
    a, b = torch.ones(M, N), torch.ones(N, N)
    def call(): return a @ (b.t() if transposed else b) + 1
    ms, min_ms, max_ms = do_bench(call, quantiles=[0.5, 0.2, 0.8])
    tflops = lambda ms: 2 * M * N * N * 1e-12 / (ms * 1e-3)
    return tflops(ms), tflops(max_ms), tflops(min_ms)
""",
        {
            f"bench_matmul[matmul-{kind}-M={m}-N=8-torch]": [2]
            for kind in ("nn", "nt")
            for m in (4, 8)
        },
    ),
    "a tutorial: work and run() at the top level, prints, plots": (
        """
import torch, triton
DEVICE = torch.device("cpu")
torch.manual_seed(0)
assert torch.allclose(torch.rand(8), torch.rand(8)) is False
"""
        + bench(x="[2**i for i in range(3)]", lines='["torch"]')
        + """
def benchmark(M, provider):
    print("GB/s", M)
    x = torch.rand(M, device=DEVICE)
    ms = triton.testing.do_bench(lambda: x + x)
    return 3 * x.numel() * x.element_size() * 1e-9 / (ms * 1e-3)

benchmark.run(print_data=True, show_plots=True, save_path=".")
""",
        {f"benchmark[plot-M={m}-torch]": [1] for m in (1, 2, 4)},
    ),
    "a helper beside the file, argparse in main": (
        """
import argparse
import torch, triton
from bench_utils import PROVIDERS, time_of
"""
        + bench(lines="list(PROVIDERS)", names="list(PROVIDERS)")
        + """
def benchmark(M, provider):
    x = torch.ones(M, 4)
    return time_of(PROVIDERS[provider], x)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save_path", required=True)
    benchmark.run(print_data=True, save_path=parser.parse_args().save_path)
""",
        {"benchmark[plot-M=1-eager]": [2], "benchmark[plot-M=1-one]": [1]},
    ),
    "forward and backward, gradients": (
        """
import torch, triton
from functools import partial
timed = partial(triton.testing.do_bench, rep=10, return_mode="all")
"""
        + bench(lines='["forward", "full"]', names='["Forward", "Full"]')
        + """
def bench_layer(M, provider):
    x = torch.ones(M, 4, requires_grad=True)
    def full():
        assert x.grad is None
        x.grad = x.detach() + 1  # a backward, of one operator
    fn = (lambda: torch.relu(x)) if provider == "forward" else full
    (ms,) = timed(fn, grad_to_none=[x])
    return ms, ms, ms
""",
        {"bench_layer[plot-M=1-forward]": [1], "bench_layer[plot-M=1-full]": [1]},
    ),
    "two benchmarks, do_bench_cudagraph, providers that are no text, two callables": (
        """
import torch, triton
from triton import testing
"""
        + bench("types", lines="[torch.float32, torch.float64]", names='["fp32", "fp64"]')
        + """
def by_type(M, provider):
    x = torch.ones(M, dtype=provider)
    return testing.do_bench_cudagraph(lambda: x * 2, rep=5)
"""
        + bench("calls", lines="[print, None]", names='["a/b", "c::d"]')
        + """
def two_calls(M, provider):
    x = torch.ones(M)
    triton.testing.do_bench(lambda: x * 2, 25, 100)
    return triton.testing.do_bench(fn=lambda: x * 2 + 1, return_mode="min")

main = two_calls
""",
        {
            "by_type[types-M=1-fp32]": [1],
            "by_type[types-M=1-fp64]": [1],
            "two_calls[calls-M=1-a/b]": [1, 2],
            "two_calls[calls-M=1-c::d]": [1, 2],
        },
    ),
}
HELPER = """
import torch
from triton.testing import do_bench
PROVIDERS = {"eager": lambda x: torch.relu(x) + 1, "one": torch.relu}
def time_of(fn, *args):
    return do_bench(lambda: fn(*args), warmup=1, rep=5)
"""


@pytest.mark.parametrize(("code", "counts"), HABITS.values(), ids=list(HABITS))
def test_files_of_many_habits_need_no_change(
    pytester: pytest.Pytester, code: str, counts: dict[str, list[float]]
) -> None:
    pytester.makepyfile(bench_utils=HELPER)
    quiet = ("-W", "ignore:bench_utils.py has no function")
    run(pytester, code, *quiet).assert_outcomes(passed=len(counts))
    assert measured() == counts


def test_names_like_tests_are_helpers_of_a_benchmark(pytester: pytest.Pytester) -> None:
    helper = SOFTMAX + "\ndef test_correctness(provider): raise ValueError\n"
    run(pytester, helper, "bench_it.py").assert_outcomes(passed=6)
    both = INI + "python_files = bench_it.py\n"
    run(pytester, helper, ini=both).assert_outcomes(passed=6, errors=1)


def test_the_calls_of_autotuners_are_not_measured(pytester: pytest.Pytester) -> None:
    """Those of Triton and of torch wherever they tune, others while a call is measured: all get the
    real do_bench, which refuses an unknown mode here."""
    code = f"""{IMPORTS}
TUNER = '''
def tune(fn):
    try:
        testing.do_bench(fn, return_mode="unknown")
    except AssertionError:
        refused.append(fn)
'''
of_triton = {{"__name__": "triton.runtime.autotuner", "testing": triton.testing, "refused": []}}
of_others = {{"__name__": "others", "testing": triton.testing, "refused": []}}
exec(TUNER, of_triton)
exec(TUNER, of_others)
{bench()}
def benchmark(M, provider):
    def call():
        of_triton["tune"](print)
        of_others["tune"](print)
        return torch.ones(M) + 1
    of_triton["tune"](call)
    triton.testing.do_bench(call)
    assert len(of_triton["refused"]) == len(of_others["refused"]) + 1 > 2
"""
    run(pytester, code).assert_outcomes(passed=1)
    assert measured() == {"benchmark[plot-M=1-torch]": [2]}


def test_a_file_that_replaces_do_bench_changes_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "do_bench", testing.do_bench)  # which puts it back
    top = "real = triton.testing.do_bench\ntriton.testing.do_bench = lambda fn: real(fn, rep=1)\n"
    first = SOFTMAX.replace("triton.testing.do_bench", "real")
    pytester.makepyfile(bench_first=IMPORTS + top + first)
    run(pytester, SOFTMAX).assert_outcomes(passed=12)
    assert set(map(tuple, measured().values())) == {(1,)}


def test_a_file_runs_as_a_script_without_arguments(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    given = list(sys.argv)
    code = f"""{IMPORTS}
import os, sys
def look():
    assert [os.path.basename(one) for one in sys.argv] == ["bench_it.py"]
    assert os.environ["MPLBACKEND"] == "Agg"
look()
{bench()}
def benchmark(M, provider):
    look()
    return triton.testing.do_bench(lambda: torch.ones(M))
"""
    run(pytester, code).assert_outcomes(passed=1)
    assert sys.argv == given
    assert "MPLBACKEND" not in os.environ


def test_ordinary_test_files_are_imported_as_ever(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
import os, sys
given = list(sys.argv), os.environ.get("MPLBACKEND")
def test_it():
    assert given == (sys.argv, os.environ.get("MPLBACKEND"))
""",
        test_both=SOFTMAX + "import sys\ngiven = list(sys.argv)\n"
        "def test_it(): assert len(given) == 1 and given[0].endswith('test_both.py')\n",
    )
    result = run(pytester, SOFTMAX, "-k", "test_it", ini=INI.replace("bench_*.py", "*.py"))
    result.assert_outcomes(passed=2, deselected=12)


def test_the_folder_of_a_script_has_its_helpers(pytester: pytest.Pytester) -> None:
    """As Python finds them for a script, also below a folder with an __init__.py."""
    pytester.makeini(INI)
    folder = pytester.mkpydir("speed")
    (folder / "helpers_of_it.py").write_text("def size(): return 8\n")
    (folder / "more_of_it.py").write_text("factor = 2\n")
    late = SOFTMAX.replace("    x =", "    from more_of_it import factor\n    x = factor *")
    (folder / "bench_it.py").write_text("from helpers_of_it import size\n" + late)
    before = list(sys.path)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--kernelprof-device=cpu")
    result.assert_outcomes(passed=6)
    assert sys.path == before


def test_what_a_script_gives_to_run_is_told(pytester: pytest.Pytester) -> None:
    code = SOFTMAX.replace('args={"N": 8},', "args={},").replace("N, provider", "N, provider, *, K")
    result = run(pytester, code + "if __name__ == '__main__': benchmark.run(N=8, K=2)\n")
    result.assert_outcomes(skipped=6)
    result.stdout.fnmatch_lines(
        ["SKIPPED *nothing to measure: benchmark needs N, K; write them in args= of its Benchmark*"]
    )


def test_files_are_matched_by_name_or_path(pytester: pytest.Pytester) -> None:
    for folder in ("speed", "other"):
        pytester.mkdir(folder)
        (pytester.path / folder / f"relu_{folder}.py").write_text(SOFTMAX)
    pytester.makefile(".txt", bench_notes="no Python")
    ini = "[pytest]\nkernelprof_benchmarks = bench_* speed/*.py\n"
    run(pytester, SOFTMAX, ini=ini).assert_outcomes(passed=12)
    assert {one.id.partition("::")[0] for one in read_run("run.json").tests} == {
        "bench_it.py",
        "speed/relu_speed.py",
    }


@pytest.mark.parametrize(
    ("above", "conftest"),
    [
        ("pytestmark = pytest.mark.max_kernels(1)", ""),
        ("LIMIT = pytest.mark.max_kernels(1)", ""),
        (
            "",
            """
import pytest
def pytest_itemcollected(item):
    item.add_marker(pytest.mark.max_kernels(1))
    item.add_marker(pytest.mark.kernelprof(device="cpu"))
""",
        ),
    ],
    ids=["file", "function", "conftest"],
)
def test_limits_hold_for_benchmarks(pytester: pytest.Pytester, above: str, conftest: str) -> None:
    pytester.makeconftest(conftest)
    limited = "@LIMIT" if "LIMIT" in above else ""
    code = f"""{IMPORTS}
import pytest
{above}
{bench(lines='["one", "two"]')}
{limited}
def benchmark(M, provider):
    x = torch.ones(M)
    return triton.testing.do_bench((lambda: x + 1) if provider == "one" else (lambda: x + 1 + 1))
"""
    result = run(pytester, code, device="auto" if conftest else "cpu")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   max_kernels: 2 > limit 1*",
            "FAILED bench_it.py::benchmark[[]plot-M=1-two] - max_kernels: 2 > limit 1*",
        ]
    )


def test_a_configuration_that_raises_fails_at_its_line(pytester: pytest.Pytester) -> None:
    before = code_of_triton()
    code = IMPORTS + bench() + "\ndef benchmark(M, provider):\n    return 1 / 0\n"
    result = run(pytester, code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["bench_it.py:*: ZeroDivisionError"])
    result.stdout.no_fnmatch_line("*triton_benchmarks.py*")
    assert code_of_triton() == before


def test_what_do_bench_is_given_must_be_measurable(pytester: pytest.Pytester) -> None:
    """A file that catches all errors, as for memory that runs out, has measured nothing."""
    code = f"""{IMPORTS}{bench()}
def benchmark(M, provider):
    try:
        return triton.testing.do_bench(lambda: 1 / 0)
    except Exception:
        return float("inf")
"""
    result = run(pytester, code)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError was raised*catch expected exceptions inside*"])


def test_a_configuration_without_do_bench_is_not_judged(pytester: pytest.Pytester) -> None:
    code = f"{IMPORTS}{bench()}\ndef benchmark(M, provider):\n    return None\n"
    result = run(pytester, code)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*1 not judged (nothing to measure)*",
            "SKIPPED * nothing to measure: benchmark called neither triton.testing.do_bench nor "
            "do_bench_cudagraph for plot-M=1-torch",
        ]
    )


@pytest.mark.usefixtures("no_gpu")
def test_without_a_device_benchmarks_are_collected_and_skipped(pytester: pytest.Pytester) -> None:
    result = run(pytester, SOFTMAX, device="auto")
    result.assert_outcomes(skipped=6)
    result.stdout.fnmatch_lines(["*6 not judged (no CUDA device)*"])


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("option", ["", "--kernelprof-require-gpu", "--kernelprof-device=cpu"])
def test_a_file_that_needs_a_device_at_its_top_level_is_skipped_without_one(
    pytester: pytest.Pytester, option: str
) -> None:
    """As all tutorials of Triton do."""
    pytester.makepyfile(test_it="def test_it(): pass")
    code = IMPORTS + "DEVICE = triton.runtime.driver.active.get_active_torch_device()"
    result = run(pytester, code, *filter(None, [option]), device="auto")
    if option:
        result.assert_outcomes(errors=1)
    else:
        result.assert_outcomes(passed=1, skipped=1)
        told = "no CUDA device, and bench_it.py is not imported without: 0 active drivers*"
        result.stdout.fnmatch_lines([f"SKIPPED * {told}"])


def test_a_run_that_measures_nothing_calls_once(pytester: pytest.Pytester) -> None:
    code = f"""{IMPORTS}
import math
{bench()}
def benchmark(M, provider):
    calls = []
    assert math.isnan(triton.testing.do_bench(lambda: calls.append(1))) and calls == [1]
"""
    run(pytester, code, "--kernelprof-disable").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import no_such_module", "E   ModuleNotFoundError: No module named 'no_such_module'"),
        (
            "import torch\ntorch.zeros(1, device='meta').item()",
            "E   RuntimeError: *meta tensors*",
        ),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args()",
            "bench_it.py ended with SystemExit(2) while it was imported; parse arguments and exit "
            "below: if __name__ == '__main__'",
        ),
        (
            IMPORTS + bench(x="[(1, 2)]") + "\ndef f(M, provider): pass",
            "f: got (1, 2) for x_names ['M']; expected perf_report(Benchmark(x_names, x_vals, *",
        ),
        (
            IMPORTS + "@triton.testing.perf_report(3)\ndef f(M, provider): pass",
            "f: 'int' object has no attribute 'x_names'; expected perf_report(Benchmark(*",
        ),
        (
            IMPORTS + bench(lines="[]") + "\ndef f(M, provider): pass",
            "f: the plot 'plot' has no configurations; expected perf_report(Benchmark(*",
        ),
        (
            f"import pytest\n{IMPORTS}@pytest.mark.max_kernels(1){bench()}\ndef f(M): pass",
            "f: got @pytest.mark.max_kernels above perf_report, which hides the benchmark; write "
            "the marker below perf_report",
        ),
    ],
    ids=["import", "device", "argparse", "x_vals", "no-benchmark", "no-lines", "marker"],
)
def test_a_file_that_cannot_be_read_is_an_error_of_collection(
    pytester: pytest.Pytester, code: str, told: str
) -> None:
    result = run(pytester, code)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([told.replace("[", "[[]")])


def test_a_file_without_benchmarks_is_told(pytester: pytest.Pytester) -> None:
    """As where a function makes them, with values of the command line."""
    made = SOFTMAX.replace("\n", "\n    ")
    result = run(pytester, f"def get_benchmark():{made}\n    return benchmark\n")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        [
            "*KernelprofWarning: bench_it.py has no function with triton.testing.perf_report at "
            "its top level: nothing of it is measured"
        ]
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("kernelprof_benchmark_configs = 0", "got 0; expected a whole number of one or more"),
        ("kernelprof_benchmark_configs = all", "got 'all'; expected a whole number of one or more"),
        ("kernelprof_benchmarks = /tmp/b.py", "got ['/tmp/b.py']; expected globs of files, for*"),
        ("kernelprof_benchmarks = 'b", "No closing quotation; expected globs of files, for*"),
    ],
)
def test_a_wrong_ini_value_ends_the_run_before_its_tests(
    pytester: pytest.Pytester, line: str, told: str
) -> None:
    result = run(pytester, "raise ValueError", ini=f"[pytest]\n{line}\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    key = line.partition(" ")[0]
    result.stderr.fnmatch_lines([f"ERROR: ini key {key}: {told}".replace("[", "[[]")])


def test_the_number_of_configurations_is_bounded(pytester: pytest.Pytester) -> None:
    many = SOFTMAX.replace("[128, 256, 512]", "range(20)")
    result = run(pytester, many, ini=INI + "kernelprof_benchmark_configs = 4")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        ["benchmark configurations that are not run: 36 (kernelprof_benchmark_configs bounds *"]
    )
    assert {re.sub(r".*M=(\d+).*", r"\1", name) for name in measured()} == {"0", "19"}
    run(pytester, many).assert_outcomes(passed=12)


@pytest.mark.parametrize(
    ("most", "places"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1]),
        (4, [0, 1, 8, 9]),
        (6, [0, 1, 4, 5, 8, 9]),
        (10, range(10)),
    ],
)
def test_chosen_are_the_ends_and_what_lies_evenly_between(most: int, places: list[int]) -> None:
    configs: list[Configuration] = [(str(at), ({},)) for at in range(10)]
    assert [int(name) for name, _ in chosen(configs, 2, most)] == list(places)


def test_ids_are_short_and_stay_from_run_to_run() -> None:
    plot = testing.Benchmark(
        x_names=["fn", "shape"],
        x_vals=[(object(), "s" * 99), (1, "ü\n")],
        line_arg="p",
        line_vals=[True],
        line_names=[],
        plot_name="",
        args={},
    )
    names = [name for name, _ in configurations(plot)]
    assert names == ["fn=#0-shape=#0-True", r"fn=1-shape=\xfc\n-True"]


def test_equal_configurations_have_ids_of_their_own(pytester: pytest.Pytester) -> None:
    twice = SOFTMAX.replace("[128, 256, 512]", "[128, 128]")
    run(pytester, twice).assert_outcomes(passed=4)
    assert len(measured()) == 4
    assert "benchmark[softmax-M=128-torch-2]" in measured()


def test_nobody_who_does_not_ask_pays(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
import sys
def pytest_unconfigure():
    print("loaded:", [n for n in sys.modules if "triton" in n or "bench_it" in n])
"""
    )
    pytester.makepyfile(bench_it="raise ValueError", test_it="def test_it(): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["loaded: [[][]]"])


@pytest.mark.usefixtures("quick_references")
def test_benchmarks_are_compared_with_a_revision(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.setenv("TMPDIR", str(folder))
    make = supervisor.make_folder
    monkeypatch.setattr(supervisor, "make_folder", lambda: make(str(folder)))
    code = f"""{IMPORTS}from pkg import op{bench(lines='["ours", "torch"]')}
def benchmark(M, provider):
    x = torch.ones(M)
    return triton.testing.do_bench(lambda: op(x) if provider == "ours" else torch.relu(x))
"""
    repository, ini = Repository(pytester.path), f"{INI}pythonpath = .\n"
    before = {"pkg.py": "def op(x): return x + 1\n", "bench_it.py": "raise ValueError"}
    repository.commit({**before, "pytest.ini": ini})
    repository.write({"pkg.py": "def op(x): return x + 1 + 1\n"})
    result = run(pytester, code, "--kernelprof-against=main", "-p", "no:benchmark", ini=ini)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["FAILED bench_it.py::benchmark[[]plot-M=1-ours] - worse than main: operators 1 -> 2*"]
    )
