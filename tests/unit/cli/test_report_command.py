"""``kernelprof report``: documents told again, as text and as files, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gfm_pages import rendered
from records import comparison, mlp, timed
from rounds import profile_of

from pytest_kernelprof.baselines.run_documents import read_run
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Document, Run, Test, pack, unpack
from pytest_kernelprof.records.profile import Place, Verdict
from pytest_kernelprof.report.html.page import html_of
from pytest_kernelprof.report.markdown import markdown_of
from pytest_kernelprof.units import format_bytes

OVER = Verdict(
    limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=5, allowed=4
)
BROKEN = Test(
    "t.py::test_broken",
    (mlp(timed("cuda_time", [100]), verdicts=(OVER,), place=Place("t.py", 7)),),
    outcome="failed",
)
WELL = Test("t.py::test_well", (mlp(timed("cuda_time", [50])),), comparisons=(comparison(),))
Out = pytest.CaptureFixture[str]


def written(path: Path, *tests: Test, unfinished: tuple[str, ...] = ()) -> str:
    run = Run(tests, "2026-11-22T08:50:00Z", {"pytest": "9.2.0"}, unfinished)
    path.write_bytes(codec.encode(pack(run)))
    return str(path)


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path / "run.json", BROKEN, WELL)


def test_without_an_option_it_is_the_report_at_the_end(document: str, capsys: Out) -> None:
    assert main(["report", document]) == 0
    told = capsys.readouterr().out
    assert told.startswith("1 of 1 test breaks a limit.")
    assert "5 > limit 4" in told
    assert "test_broken" in told
    assert "1.203" in told  # the comparison's


def test_several_are_told_as_one_and_what_was_ended_says_so(
    document: str, tmp_path: Path, capsys: Out
) -> None:
    other = written(tmp_path / "b.json", WELL, Test("t.py::c", (mlp(),)), unfinished=("Ctrl-C",))
    assert main(["report", document, other, "-v"]) == 0
    out, err = capsys.readouterr()
    assert "3 profiles" in out
    assert "tests may be missing: /" in " ".join(out.split())
    assert err == "t.py::test_well: in several documents; the last one counts\n"


def test_files_are_those_that_a_run_writes(document: str, capsys: Out) -> None:
    options = ["--markdown", "new/run.md", "--benchmark-json=bench.json"]
    assert main(["report", document, *options]) == 0
    run = unpack(codec.decode(Path(document).read_bytes(), Document))
    told = Path("new/run.md").read_text()
    assert told == markdown_of(run)
    assert len(rendered(told).items()) == 1
    assert len(json.loads(Path("bench.json").read_text())["benchmarks"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"new/run.md: {format_bytes(len(told.encode()))}",
        "bench.json: benchmarks 2",
    ]


def test_github_is_told_in_its_summary_and_at_lines(
    document: str, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    assert main(["report", document, "--github"]) == 0
    assert (tmp_path / "summary").read_text().startswith("### ❌ kernelprof: 1 of 1 test")
    (command,) = capsys.readouterr().out.splitlines()
    assert command.startswith(
        f"::error file={tmp_path.name}/t.py,line=7,"
        "title=kernelprof%3A max_kernels%3A 5 > limit 4 (test_broken)::"
    )
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert main(["report", document, "--github"]) == 0
    assert "GITHUB_STEP_SUMMARY is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"schema": 99, "tests": []}', "schema: version 99 was written by a newer"),
        (b'{"schema": "x"}', "expected a version number"),
        (b"not json", "expected a run document"),
        (b'{"traceEvents": []}', "it looks like a Chrome trace"),
    ],
)
def test_another_schema_is_refused_in_a_line(
    document: str, text: bytes, words: str, capsys: Out
) -> None:
    Path("bad.json").write_bytes(text)
    assert main(["report", document, "bad.json", "--markdown=run.md"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kernelprof: bad.json: ")
    assert words in line
    assert not Path("run.md").exists()


def test_what_cannot_be_written_is_told_before_anything_is_read(
    tmp_path: Path, capsys: Out
) -> None:
    for path, why in (
        (str(tmp_path), "it is a folder"),
        (f"{tmp_path}/new/", "it names a folder"),
        ("absent.json", "it is an input"),
    ):
        assert main(["report", "absent.json", f"--markdown={path}"]) == 2
        said = f"kernelprof: --markdown: {path!r} cannot be written ({why})\n"
        assert capsys.readouterr().err == said
    both = ["--markdown=one", "--benchmark-json=./one"]
    assert main(["report", "absent.json", *both]) == 2
    assert "--markdown writes it, too" in capsys.readouterr().err


def test_one_that_fails_keeps_no_other_from_it(
    document: str, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = codec.write_atomically

    def fails(path: str, data: bytes) -> None:
        if path.endswith(".md"):
            raise OSError(28, "No space left on device")
        whole(path, data)

    monkeypatch.setattr(codec, "write_atomically", fails)
    assert main(["report", document, "--markdown=run.md", "--benchmark-json=bench.json"]) == 2
    assert "run.md: cannot be written (No space left on device)" in capsys.readouterr().err
    assert Path("bench.json").exists()


def test_it_needs_no_torch(document: str) -> None:
    code = (
        "import sys; from pytest_kernelprof.cli.main import main; "
        f"status = main(['report', {document!r}]) or main(['report', {document!r}, "
        "'--markdown=run.md', '--benchmark-json=bench.json', '--github']); "
        "sys.exit(9 if {'torch', 'pytest'} & set(sys.modules) else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_as_a_page_it_has_the_timelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = written(tmp_path / "run.json", Test("t.py::test_it", (profile_of(4),)))
    assert main(["report", document, "--html=run.html"]) == 0
    found = Path("run.html").read_text(encoding="utf-8")
    assert "stream 7" in found
    assert html_of(read_run(document, timelines=True)) == found


@pytest.mark.parametrize("flag", ["--html", "--markdown", "--benchmark-json"])
def test_an_empty_path_is_refused_as_of_a_variable_that_is_not_set(
    document: str, capsys: Out, flag: str
) -> None:
    assert main(["report", document, flag, ""]) == 2
    assert f"{flag}: '' cannot be written (it is empty)" in capsys.readouterr().err
