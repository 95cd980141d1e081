"""``kernelprof check``: a trace judged by limits, which are options made from one table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from built import annotation, call, copy, launched, written

from pytest_kernelprof import profile
from pytest_kernelprof.cli.main import main

MLP = Path(__file__).parents[2] / "traces" / "mlp.json.gz"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """One step with three kernels, recorded elsewhere."""
    work = [launched(name, 10 * at, at) for at, name in enumerate(["gemm", "gelu", "gemm"], 1)]
    return written(tmp_path, annotation("ProfilerStep#7", 0, 60), *work)


def checked(
    capsys: pytest.CaptureFixture[str], *arguments: object, status: int
) -> tuple[list[str], str]:
    assert main(["check", *map(str, arguments)]) == status
    told = capsys.readouterr()
    return told.out.splitlines(), told.err


def test_limits_that_are_kept(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = "--max-kernels 3 --max-launches 3 --forbid-kernels clone copy_ --max-memcpys 0"
    assert checked(capsys, trace, *limits.split(), status=0)[0] == [
        "passed: max_kernels: 3 <= 3",
        "passed: max_launches: 3 <= 3",
        "passed: max_memcpys: 0 <= 0",
        "passed: forbid_kernels: none of 3 kernels is forbidden",
        "3 kernels in 3 launches, 30.0us on the GPU; complete.",
    ]


def test_a_broken_limit_is_told_as_a_test_tells_it(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, _ = checked(capsys, trace, "--max-kernels", 2, "--max-launches", 3, status=1)
    assert told == [
        "max_kernels: 3 > limit 2",
        "  gemm x2",
        "  gelu",
        "  ",
        "  to do: launch fewer kernels (fuse them, torch.compile)",
        "  if intended, allow max_kernels(3)",
        "  ",
        "  #    us  kernel",
        "  1  10.0  gemm",
        "  2  10.0  gelu",
        "  3  10.0  gemm",
        "passed: max_launches: 3 <= 3",
        "3 kernels in 3 launches, 30.0us on the GPU; complete.",
    ]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--max-kernels 2 match=gemm", 0),
        ("--max-kernels 1 match=gemm", 1),
        ("--max-kernels 9 --max-kernels 1 match=gemm", 1),
        ("--max-memcpys 0 direction=d2h", 0),
        ("--max-cuda-time 30us", 0),
        ("--max-cuda-time us=29.5", 1),
        ("--max-exposed-comm 0%", 0),
        ("--expect-kernels gemm gelu gemm", 0),
        ("--expect-kernels gemm ...", 0),
        ("--expect-kernels ... gelu", 1),
        ("--forbid-kernels gelu clone", 1),
    ],
)
def test_each_form_of_a_limit(
    words: str, status: int, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(capsys, trace, *words.split(), status=status)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--max-kernels two", "--max-kernels: 'two' is not a whole number"),
        ("--max-kernels -1", "--max-kernels: -1 is negative; a limit is zero or more"),
        ("--max-kernels 1 2", "--max-kernels: takes one value, got 2"),
        ("--max-kernels 1 match=(", "--max-kernels: '(' is not a regular expression"),
        ("--max-memcpys 0 direction=up", "--max-memcpys: direction='up' is not one of h2d"),
        ("--max-memcpys 0 direction=h2d direction=d2h", "direction= is given twice"),
        ("--max-cuda-time 5", "--max-cuda-time: "),
        ("--max-cuda-time us=nan", "--max-cuda-time: us=nan is not a finite time"),
        ("--max-memcpy-bytes 1", "--max-memcpy-bytes: "),
        ("", "no limit is given, for example --max-kernels 3 or --max-kernels 0 match="),
    ],
)
def test_a_malformed_limit_shows_the_form_of_its_option(
    words: str, told: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, error = checked(capsys, trace, *words.split(), status=2)
    assert out == []
    assert told in error
    assert "--max-" in error.partition(". Write ")[2] or not words


def test_what_no_trace_holds_is_not_judged(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told, _ = checked(capsys, trace, "--max-latency", "1s", "--max-kernels", 3, status=2)
    assert told[:2] == [
        "passed: max_kernels: 3 <= 3",
        "not judged: max_latency: not recorded with the trace: only kernel_profile(fn) measures it",
    ]
    checked(capsys, trace, "--max-latency", "1s", "--max-kernels", 2, status=1)


def test_a_copy_whose_name_does_not_tell_its_direction_may_be_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = [call("cudaMemcpyAsync", 20, 2), copy("Memcpy Unknown", 22, 2)]
    path = written(tmp_path, *launched("gemm", 10, 1), *copies)
    told, _ = checked(capsys, path, "--max-memcpys", 0, "direction=d2h", status=2)
    assert told[0] == (
        "not judged: max_memcpys(d2h): not available: the trace does not have the direction of "
        "each copy"
    )
    checked(capsys, path, "--max-memcpy-bytes", "0 B", "direction=h2d", status=2)
    checked(capsys, path, "--max-memcpys", 1, "--max-memcpy-bytes", "4 B", status=0)


def test_kernels_have_registers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = launched("gemm", 10, 1)
    for registers in (-3, 0):
        events[1]["args"]["registers per thread"] = registers
        path = written(tmp_path, *events)
        told, _ = checked(capsys, path, "--max-registers", 9, status=2)
        assert told[0].startswith("not judged: max_registers: registers not known of 1 of 1")


@pytest.mark.parametrize("more", [{}, {"pid": "1"}, {"ts": 1e13}], ids=["float", "text", "long"])
def test_an_event_without_its_time_is_no_event_at_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, object]
) -> None:
    events = [*launched("gemm", 10, 1), *launched("gelu", 20, 2)]
    events[0] |= more
    del events[3]["ts"]
    _, told = checked(capsys, written(tmp_path, *events), "--max-kernels", 2, status=2)
    assert "a 'ts' is not a number of microseconds that fits 64 bits" in told
    assert "traceEvents[3].ts" in told


def test_an_incomplete_trace_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, launched("gemm", 10, 1), call("cudaLaunchKernel", 20, 2))
    told, _ = checked(capsys, path, "--max-kernels", 3, status=2)
    lost = "1 launch calls have no kernel in the trace (cudaLaunchKernel x1)"
    assert told[:2] == [f"incomplete: max_kernels: {lost}", f"INCOMPLETE: {lost}"]
    checked(capsys, path, "--max-kernels", 0, status=1)  # over it, whatever is lost


def test_bad_input_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit = ("--max-kernels", 3)
    steps = [annotation(f"ProfilerStep#{n}", 50 * n, 50) for n in (0, 1)]
    path = written(tmp_path, *steps, launched("gemm", 10, 1))
    assert "Choose one with step=N" in checked(capsys, path, *limit, status=2)[1]
    assert "no kernels in step 1" in checked(capsys, path, "--step=1", *limit, status=2)[1]
    assert "cannot be read" in checked(capsys, tmp_path / "no.json", *limit, status=2)[1]
    checked(capsys, path, "--step=0", "--process=0", *limit, status=0)


def test_a_recording_of_ours_has_its_host_times_judged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checked(capsys, MLP, "--max-kernels", 5, "--max-peak-memory", "151 MB", status=0)
    checked(capsys, MLP, "--max-peak-memory", "150 MB", status=1)


def test_it_needs_no_torch(trace: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from pytest_kernelprof.cli.main import main; "
        f"sys.exit(main(['check', {str(trace)!r}, '--max-kernels', '3']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_name_that_no_operator_of_the_cpu_has_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = profile(torch.mm, torch.ones(4, 4), torch.ones(4, 4), device="cpu", rounds=2)
    taken.save_trace(path := tmp_path / "cpu.json.gz")
    checked(capsys, path, "--max-kernels", 1, "--forbid-kernels", "aten::clone", status=0)
    told, _ = checked(capsys, path, "--forbid-kernels", "sgemm", status=2)
    assert told[0].startswith("not judged: forbid_kernels: no operator of torch ")
    told, _ = checked(capsys, path, "--max-launches", 1, status=2)
    assert told[0] == "not judged: max_launches: not applicable on the CPU"
