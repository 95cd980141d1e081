"""The command ``kernelprof``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.cli import main

TRACES = Path(__file__).parents[1] / "traces"


def test_show_prints_kernels_metrics_and_completeness(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(TRACES / "mlp.json.gz")]) == 0
    out = capsys.readouterr().out
    assert "aten::mm < aten::linear" in out
    assert "launches                 5" in out
    assert "NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0; complete: 10/10 launches" in out


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
    assert "INCOMPLETE" in capsys.readouterr().out
