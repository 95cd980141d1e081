"""The command ``kernelprof``."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelprof import Profile
from pytest_kernelprof.cli.main import COMMANDS, main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.profile import Profile as ProfileRecord

TRACES = Path(__file__).parents[1] / "traces"


def test_show_says_first_how_many_how_long_and_whether_that_is_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", str(TRACES / "mlp.json.gz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "5 kernels in 5 launches, 231.3us on the GPU; complete."
    assert "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0" in lines[1]


def test_show_gives_the_record_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--json", str(TRACES / "mlp.json.gz")]) == 0
    found = codec.decode(capsys.readouterr().out.encode(), ProfileRecord)
    assert (found.kernel_count, found.metrics["launches"].value) == (5, 5)


def test_the_version_is_the_installed_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kernelprof {metadata.version('pytest-kernelprof')}\n"


def test_without_a_command_it_prints_worked_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().out
    for command in ("show trace", "diff old", "report run", "compare run", "doctor"):
        assert f"\n  kernelprof {command}" in told


def test_the_help_lists_each_command_and_nothing_that_stands_for_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out.partition("\ncommands:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^ +(\w+)  ", listed, re.MULTILINE) == list(COMMANDS)


def test_output_that_nobody_reads_is_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:  # short output stays in it until the end
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(["show", str(TRACES / "mlp.json.gz")]) == 1


@pytest.mark.parametrize(
    "command", ["show", "open", "diff", "compare", "report", "update", "doctor", "noise"]
)
def test_the_help_of_each_command_has_an_example_and_the_exit_statuses(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"\nexample: kernelprof {command}" in told
    assert "\nexit status: 0 " in told


def test_a_trace_that_cannot_be_read_is_exit_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    assert main(["show", str(tmp_path / "bad.json")]) == 2
    assert "kernelprof: " in capsys.readouterr().err


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Traces of the CPU that torch.profiler exports, without any notes of ours."""
    folder = tmp_path_factory.mktemp("exported")

    def export(name: str, *, more: bool = False, steps: int = 0, **options: bool) -> str:
        import torch
        from torch.profiler import ProfilerActivity, profile, record_function, schedule

        x, path = torch.ones(8, 8, requires_grad=True), str(folder / f"{name}.json")

        def work() -> None:
            with record_function("my::block"):
                y = torch.nn.functional.linear(x, x).t()
            (y * 2 if more else y).sum().backward()

        work()
        times = schedule(wait=0, warmup=1, active=steps, repeat=1) if steps else None
        with profile(activities=[ProfilerActivity.CPU], schedule=times, **options) as profiler:
            for _ in range(1 + steps):
                work()
                profiler.step()
        profiler.export_chrome_trace(path)
        return path

    return export


COUNTED = (
    "INCOMPLETE: the trace holds no device and was not recorded by pytest-kernelprof: its "
    "outermost operators are counted, views and allocations too, and a lost one is not noticed"
)


@pytest.mark.parametrize("options", [{}, {"record_shapes": True, "with_stack": True}])
def test_a_cpu_trace_of_torch_profiler_counts_its_outermost_operators(
    exported: Callable[..., str],
    options: dict[str, bool],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    path = exported("one", **options)
    assert main(["show", path]) == 1
    told = capsys.readouterr().out.splitlines()
    assert " ".join(told[:2]) == COUNTED
    assert told[2].startswith("What is there: ")
    assert told[2].endswith(" on the CPU.")
    names = {kernel.name for kernel in Profile.from_trace(path).kernels}
    assert {"aten::linear", "aten::t", "aten::sum", "aten::mm"} <= names
    assert "aten::transpose" not in names  # inside of aten::t


def test_two_cpu_traces_of_torch_profiler_differ_by_their_operators(
    exported: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for steps in (0, 3):
        old, new = exported("old", steps=steps), exported("new", more=True, steps=steps)
        assert main(["diff", old, new]) == 0
        told = capsys.readouterr().out.splitlines()
        assert COUNTED.removeprefix("INCOMPLETE: ") in " ".join(told[:4])
        assert any(re.match(r"\+ .* aten::mul\b", row) for row in told)
    assert main(["diff", old, old]) == 0
    assert " operators, unchanged, " in capsys.readouterr().out

    from pytest_kernelprof import profile

    classified = str(tmp_path / "ours.json")
    profile(abs, -1, device="cpu", rounds=1).save_trace(classified)
    for pair in ((old, classified), (classified, old)):
        assert main(["diff", *pair]) == 2
        assert capsys.readouterr().err == (
            f"kernelprof: {pair[0]} and {pair[1]} count compute operators and outermost operators, "
            "not classified: record both with save_trace, or both with torch.profiler\n"
        )


def test_a_console_without_unicode_gets_dots_and_no_traceback() -> None:
    trace = TRACES / "backward.json.gz"
    command = [sys.executable, "-m", "pytest_kernelprof.cli.main", "show", str(trace)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nvjet 256x128x64" in done.stdout
    assert done.stdout.isascii()
    assert "?" not in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("reader", "status", "words"),
    [("true", 1, ""), ("/dev/full", 2, "kernelprof: [Errno 28] No space left on device\n")],
    ids=["a reader that stops", "a full disk"],
)
def test_output_that_nobody_takes_is_no_internal_error(
    reader: str, status: int, words: str, unbuffered: str
) -> None:
    trace = TRACES / "mlp.json.gz"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "pytest_kernelprof.cli.main", "show", str(trace)]
    with contextlib.ExitStack() as stack:
        if reader == "true":
            read, write = os.pipe()
            os.close(read)
            out: Any = stack.enter_context(os.fdopen(write, "w"))
        else:
            out = stack.enter_context(open(reader, "w"))
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment, timeout=60
        )
        assert (done.returncode, done.stderr) == (status, words)
