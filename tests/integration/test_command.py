"""The command ``kernelprof``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelprof.cli.main import main
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.run import Profile

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
    found = codec.decode(capsys.readouterr().out.encode(), Profile)
    assert (found.kernel_count, found.metrics["launches"].value) == (5, 5)


def test_the_version_is_the_installed_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kernelprof {metadata.version('pytest-kernelprof')}\n"


def test_a_trace_that_cannot_be_read_is_exit_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    assert main(["show", str(tmp_path / "bad.json")]) == 2
    assert "kernelprof: " in capsys.readouterr().err


def test_a_trace_of_unknown_origin_without_device_counts_nothing_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"aten::mm","tid":1,"ts":1.000,"dur":1}'
    (tmp_path / "cpu.json").write_text('{"traceEvents":[' + event + "]}")
    assert main(["show", str(tmp_path / "cpu.json")]) == 1
    assert capsys.readouterr().out.startswith("INCOMPLETE: the trace holds no device")


def test_a_console_without_unicode_gets_dots_and_no_traceback() -> None:
    trace = TRACES / "backward.json.gz"
    command = [sys.executable, "-m", "pytest_kernelprof.cli.main", "show", str(trace)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nvjet 256x128x64" in done.stdout
    assert "..." in done.stdout  # where a chain was shortened
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
