"""``kernelprof compare`` and ``merge``: run documents, offline, with an exit status for CI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import record
from msgspec.structs import replace
from records import kernel

from pytest_kernelprof.cli.main import main
from pytest_kernelprof.documents import read_run, read_whole_run
from pytest_kernelprof.schema import codec
from pytest_kernelprof.schema.document import Document
from pytest_kernelprof.schema.packing import pack, unpack
from pytest_kernelprof.schema.run import Profile, Run, Test, Timeline
from pytest_kernelprof.schema.runs import RunsComparison

MLP, COMPILED = record("mlp"), record("compiled")


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Of the compiled MLP, and of the plain one, which has a kernel more."""
    return [
        written(tmp_path / f"{name}.json", profile)
        for name, profile in (("old", COMPILED), ("new", MLP))
    ]


def written(path: Path, profile: Profile, test: str = "test_mlp.py::test_it") -> str:
    run = Run((Test(test, (profile,)),), "2026-11-22T08:50:00Z", {"pytest": "9.2.0"})
    path.write_bytes(codec.encode(pack(run)))
    return str(path)


def test_a_regression_is_exit_status_1_with_the_kernels_that_came(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs]) == 1
    lines = pytest.LineMatcher(capsys.readouterr().out.splitlines())
    lines.fnmatch_lines(
        [
            "1 of 1 profile is worse than old.json of 2026-11-22.",
            "  kernels *GPU us *change  test",
            "worse",
            "✗  4 -> 5  202.0 -> 231.3  +14.5 %  test_mlp.py::test_it",
            "    triton_poi_fused [[]gelu, mul] is now gelu + mul",
            "    peak_memory 101 MB -> 151 MB (+50.0 %)",
            "exit status 1: kernels rose in 1 profile, launches rose in 1 profile, *",
        ]
    )


def test_the_other_way_round_it_is_better_and_exit_status_0(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *reversed(runs)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The only profile is no worse than new.json of 2026-11-22; 1 better.\n")
    assert out.endswith("\nthis comparison fails nothing\n")
    assert "gelu + mul is now triton_poi_fused [gelu, mul]" in out


def test_without_a_difference_it_is_one_line(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", runs[0], runs[0]]) == 0
    assert capsys.readouterr().out == (
        "The only profile is no worse than old.json of 2026-11-22; 1 unchanged.\n\n"
        "this comparison fails nothing\n"
    )


def test_what_is_allowed_fails_nothing(runs: list[str]) -> None:
    assert main(["compare", *runs, "--fail-on=kernels:1", "--fail-on=launches:25%"]) == 0
    assert main(["compare", *runs, "--fail-on=kernels:0"]) == 1


def test_each_earlier_run_has_its_value(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = written(tmp_path / "older.json", replace(MLP))
    assert main(["compare", older, *runs]) == 1
    lines = pytest.LineMatcher(capsys.readouterr().out.splitlines())
    lines.fnmatch_lines(["✗ 5 4 -> 5  test_mlp.py::test_it"])


def test_as_markdown_names_stand_as_they_are(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [
        written(tmp_path / "a.json", COMPILED, "t.py::test_a[|<b>`*_]"),
        written(
            tmp_path / "b.json",
            replace(COMPILED, kernels=(*COMPILED.kernels, kernel("``` k"))),
            "t.py::test_a[|<b>`*_]",
        ),
    ]
    assert main(["compare", *odd, "--format=markdown"]) == 0
    out = capsys.readouterr().out
    assert r"t.py::test_a\[\|&lt;b>\`\*\_\]" in out
    assert "**The only profile is no worse than a.json of 2026-11-22; 1 changed (" in out
    assert "| changed (other kernels, same counts) | " in out
    assert "<summary>t.py::test_a[|&lt;b&gt;`*_]: kernels</summary>" in out
    assert "\n````diff\n" in out


def test_as_json_it_is_the_record(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "--format=json"]) == 1
    found = codec.decode(capsys.readouterr().out.encode(), RunsComparison)
    assert found.regressed
    assert found.compared == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "the file is empty; expected a run document, as pytest --kernelprof-json=PATH"),
        (b"{", "expected a run document"),
        (b'{"schema": 1}', "expected a run document"),
        (b'{"schema": 99}', "schema: version 99 was written by a newer pytest-kernelprof"),
        (b"[" * 100_000, "expected a run document"),
        (b'{"traceEvents": []}', "it looks like a Chrome trace, which kernelprof diff compares"),
        (b"<<<<<<< HEAD\n{}", "expected a run document"),
        (b'{"schema": 1e999}', "expected a run document"),
    ],
)
def test_what_is_no_run_document_is_one_line_and_exit_status_2(
    text: bytes, words: str, runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_bytes(text)
    assert main(["compare", runs[0], str(tmp_path / "bad.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kernelprof: {tmp_path / 'bad.json'}: ")
    assert words in line


def test_a_result_that_cannot_be_written_is_one_line(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "not there" / "all.json"
    assert main(["merge", *runs, "-o", str(target)]) == 2
    said = f"kernelprof: {target}: it cannot be written (No such file or directory)\n"
    assert capsys.readouterr().err == said


def test_nothing_to_compare_is_no_pass(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path / "other.json", MLP, "test_other.py::test_it")
    assert main(["compare", runs[0], other]) == 1
    out = capsys.readouterr().out
    assert out.startswith("No profile could be compared with old.json of 2026-11-22.\n")
    assert out.endswith("\nexit status 1: nothing was compared\n")
    assert main(["compare", *runs, "--fail-on=latency:5%"]) == 1
    assert capsys.readouterr().out.endswith("\nexit status 1: no profile has latency\n")


def test_one_run_alone_and_odd_margins_are_bad_use(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", runs[0]]) == 2
    assert "give an earlier one before it" in capsys.readouterr().err
    assert main(["compare", *runs, "--fail-on=kernels"]) == 2
    assert "write kernels:0" in capsys.readouterr().err


def test_merging_writes_one_document_and_names_what_stood_twice(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third = written(tmp_path / "third.json", MLP, "test_other.py::test_it")
    target = tmp_path / "all.json"
    assert main(["merge", *runs, third, "-o", str(target)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{target}: tests 2 of 3 runs\n"
    assert said.err == "test_mlp.py::test_it: in several, kept of the last\n"
    merged = unpack(codec.decode(target.read_bytes(), Document))
    assert [one.profiles[0].kernel_count for one in merged.tests] == [5, 5]


def test_an_unreadable_part_leaves_an_earlier_result_alone(runs: list[str], tmp_path: Path) -> None:
    target = tmp_path / "all.json"
    target.write_text("earlier")
    (tmp_path / "bad.json").write_text("{")
    assert main(["merge", *runs, str(tmp_path / "bad.json"), "-o", str(target)]) == 2
    assert target.read_text() == "earlier"


def test_torch_is_not_loaded(runs: list[str]) -> None:
    code = (
        "import sys; from pytest_kernelprof.cli.main import main; "
        f"main(['compare', *{runs!r}, '--format=json']); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["compared"] == 1


def test_what_is_compared_needs_no_timeline_and_what_is_merged_keeps_it(tmp_path: Path) -> None:
    timeline = Timeline(("kernel",), ("gelu",), ("device 0 stream 7",), (0.0,), (1.0,), (3,))
    path = written(tmp_path / "a.json", replace(MLP, timeline=timeline))
    (lean,) = read_run(path).tests[0].profiles
    assert lean == MLP
    assert main(["merge", path, "-o", str(tmp_path / "all.json")]) == 0
    (whole,) = read_whole_run(str(tmp_path / "all.json")).tests[0].profiles
    assert whole.timeline == timeline
