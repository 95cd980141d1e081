"""``kernelprof compare``: run documents, offline, with an exit status for CI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import record
from msgspec.structs import replace
from records import kernel

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import RunComparison
from pytest_kernelprof.records.document import Run, Test, pack
from pytest_kernelprof.records.profile import Profile, Timeline

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
            "1 of 1 profile is worse than old.json (2026-11-22).",
            "✗ test_mlp.py: worse than the earlier run: kernels 4 -> 5, "
            "peak_memory 101 MB -> 151 MB (test_it)",
            "  triton_poi_fused [[]gelu, mul] is now gelu + mul",
            "  to do: undo the change",
            "  rerun against */old.json:",
            "    pytest test_mlp.py::test_it *",
            "      --kernelprof-against=*/old.json",
            "  if intended, run with --kernelprof-warn-only (all tests only warn) until",
            "  */old.json has this change",
            "exit status 1: kernels rose in 1 profile, launches rose in 1 profile, *",
        ]
    )


def test_the_other_way_round_it_is_better_and_exit_status_0(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *reversed(runs)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("None of 1 profile is worse than ")
    pytest.LineMatcher(out.splitlines()).fnmatch_lines(
        [
            "  kernels *launches *GPU us *change  test",
            "better",
            "test_mlp.py",
            "✓  5 -> 4 *5 -> 4 *231.3 -> 202.0  -12.7 %  test_it",
            "    gelu + mul is now triton_poi_fused [[]gelu, mul]",
            "    peak_memory 151 MB -> 101 MB (-33.3 %)",
        ]
    )


def test_without_a_difference_there_is_no_table(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", runs[0], runs[0]]) == 0
    out = capsys.readouterr().out
    assert out.startswith("None of 1 profile is worse than ")
    assert "GPU us" not in out


def test_what_is_allowed_fails_nothing(runs: list[str]) -> None:
    assert main(["compare", *runs, "--fail-on=kernels:1", "--fail-on=launches:25%"]) == 0
    assert main(["compare", *runs, "--fail-on=kernels:0"]) == 1


def test_each_earlier_run_has_its_value(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, (old, new) = written(tmp_path / "older.json", COMPILED), runs
    assert main(["compare", older, new, old]) == 0
    lines = pytest.LineMatcher(capsys.readouterr().out.splitlines())
    lines.fnmatch_lines(["✓ 4 5 -> 4 *test_it"])
    assert main(["compare", older, *runs]) == 1
    lines = pytest.LineMatcher(capsys.readouterr().out.splitlines())
    lines.fnmatch_lines(
        ["✗ *: kernels 4 -> 5, *(test_it)", "note *also compared with*", "*older.json"]
    )
    for given, others in (([*runs], ()), ([older, *runs], (older,))):
        main(["compare", "--format=json", *given])
        notes = codec.decode(capsys.readouterr().out.encode(), RunComparison).notes
        assert [one.rpartition(" ")[2] for one in notes] == list(others)


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
    name = "t&#46;py&#58;&#58;test&#95;a&#91;&#124;&#60;b&#62;&#96;&#42;&#95;&#93;"
    assert "### ✅ kernelprof: None of 1 profile is worse than " in out
    assert f"<code>{name}</code>: changed (other kernels, same counts): kernels 4 -> 5; " in out


def test_as_json_it_is_the_record(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "--format=json"]) == 1
    found = codec.decode(capsys.readouterr().out.encode(), RunComparison)
    assert [(one.change, [delta.name for delta in one.worse]) for one in found.profiles] == [
        ("worse", ["kernels", "launches", "peak_memory"])
    ]


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


def test_nothing_to_compare_is_no_pass(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path / "other.json", MLP, "test_other.py::test_it")
    assert main(["compare", runs[0], other]) == 1
    out = capsys.readouterr().out
    assert out.startswith("No profile could be compared with ")
    assert out.endswith("\nexit status 1: nothing could be compared\n")
    assert main(["compare", *runs, "--fail-on=latency:5%"]) == 1
    assert capsys.readouterr().out.endswith("\nexit status 1: no profile has latency\n")


def test_one_run_alone_and_odd_margins_are_bad_use(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", runs[0]]) == 2
    assert "give an earlier one before it" in capsys.readouterr().err
    assert main(["compare", *runs, "--fail-on=kernels"]) == 2
    assert "write kernels:0" in capsys.readouterr().err


def test_torch_is_not_loaded(runs: list[str]) -> None:
    code = (
        "import sys; from pytest_kernelprof.cli.main import main; "
        f"main(['compare', *{runs!r}, '--format=json']); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["profiles"]) == 1


def test_what_is_compared_needs_no_timeline(tmp_path: Path) -> None:
    timeline = Timeline(("kernel",), ("gelu",), ("device 0 stream 7",), (0.0,), (1.0,), (3,))
    path = written(tmp_path / "a.json", replace(MLP, timeline=timeline))
    (lean,) = read_run(path).tests[0].profiles
    (whole,) = read_run(path, timelines=True).tests[0].profiles
    assert (lean, whole.timeline) == (MLP, timeline)


def test_of_jobs_that_share_the_tests_each_finds_its_tests_in_any_earlier_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/ci.md has it."""
    one, other = (written(tmp_path / f"last-{id}.json", COMPILED, f"t.py::{id}") for id in "ab")
    now = written(tmp_path / "run-a.json", MLP, "t.py::a")
    assert main(["compare", one, other, now]) == 1
    assert capsys.readouterr().out.startswith("1 of 1 profile is worse than last-b.json")
