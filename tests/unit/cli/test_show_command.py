"""``kernelprof show``: what a newcomer sees of a trace, of a long one, of several ranks."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from built import call, collective, kernel, written
from corpus import two_ranks

from pytest_kernelprof.cli.main import main

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> list[str]:
    assert main(["show", *map(str, arguments)]) == status
    return capsys.readouterr().out.splitlines()


def of_layers(folder: Path, layers: int, sizes: int = 3) -> Path:
    """A trace of many kernels: layers of the same ones, and a first and a last."""
    names = ["gemm", "norm", *["add"] * sizes, "gelu"] * layers
    return of_launches(folder, ["first", *names, "last"])


def of_launches(folder: Path, names: list[str]) -> Path:
    """A trace of these kernels."""
    events: list[dict[str, Any]] = []
    for i, name in enumerate(names, 1):
        ids = {"correlation": i, "External id": i}
        place = {"ph": "X", "tid": 1, "pid": 1, "ts": 10.0 * i}
        events += [
            {**place, "cat": "cpu_op", "name": f"aten::{name}", "dur": 8, "args": {}},
            {**place, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1, "args": ids},
            {**place, "cat": "kernel", "name": name, "dur": 9, "tid": 7, "args": ids},
        ]
    path = folder / "layers.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_a_few_kernels_stand_in_launch_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, TRACES / "mlp.json.gz") == [
        "5 kernels in 5 launches, 231.3us on the GPU; complete.",
        "median of 2 rounds, below is one of them; NVIDIA H200, torch 2.11.0+cu130,",
        "triton 3.6.0",
        "",
        "#    us  kernel                         grid, block  launched by",
        "1  55.7  nvjet 256x128x64 TNT           2x66, 384    aten::mm in aten::linear",
        "2  31.9  vectorized_elementwise [gelu]  24576, 128   aten::gelu",
        "3  55.5  nvjet 256x128x64 TNT           2x66, 384    aten::mm in aten::linear",
        "4  37.2  vectorized_elementwise [mul]   24576, 128   aten::mul",
        "5  51.0  nvjet 192x128x64 TNT           2x66, 384    aten::mm in aten::linear",
        "",
        "metric           value",
        "kernels              5",
        "launches             5",
        "memsets              2",
        "cuda_time      231.3us",
        "gpu_busy       232.7us",
        "gpu_span       444.9us",
        "gpu_idle       212.1us",
        "peak_memory     151 MB",
        "registers          168",
        "shared_memory   221 KB",
        "",
        "complete: 10/10 launches matched in 2 rounds",
    ]


def test_what_the_how_to_shows_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    told = "\n".join(shown(capsys, TRACES / "mlp.json.gz"))
    how_to = (TRACES.parents[1] / "docs" / "how-to" / "show-a-trace.md").read_text()
    assert f"```\n{told}\n```" in how_to


def test_many_stand_by_name_and_then_in_order_with_repeats_folded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert shown(capsys, of_layers(tmp_path, 48)) == [
        "290 kernels in 290 launches, 2.61ms on the GPU; complete.",
        "unknown device",
        "",
        "calls  GPU us  share  each us  kernel",
        "  144    1296   50 %      9.0  add",
        "   48     432   17 %      9.0  gelu",
        "   48     432   17 %      9.0  gemm",
        "   48     432   17 %      9.0  norm",
        "    1       9    0 %      9.0  first",
        "    1       9    0 %      9.0  last",
        "",
        "        in launch order, repeats folded",
        "1       first",
        "6  x48  gemm, norm, add x3, gelu",
        "1       last",
        "",
        "metric       value",
        "kernels        290",
        "launches       290",
        "cuda_time   2.61ms",
        "gpu_busy    2.61ms",
        "gpu_span    2.90ms",
        "gpu_idle   289.0us",
        "",
        "complete: 290/290 launches matched",
        "more: --all --operators --sort=name|calls|each|total|order --top=N --json",
    ]


def test_the_options_choose_rows_and_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    many = of_layers(tmp_path, 48)
    rows = shown(capsys, many, "--sort=calls", "--top=2")[4:7]
    assert [row.split()[0] for row in rows] == ["144", "48", "98"]
    assert shown(capsys, many, "--sort=name", "--all")[4].endswith(" add")
    first = shown(capsys, many, "--sort=order", "--top=2")
    assert [row.split()[2] for row in first[4:6]] == ["first", "gemm"]
    assert first[6] == "288 more kernels: --all"
    assert sum(" gemm " in row for row in shown(capsys, many, "--sort=order", "--all")) == 48
    by_name = shown(capsys, TRACES / "mlp.json.gz", "--sort=total")
    assert by_name[5].split()[:2] == ["2", "111.2"]


def test_a_long_order_is_broken_between_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = [f"triton_poi_fused_{'_'.join(f'{name}{i}' for i in range(4))}_0" for name in "abcd"]
    path = of_launches(tmp_path, [*names * 13, *(f"k{i}" for i in range(20))])
    told = shown(capsys, path)
    at = next(i for i, row in enumerate(told) if " x13 " in row)
    assert told[at : at + 2] == [
        " 4  x13  triton_poi_fused [a0, a1, a2, a3], triton_poi_fused [b0, b1, b2, b3],",
        "           triton_poi_fused [c0, c1, c2, c3], triton_poi_fused [d0, d1, d2, d3]",
    ]
    assert told[at + 2].endswith("k11, 8 more (--all)")
    whole = shown(capsys, path, "--all")
    assert not any("(--all)" in row for row in whole)
    assert sum("[a0, a1, a2, a3]" in row for row in whole) == 13 + 1


def test_several_devices_and_where_it_is_from_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = of_layers(tmp_path, 1)
    whole = json.loads(path.read_text())
    for event in whole["traceEvents"]:
        if event["cat"] == "kernel":
            event["args"]["device"] = int(event["name"] == "add")
        event["name"] = event["name"].replace("cudaLaunchKernel", "hipLaunchKernel")
    path.write_text(json.dumps(whole))
    told = shown(capsys, path)
    assert "unknown device; ROCm trace" in told
    assert "on device 0: 5 kernels, 45.0us; 1: 3 kernels, 27.0us" in told


def test_a_trace_without_operators_has_no_tree_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert shown(capsys, TRACES / "graph.json.gz", "--operators")[-1] == (
        "No operator in this trace: kernels alone."
    )
    path = of_layers(tmp_path, 1)
    whole = json.loads(path.read_text())
    whole["traceEvents"] = [e for e in whole["traceEvents"] if e["name"] != "aten::last"]
    path.write_text(json.dumps(whole))
    assert shown(capsys, path, "--operators")[-1] == (
        "launched by no operator that is recorded: 1 kernel"
    )


def test_equal_repeats_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    graph = TRACES / "graph_twice_a_round.json.gz"
    told = shown(capsys, graph)
    assert told[0] == "10 kernels in 2 launches, 460.9us on the GPU; graph replay unproven."
    assert told[1].startswith("2 equal repeats of 5 kernels, below is one with mean times;")
    assert "5  50.7  nvjet 192x128x64 TNT           2x66, 384          168         221 KB" in told
    assert sum("nvjet" in row for row in shown(capsys, graph, "--all")) == 6


def test_the_tree_shows_who_launches_and_who_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, TRACES / "mlp.json.gz", "--operators")[2:] == [
        "calls  kernels  GPU us  operator",
        "    3        3   162.3  aten::linear",
        "    3        3   162.3    aten::matmul",
        "    3        3   162.3      aten::mm",
        "    3                     nothing from aten::t x3",
        "    1        1    31.9  aten::gelu",
        "    1        1    37.2  aten::mul",
    ]
    whole = shown(capsys, TRACES / "mlp.json.gz", "--operators", "--all")
    assert "    3                         aten::as_strided" in whole
    short = shown(capsys, TRACES / "mlp.json.gz", "--operators", "--top=2")
    assert short[-1] == "4 more lines with shorter kernels: --all"


def test_a_trace_without_a_device_tells_its_operators(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import torch

    from pytest_kernelprof import profile

    x = torch.ones(64, 64)
    profile(lambda: ((x @ x) @ x).t() * x, device="cpu", rounds=2).save_trace(tmp_path / "c.json")
    told = shown(capsys, tmp_path / "c.json")
    assert told[0].startswith("3 operators, ")
    assert told[0].endswith(" on the CPU; complete.")
    assert "no device in this trace, so no kernels" in " ".join(told[1:3])
    assert any(row.split()[:1] == ["2"] and "aten::mm" in row for row in told)
    assert not any(row.startswith("checked") for row in told)
    tree = shown(capsys, tmp_path / "c.json", "--operators")
    assert "calls  computing  CPU us  operator" in tree
    assert "    1                     nothing from aten::t" in tree


def test_what_is_unproven_is_in_the_first_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = shown(capsys, TRACES / "graph.json.gz")
    assert told[0].endswith(" on the GPU; graph replay unproven.")
    assert told[-1].endswith(", graph replay unproven")
    told = shown(capsys, ranks(tmp_path, "graph", "mlp"))
    assert told[0].startswith("2 ranks, ")
    assert "; graph replay unproven." in told[0]


def test_incomplete_is_the_first_word(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = of_layers(tmp_path, 1)
    whole = json.loads(path.read_text())
    whole["traceEvents"] = [
        e for e in whole["traceEvents"] if e["name"] != "last" or e["cat"] != "kernel"
    ]
    path.write_text(json.dumps(whole))
    told = shown(capsys, path, status=1)
    assert told[0].startswith("INCOMPLETE: ")
    assert "What is there: 7 kernels in 7 launches, 63.0us on the GPU." in told


def ranks(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        shutil.copy(TRACES / f"{name}.json.gz", folder / f"rank{number}.json.gz")
    return folder


def test_a_folder_of_ranks_names_the_odd_one_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = ranks(tmp_path, "mlp", "mlp", "backward", *["mlp"] * 8)
    told = shown(capsys, folder)
    assert told[0].startswith("11 ranks, 66 kernels; complete. Rank 2 differs: 11 more kernels, ")
    table = told[told.index("") + 1 :]
    assert table[:5] == [
        "rank   kernels  GPU us  idle us",
        "0..1         5   231.3    212.1",
        "2           16   577.4    766.5  differs",
        "3..10        5   231.3    212.1",
        "all         66  2890.1   2887.8",
    ]
    at = table.index("rank 2, compared with 0:")
    assert table[at + 2].split() == ["+", "7.8us", "reduce", "[sum]", "aten::sum"]
    assert told[-1] == f"kernelprof diff {folder}/rank0.json.gz {folder}/rank2.json.gz"


@pytest.mark.parametrize(
    ("noted", "names"),
    [
        ('{"backend": "nccl", "rank": 6, "world_size": 8}', ["0", "6"]),
        *((wrong, ["0", "3"]) for wrong in ('{"rank": "6"}', '{"rank": -1}', "[]", "{}", "null")),
    ],
)
def test_a_rank_has_the_number_that_the_profiler_wrote(
    noted: str, names: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copy(TRACES / "mlp.json.gz", tmp_path / "rank0.json.gz")
    with gzip.open(TRACES / "mlp.json.gz", "rt") as file:
        text = file.read()
    (tmp_path / "rank3.json").write_text(text.replace("{", f'{{"distributedInfo": {noted}, ', 1))
    told = shown(capsys, tmp_path)
    assert told[0] == "2 ranks, 10 kernels; complete."
    assert told[-2].split()[0] == "..".join(names)  # they are alike


def of_two_ranks(folder: Path, late_us: float = 40.0, second: str = "allreduce") -> Path:
    """Two ranks that reduce; the second computes longer, so the first waits for it."""
    folder.mkdir(exist_ok=True)
    for rank, wait in enumerate((late_us, 0.0)):
        events = [
            call("cudaLaunchKernel", 1, 1),
            call("cudaLaunchKernel", 3, 2),
            kernel("gemm", 5, 1, dur=100 + late_us - wait),
            collective(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                105 + late_us - wait,
                2,
                dur=20 + wait,
                **({"Collective name": second} if rank else {}),
            ),
        ]
        written(folder, *events, distributedInfo={"rank": rank}).rename(folder / f"r{rank}.json")
    return folder


def test_who_comes_last_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = shown(capsys, of_two_ranks(tmp_path / "a"))
    assert told[2:4] == [
        "Rank 1 comes last to 1 of 1 collectives: rank 0 waits 40.0us for it in allreduce",
        "of 2.05 KB.",
    ]
    at = next(i for i, row in enumerate(told) if row.startswith("rank  kernels"))
    assert told[at : at + 4] == [
        "rank  kernels  GPU us  comm us  exposed us  comm wait us",
        "0           2   100.0     60.0        60.0          40.0",
        "1           2   140.0     20.0        20.0           0.0  differs",
        "all         4   240.0     80.0        80.0          40.0",
    ]


def test_of_one_rank_it_is_told_what_is_exposed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = shown(capsys, of_two_ranks(tmp_path / "a") / "r0.json")
    assert told[0] == "2 kernels in 2 launches, 100.0us on the GPU, 60.0us communicating; complete."
    metrics = dict(
        row.split(maxsplit=1) for row in told[told.index("") + 1 :] if len(row.split()) > 1
    )
    named = ("comm_time", "exposed_comm_time", "comm_bytes")
    assert [metrics[one] for one in named] == ["60.0us", "60.0us", "2.05 KB"]


def test_where_ranks_do_not_match_it_is_said_why_nobody_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = " ".join(shown(capsys, of_two_ranks(tmp_path / "a", second="broadcast")))
    assert "It is unknown who waits for whom: rank 0 does allreduce where rank 1 does" in told
    assert "comm wait" not in told


def test_folders_are_compared_rank_by_rank(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = of_two_ranks(tmp_path / "old"), of_two_ranks(tmp_path / "new", 90.0)
    assert main(["diff", str(old), str(new)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [one for one in told if one.startswith("rank ")] == ["rank 0:", "rank 1:"]
    (new / "r0.json").unlink()
    assert main(["diff", str(old), str(new)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "rank 1:"
    assert told[-1] == "2 -> 1 processes: the 1 that both have are compared"
    (old / "r1.json").unlink()
    assert main(["diff", str(old), str(new)]) == 2
    assert "no rank is in both folders: rank 0 in one, rank 1 in" in capsys.readouterr().err
    (old / "notes.json").write_text("{}")
    assert main(["diff", str(old), str(new)]) == 2
    assert "notes.json cannot be read" in capsys.readouterr().err


def test_several_files_are_ranks_too_and_two_that_differ_are_none_the_odd_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = shown(capsys, TRACES / "mlp.json.gz", TRACES / "compiled.json.gz")
    assert told[0] == "2 traces, 9 kernels; complete."
    assert [row.split()[0] for row in told[-2:]] == ["compiled", "mlp"]


def test_the_processes_of_a_file_are_ranks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = shown(capsys, two_ranks(tmp_path, "memory", "stack"))
    assert told[0] == "2 ranks, 10 kernels; complete."
    assert main(["diff", str(tmp_path / "ranks.json"), str(TRACES / "mlp.json.gz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "process 1:"
    assert lines[-1] == "2 -> 1 processes: the 1 that both have are compared"
    (tmp_path / "more").mkdir()
    shutil.copy(tmp_path / "ranks.json", tmp_path / "more" / "rank7.json")
    assert [row.split()[0] for row in shown(capsys, tmp_path / "more")[-3:]] == [
        "7.0",
        "7.1",
        "all",
    ]


@pytest.mark.parametrize(
    ("names", "numbers"), [(("test_a", "test_b", "test_c-rank2"), 1), (("a_rank0", "b_rank0"), 1)]
)
def test_a_folder_of_traces_that_are_no_ranks_is_refused(
    names: tuple[str, ...], numbers: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in names:
        shutil.copy(TRACES / "mlp.json.gz", tmp_path / f"{name}.json.gz")
    for command in (["show", str(tmp_path)], ["diff", str(tmp_path), str(tmp_path)]):
        assert main(command) == 2
        told = capsys.readouterr()
        assert told.out == ""
        files = ", ".join(f"{name}.json.gz" for name in names)
        assert told.err == (
            f"kernelprof: {tmp_path}: {len(names)} traces with {numbers} rank numbers, not one of "
            "each rank. Name files: kernelprof show FILE, or kernelprof diff OLD NEW. "
            f"The first files: {files}\n"
        )


def test_a_folder_with_many_traces_names_the_first_ten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in range(12):
        shutil.copy(TRACES / "empty.json.gz", tmp_path / f"test_{number:02}.json.gz")
    assert main(["show", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("test_09.json.gz\n")


def test_files_of_one_number_are_told_apart_by_their_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = []
    for step, name in (("step1", "mlp"), ("step2", "backward")):
        files.append(tmp_path / f"{step}_rank0.json.gz")
        shutil.copy(TRACES / f"{name}.json.gz", files[-1])
    told = shown(capsys, *files)
    assert [row.split("_rank0")[0] for row in told[-2:]] == [
        f"0 ({tmp_path}/{step}" for step in ("step1", "step2")
    ]


def test_what_is_no_trace_in_a_folder_makes_it_incomplete(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = ranks(tmp_path, "mlp", "mlp")
    (folder / "notes.json").write_text("{}")
    told = shown(capsys, folder, status=1)
    assert told[0].startswith("INCOMPLETE: notes.json is not read: ")
    assert any(row.startswith("2 ranks, 10 kernels.") for row in told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["empty"], "the folder has no trace"),
        (["bad"], "none of its 1 files is a trace"),
        (["mlp", "missing.json"], "missing.json: cannot be read"),
        (["mlp", "mlp", "--json"], "--json takes one trace"),
        (["mlp", "mlp", "--operators"], "--operators takes one trace"),
        (["mlp", "--top=0"], "--top: got '0'"),
    ],
)
def test_bad_use_is_said_in_a_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.json").write_text("[")
    given = [str(TRACES / "mlp.json.gz") if one == "mlp" else one for one in arguments]
    assert main(["show", *given]) == 2
    assert words in capsys.readouterr().err


def test_a_name_that_does_things_to_a_terminal_is_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with gzip.open(TRACES / "mlp.json.gz", "rt") as file:
        text = file.read()
    hostile = r"aten::\u001b[2J\u202e\r\n" + "n" * 100_000
    (tmp_path / "rank0.json").write_text(text.replace("aten::gelu", hostile))
    (tmp_path / "rank1.json").write_text(text)
    (tmp_path / "rank2.json").write_text(text)
    for arguments in ([], ["--operators"], ["--sort=name"]):
        told = shown(capsys, tmp_path / "rank0.json", *arguments)
        assert all(row.isprintable() for row in told)
        assert len(told) < 40
    assert all(row.isprintable() for row in shown(capsys, tmp_path))


@pytest.mark.parametrize("width", ["20", "60", "97", "160", "400"])
def test_no_line_is_wider_than_the_terminal(
    width: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    most = max(60, min(160, int(width)))
    for arguments in (
        [TRACES / "backward.json.gz"],
        [TRACES / "syncs.json.gz"],
        [TRACES / "backward.json.gz", "--operators"],
        [of_layers(tmp_path, 60, sizes=9)],
    ):
        told = shown(capsys, *arguments)
        assert max(map(len, told)) <= most


def test_colours_are_for_terminals_that_want_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    assert "\x1b" not in "".join(shown(capsys, TRACES / "mlp.json.gz"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1m5 kernels" in shown(capsys, TRACES / "mlp.json.gz")[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "".join(shown(capsys, TRACES / "mlp.json.gz"))
