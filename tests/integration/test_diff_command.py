"""``kernelprof diff``: two recorded traces, of ours or of anybody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import TracesComparison

TRACES = Path(__file__).parents[1] / "traces"
MLP, COMPILED = str(TRACES / "mlp.json.gz"), str(TRACES / "compiled.json.gz")


def test_both_sides_stand_in_one_list_in_launch_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["diff", COMPILED, MLP]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "4 kernels -> 5, GPU time 200.7us -> 231.4us (+15.3 %).",
        "",
        "    old    new  kernel                         launched by",
        "   55.5   55.7  nvjet 256x128x64 TNT           aten::mm in aten::linear",
        "+         31.9  vectorized_elementwise [gelu]  aten::gelu",
        "   57.6   55.5  nvjet 256x128x64 TNT           aten::mm in aten::linear",
        "-  36.7         triton_poi_fused [gelu, mul]   Torch-Compiled Region: 0/0",
        "+         37.2  vectorized_elementwise [mul]   aten::mul",
        "   50.9   51.0  nvjet 192x128x64 TNT           aten::mm in aten::linear",
        "  200.7  231.4  us in all",
        "",
        "triton_poi_fused [gelu, mul] is now gelu + mul: 36.7us -> 69.2us",
        "launches 4 -> 5",
        "gpu_busy 203.4us -> 232.7us (+14.4 %)",
        "peak_memory 101 MB -> 151 MB (+50.0 %)",
        "one trace of each cannot separate change from noise",
    ]


def test_of_a_long_run_that_both_have_the_ends_stand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", MLP, str(TRACES / "backward.json.gz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[3:7]] == [
        *(["55.7", "55.5"], ["(3", "unchanged)"], ["51.0", "50.6"], ["+", "7.8"])
    ]


def test_what_repeats_in_each_of_many_layers_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = ["gemm", "norm", "add", "gelu"]
    old = steps(tmp_path / "old.json", [layer * 48])
    new = steps(tmp_path / "new.json", [[*layer, "copy"] * 48])
    assert main(["diff", old, new]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "192 kernels -> 240, GPU time 960.0us -> 1.20ms (+25.0 %)."
    assert [line.split()[:4] for line in lines if line[:1] == "+"] == [
        ["+", "5.0us", "copy", "x48"]
    ]


def test_a_trace_differs_in_nothing_from_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", MLP, MLP]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "5 kernels, unchanged, GPU time 231.4us -> 231.4us (+0.0 %).",
    ]


def test_as_json_it_is_the_record_with_full_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", COMPILED, MLP, "--json"]) == 0
    found = codec.decode(capsys.readouterr().out.encode(), TracesComparison)
    assert (found.schema, found.baseline_processes, found.current_processes) == (1, 1, 1)
    names = [one.current.name for one in found.processes[0].changes if one.current]
    assert [name.split("<")[0] for name in names] == [
        "void at::native::vectorized_elementwise_kernel"
    ] * 2


def test_lines_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(TRACES / "empty.json.gz"), MLP, "--lines=2"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n+ ") == 2
    assert "... and 3 more lines" in out


def steps(path: Path, kernels: list[list[str]]) -> str:
    """A trace as torch.profiler writes it under a schedule: so many steps, with these kernels."""
    events, correlation = [], 0
    for number, names in enumerate(kernels):
        begin = 1000 * number
        annotation = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}"}
        events.append({**annotation, "pid": 1, "tid": 1, "ts": begin, "dur": 900})
        for i, name in enumerate(names):
            correlation += 1
            args = {"correlation": correlation, "device": 0, "stream": 7}
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": args}
            events.append({**call, "pid": 1, "tid": 1, "ts": begin + 10 * i + 1, "dur": 2})
            kernel = {"ph": "X", "cat": "kernel", "name": name, "args": args}
            events.append({**kernel, "pid": 0, "tid": 7, "ts": begin + 10 * i + 4, "dur": 5})
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


def test_traces_of_another_number_of_steps_are_compared_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = steps(tmp_path / "old.json", [["warm", "a", "b"], ["a", "b"], ["a", "b"]])
    new = steps(tmp_path / "new.json", [["a", "b", "c"]] * 5)
    assert main(["diff", old, new]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 kernels -> 3, GPU time 10.0us -> 15.0us (+50.0 %)."
    assert lines[1] == "one step of each trace is compared, of 3 and 5"
    assert [line.split() for line in lines if "+ " in line] == [["+", "5.0", "c"]]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("content", [b"", b"hello", b'{"traceEvents": 3}', None])
def test_a_bad_file_on_either_side_is_exit_status_2_and_one_line(
    which: int, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content)
    files = [MLP, MLP]
    files[which] = str(bad)
    assert main(["diff", *files]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(f"kernelprof: {bad}: ")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--max-size=big", "--max-size: 'big'"),
        ("--lines=-1", "--lines: got '-1'"),
    ],
)
def test_a_bad_option_is_exit_status_2_and_one_line(
    option: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", MLP, MLP, option]) == 2
    assert capsys.readouterr().err.startswith(f"kernelprof: {words}")


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from pytest_kernelprof.cli.main import main; "
        f"status = main(['diff', {COMPILED!r}, {MLP!r}]); "
        "sys.exit(9 if 'torch' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0


def test_what_the_how_to_shows_is_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["diff", COMPILED, MLP]) == 0
    how_to = (TRACES.parents[1] / "docs" / "how-to" / "compare-traces.md").read_text()
    assert f"```\n{capsys.readouterr().out}```" in how_to
