"""The command kernelprof: looks at traces, those that the plugin saved and any other."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_kernelprof import Profile, profile
from pytest_kernelprof.cli.main import main

Run = Callable[..., pytest.RunResult]
RECORDED = Path(__file__).parents[1] / "traces" / "mlp.json.gz"


@pytest.fixture
def saved(run: Run, pytester: pytest.Pytester) -> Path:
    """A trace that the plugin saved on the CPU."""
    code = "def test_it(kernel_profile): kernel_profile(three)\n"
    run(code, "--kernelprof-trace-dir=traces")
    (path,) = (pytester.path / "traces").iterdir()
    return path


@pytest.mark.parametrize("emptied", [[], ["aten::mm"]], ids=["emptied", "in part"])
def test_a_trace_whose_notes_lost_operators_is_no_complete_count(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], emptied: list[str]
) -> None:
    document = json.loads(gzip.decompress(saved.read_bytes()))
    assert document["kernelprof"]["compute_operators"]
    document["kernelprof"]["compute_operators"] = emptied
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(document))
    (problem,) = Profile.from_trace(damaged).integrity.problems
    assert "the notes do not say whether these operators compute: " in problem
    assert "aten::gelu" in problem
    capsys.readouterr()
    main(["show", str(damaged)])
    assert "INCOMPLETE" in capsys.readouterr().out


def test_a_call_that_computes_nothing_is_read_as_that_again(tmp_path: Path) -> None:
    x = torch.ones(8, 16)
    found = profile(lambda: x.detach_().t(), device="cpu", rounds=2)
    found.save_trace(tmp_path / "views.json")
    again = Profile.from_trace(tmp_path / "views.json")
    assert again.integrity.complete
    assert again.kernel_count == found.kernel_count == 0


def test_show_tells_what_the_test_saw(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["show", "--all", str(saved)]) == 0
    lines = pytest.LineMatcher(capsys.readouterr().out.splitlines())
    lines.fnmatch_lines(
        [
            "3 operators, *s on the CPU; complete.",
            "median of * rounds, below is one of them; CPU (*), torch *",
        ]
    )
    for row in ("1 * aten::mm *aten::matmul", "1 * aten::gelu*", "1 * aten::add*"):
        lines.fnmatch_lines_random([f"*{row}"])


def test_show_reads_plain_files_too(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = saved.with_name("plain.json")
    plain.write_bytes(gzip.decompress(saved.read_bytes()))
    capsys.readouterr()
    assert main(["show", str(plain)]) == 0
    assert "aten::gelu" in capsys.readouterr().out


def test_the_installed_command_needs_no_torch() -> None:
    code = (
        "import sys; from pytest_kernelprof.cli.main import main; "
        f"status = main(['show', {str(RECORDED)!r}]); "
        "sys.exit(9 if 'torch' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0


def test_the_command_is_installed() -> None:
    command = shutil.which("kernelprof", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the package is not installed with its scripts")
    done = subprocess.run([command, "show", RECORDED], capture_output=True, text=True, timeout=60)
    assert "nvjet 256x128x64 TNT" in done.stdout


EVENT = '{{"traceEvents":[{{"ph":"X","cat":"kernel","name":"k","ts":{},"dur":1}}]}}'
BAD = {
    "empty": (b"", "the file is empty; expected a Chrome trace (JSON)"),
    "cut off": (b'{"traceEvents":[{"ph":"X","ts":1', "not JSON, or cut off: *"),
    "no JSON": (b"hello", "not JSON, or cut off: *byte 0*"),
    "a list": (b"[1, 2]", "not a Chrome trace of torch.profiler: *'traceEvents'*"),
    "no events": (b'{"a": 1}', "not a Chrome trace of torch.profiler: *`traceEvents`*"),
    "wrong schema": (b'{"traceEvents": 3}', "not a Chrome trace of torch.profiler: *traceEvents*"),
    "huge number": (EVENT.format("9" * 30).encode(), "*does not fit 64 bits*"),
    "infinite": (EVENT.format("1e400").encode(), "*does not fit 64 bits*"),
    "half a gzip": (RECORDED.read_bytes()[:200], "truncated or damaged gzip file: *"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_exit_status_2_and_one_line_of_reason(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, reason = BAD[kind]
    path = tmp_path / ("bad.json.gz" if kind == "half a gzip" else "bad.json")
    path.write_bytes(content)
    assert main(["show", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    pytest.LineMatcher([line]).fnmatch_lines([f"kernelprof: {path}: {reason}"])


@pytest.mark.parametrize(
    ("name", "why"), [("missing.json", "cannot be read: "), (".", "the folder has no trace")]
)
def test_a_file_that_cannot_be_read_is_exit_status_2(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / name)]) == 2
    assert why in capsys.readouterr().err
