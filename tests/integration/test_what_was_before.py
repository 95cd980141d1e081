"""A run's document says how it compares with what was before: a revision, snapshots, a run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from jsonschema import Draft202012Validator
from msgspec.json import decode

from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import Source
from pytest_kernelprof.records.document import Document, Run, unpack
from pytest_kernelprof.summary.comparisons import comparisons_of

SOURCES: tuple[Source, ...] = ("revision", "snapshot", "run")
SCHEMA = Path(__file__).parents[2] / "docs" / "run.schema.json"
OLD = "import torch\ndef grows(x): return x @ x\ndef stays(x): return x + 1\n"
NEW = OLD.replace("x @ x", "torch.nn.functional.gelu(x @ x)")
TESTS = """
import pytest, torch, mlp
x = torch.ones(8, 8)
def test_grows(kernel_profile): kernel_profile(mlp.grows, x)
def test_stays(kernel_profile): kernel_profile(mlp.stays, x)
"""
INI = "[pytest]\npythonpath = .\n"


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """Yesterday's folder with a document and snapshots, today's beside it, in which we are."""
    old = pytester.mkdir("yesterday")
    (old / "tests").mkdir()
    for name, text in {"mlp.py": OLD, "tests/test_it.py": TESTS, "pytest.ini": INI}.items():
        (old / name).write_text(text)
    pytester.chdir()
    run(pytester, old, "--kernelprof-update", "--kernelprof-json=old.json")
    new = pytester.path / "today"
    shutil.copytree(old, new)
    (new / "mlp.py").write_text(NEW)
    return new


def run(pytester: pytest.Pytester, folder: Path, *options: str) -> pytest.RunResult:
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        usual = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--kernelprof-device=cpu")
        return pytester.runpytest_inprocess(*usual, *options)


def document(folder: Path) -> Run:
    data = (folder / "run.json").read_bytes()
    Draft202012Validator(decode(SCHEMA.read_bytes())).validate(decode(data))
    return unpack(codec.decode(data, Document))


@pytest.mark.usefixtures("quick_references")
def test_it_holds_what_each_comparison_found(
    pytester: pytest.Pytester, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as here:
        here.setenv("TMPDIR", str(tmp_path_factory.mktemp("place")))
        options = ("--kernelprof-against=old.json", "--kernelprof-against=../yesterday")
        # Of a test that fails by something else nothing is compared with the other code.
        run(pytester, project, *options, "--kernelprof-warn-only", "--kernelprof-json=run.json")
    found = document(project)
    assert [one.source for one in found.baselines] == ["revision", "snapshot", "run"]
    assert [one.gone for one in found.baselines] == [(), (), ()]
    assert found.baselines[2].name == "old.json"
    for source in SOURCES:
        grows, stays = comparisons_of(found, source)
        assert grows.test == "tests/test_it.py::test_grows"
        assert (grows.change, stays.worse) == ("worse", ())  # its latency may scatter
        assert grows.kernels is not None
        assert [
            (one.kind, one.current and one.current.source) for one in grows.kernels.added_or_removed
        ] == [("added", "mlp.py:2")]
    states = {test.id: test.snapshot and test.snapshot.state for test in found.tests}
    assert states == {
        "tests/test_it.py::test_grows": "worse",
        "tests/test_it.py::test_stays": "same",
    }
    (grows_now,) = found.tests[0].profiles
    told = [(one.limit, one.outcome, one.comparison) for one in grows_now.verdicts]
    assert {(limit, outcome) for limit, outcome, _ in told} == {
        *(("snapshot", "failed"), ("against", "failed"), ("earlier run", "failed")),
    }
    assert {one.metrics[0].name for _, _, one in told if one is not None} == {"kernels"}


@pytest.mark.usefixtures("quick_references")
def test_of_two_equal_operators_the_new_one_is_named_or_both_lines(
    pytester: pytest.Pytester, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = "import torch\ndef grows(x):\n    s = x @ x\n    s = s * x\n    return s.softmax(-1)\n"
    added = "    s = s * 0.5\n"
    (project.parent / "yesterday" / "mlp.py").write_text(old + "def stays(x): return x + 1\n")
    (project / "mlp.py").write_text(
        old.replace("    s = s * x", f"{added}    s = s * x") + "def stays(x): return x + 1\n"
    )
    yesterday = project.parent / "yesterday"
    run(pytester, yesterday, "--kernelprof-update", "--kernelprof-json=old.json")
    for kept in ("old.json", "tests/__kernelprof__/cpu/test_it.json"):
        shutil.copy(yesterday / kept, project / kept)
    with pytest.MonkeyPatch.context() as here:
        here.setenv("TMPDIR", str(tmp_path_factory.mktemp("place")))
        options = ("--kernelprof-against=../yesterday", "--kernelprof-against=old.json")
        run(pytester, project, *options, "--kernelprof-warn-only", "--kernelprof-json=run.json")
    found = document(project)
    lines = {}
    for source in SOURCES:
        diff = next(comparisons_of(found, source)).kernels
        assert diff is not None
        (change,) = diff.added_or_removed
        assert change.current is not None
        assert change.current.source == "mlp.py:4"
        lines[source] = change.lines
    # The revision has the old texts, which tell.
    assert lines == {"revision": (), "snapshot": ("4", "5"), "run": ("4", "5")}

    result = run(pytester, project, "--kernelprof-report", "--kernelprof-markdown=summary.md")
    result.stdout.fnmatch_lines(
        [
            "E   snapshot: operators 3 -> 4",
            "  at mlp.py:4 or 5",
            "    4 | s = s [*] 0.5",
            "      |     ^^^^^^^ added operator: aten::mul",
            "    5 | s = s [*] x",
            "      |     ^^^^^ or here",
            "  against the snapshot: ? perhaps new",
            "[?] 2  * aten::mul       mlp.py:4",
            "[?] 3  * aten::mul       mlp.py:5",
            "✗ mlp.py:4 or 5: added operator: aten::mul (test_grows)",
        ]
    )
    summary = (project / "summary.md").read_text()
    assert (
        "\n| ❌ | **added operator: aten::mul** in `test_grows`<br>`mlp.py:4`<br>or `mlp.py:5`<br>"
        "snapshot: operators 3 → 4 | "
    ) in summary


def test_after_ctrl_c_it_has_what_there_was(pytester: pytest.Pytester, project: Path) -> None:
    ends = (
        TESTS + "def test_ends(): raise KeyboardInterrupt\ndef test_never(kernel_profile): pass\n"
    )
    (project / "tests" / "test_it.py").write_text(ends)
    with pytest.raises(KeyboardInterrupt):
        run(pytester, project, "--kernelprof-against=old.json", "--kernelprof-json=run.json")
    found = document(project)
    assert found.unfinished == ("interrupted",)
    states = [test.snapshot and test.snapshot.state for test in found.tests]
    assert states[:2] == ["worse", "same"]
    assert found.baseline("run") is not None
    assert len([*comparisons_of(found, "run")]) == 2


def test_where_nothing_was_before_nothing_is_said(pytester: pytest.Pytester, project: Path) -> None:
    shutil.rmtree(project / "tests" / "__kernelprof__")
    run(pytester, project, "--kernelprof-json=run.json")
    found = document(project)
    assert found.baselines == ()
    assert [test.snapshot for test in found.tests] == [None, None]


def test_a_folder_that_was_copied_with_its_bytecode_is_told_by_its_own_paths(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before pytest 9.2 code of a copied folder has the paths of the folder that it was copied from.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code = """
import pytest, torch
@pytest.mark.max_kernels(1)
def test_it(kernel_profile):
    kernel_profile(lambda: torch.ones(8).exp() + 1)
"""
    old, new = pytester.mkdir("yesterday"), pytester.path / "today"
    (old / "test_copied.py").write_text(code)
    (old / "pytest.ini").write_text("[pytest]\n")
    run(pytester, old)
    shutil.copytree(old, new)
    assert list(new.glob("__pycache__/*.pyc"))
    run(pytester, new, "--kernelprof-json=run.json", "--kernelprof-warn-only")
    (test,) = document(new).tests
    (profile,) = test.profiles
    assert [place and place.file for place in (test.place, profile.place)] == ["test_copied.py"] * 2
    assert {kernel.source for kernel in profile.kernels} == {"test_copied.py:5"}
