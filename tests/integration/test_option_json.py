"""The option --kernelprof-json: all that a run took, as one file, however the run ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from records import CPU, calls_of

from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Document, Run, Test, pack, unpack
from pytest_kernelprof.records.profile import Place
from pytest_kernelprof.summary.comparisons import comparisons_of

RunIt = Callable[..., pytest.RunResult]
JSON = "--kernelprof-json=run.json"


def document(folder: Path) -> Run:
    return unpack(codec.decode((folder / "run.json").read_bytes(), Document))


def by_name(found: Run) -> dict[str, Test]:
    return {test.id.partition("::")[2]: test for test in found.tests}


@pytest.mark.project(
    """
@pytest.mark.max_kernels(3)
def test_kept(kernel_profile):
    kernel_profile(three)
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile):
    kernel_profile(three)
@pytest.mark.xfail(strict=True)
@pytest.mark.max_kernels(1)
def test_expected(kernel_profile):
    kernel_profile(three)
def test_fails_by_itself(kernel_profile):
    kernel_profile(three)
    assert False
@pytest.mark.max_kernels(1)
def test_raises(kernel_profile):
    with pytest.raises(ZeroDivisionError):
        kernel_profile(lambda: 1 / 0)
def test_compared(kernel_profile):
    kernel_profile.compare(three, three, metric="latency")
def test_plain():
    three()
""",
    JSON,
    "--kernelprof-trace-dir=traces",
)
@pytest.mark.usefixtures("result")
def test_it_has_tests_profiles_kernels_verdicts_and_comparisons(pytester: pytest.Pytester) -> None:
    run = document(pytester.path)
    found = by_name(run)
    assert {name: test.outcome for name, test in found.items()} == {
        "test_kept": "passed",
        "test_broken": "failed",
        "test_expected": "xfailed",
        "test_fails_by_itself": "failed",
        "test_raises": "error",
        "test_compared": "passed",
    }
    assert found["test_broken"].place == Place("test_it.py", 10)
    (profile,) = found["test_broken"].profiles
    (verdict,) = profile.verdicts
    assert (verdict.outcome, verdict.measured, verdict.allowed) == ("failed", 3, 1)
    assert verdict.place == profile.place == Place("test_it.py", 12)
    names = [kernel.name for kernel in profile.kernels]
    assert names == ["aten::mm", "aten::gelu", "aten::add"]
    assert {kernel.source for kernel in profile.kernels} == {"test_it.py:5"}
    assert profile.metrics["kernels"].rounds == (3.0,) * 12
    assert len(profile.metrics["latency"].rounds) >= 12
    assert profile.timeline is not None
    assert {"aten::mm", "aten::gelu", "aten::add"} <= set(profile.timeline.name)
    assert profile.trace.endswith("traces/test_it.py-test_broken-1.json.gz")
    assert found["test_expected"].profiles[0].outcome == "expected failure"
    (comparison,) = found["test_compared"].comparisons
    assert [one.kernels for one in comparison.callables] == [3, 3]
    assert (run.versions["pytest"], run.unfinished) == (pytest.__version__, ())
    assert run.project == pytester.path.name


ONE = "def test_it(kernel_profile): kernel_profile(three)\n"


def test_the_last_lines_say_where_it_is(run: RunIt, pytester: pytest.Pytester) -> None:
    result = run(ONE, "--kernelprof-json=not/there/run.json")
    result.stdout.fnmatch_lines(["kernelprof: *run.json: tests 1, profiles 1"])
    assert (pytester.path / "not" / "there" / "run.json").exists()


def test_it_lies_where_pytest_was_started(run: RunIt, pytester: pytest.Pytester) -> None:
    run("import os\ndef test_it(kernel_profile, tmp_path):\n    os.chdir(tmp_path)\n", JSON)
    assert [one.outcome for one in document(pytester.path).tests] == ["error"]


def test_where_nothing_was_taken_it_is_written_too(run: RunIt, pytester: pytest.Pytester) -> None:
    (pytester.path / "run.json").write_text("of an earlier run")
    run(ONE, JSON, "--kernelprof-disable")
    found = document(pytester.path)
    assert [(one.outcome, one.profiles) for one in found.tests] == [("passed", ())]
    assert found.unfinished == ("--kernelprof-disable: nothing was measured",)


@pytest.mark.parametrize(
    ("ends", "options", "why"),
    [
        ("pytest.exit('enough')", (), "interrupted: enough"),
        ("assert False", ("--maxfail=1",), "stopping after 1 failures"),
    ],
)
def test_a_run_that_was_ended_says_so_and_keeps_what_it_had(
    run: RunIt, pytester: pytest.Pytester, ends: str, options: tuple[str, ...], why: str
) -> None:
    result = run(f"{ONE}def test_ends(): {ends}\ndef test_never(): pass\n", JSON, *options)
    assert result.ret != pytest.ExitCode.OK
    found = document(pytester.path)
    assert list(by_name(found)) == ["test_it"]
    assert found.unfinished == (why,)
    result.stdout.fnmatch_lines([f"kernelprof: the run is not complete: {why}"])


def test_after_ctrl_c_there_is_what_it_had(run: RunIt, pytester: pytest.Pytester) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(f"{ONE}def test_ends(): raise KeyboardInterrupt\n", JSON)
    found = document(pytester.path)
    assert (list(by_name(found)), found.unfinished) == (["test_it"], ("interrupted",))


def test_a_dead_worker_is_named_and_the_others_tests_are_kept(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    old = Run((Test("test_it.py::test_it", (calls_of(2, environment=CPU),)),))
    (pytester.path / "old.json").write_bytes(codec.encode(pack(old)))
    code = f"{ONE}def test_dies():\n    import os\n    os._exit(3)\n"
    told = ("--kernelprof-against=old.json", "--kernelprof-markdown=run.md")
    run(code, JSON, "-n2", "--max-worker-restart=0", *told)
    found = document(pytester.path)
    assert len([*comparisons_of(found, "run")]) == 1
    assert "test_it" in by_name(found)
    assert any(one.startswith("worker gw") for one in found.unfinished)
    assert (
        "**Unfinished:** tests may be missing: worker gw" in (pytester.path / "run.md").read_text()
    )


def test_a_folder_in_its_place_is_a_usage_error(run: RunIt, pytester: pytest.Pytester) -> None:
    (pytester.path / "run.json").mkdir()
    result = run(ONE, JSON)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --kernelprof-json: 'run.json' cannot be written (it is a folder)"]
    )


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that takes no files")
def test_where_nothing_can_be_written_it_is_a_usage_error(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    result = run(ONE, "--kernelprof-json=/proc/run.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kernelprof-json: '/proc/run.json' cannot be written *"])


def test_a_file_that_cannot_be_written_at_the_end_fails_the_run(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    code = "import shutil, os\ndef test_it(): shutil.rmtree('out')\n"
    result = run(code, "--kernelprof-json=out/run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*--kernelprof-json: *out/run.json cannot be written (No such *"])


def test_what_its_call_and_its_teardown_took_is_one_test(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(
        """
@pytest.fixture
def late(kernel_profile):
    yield
    kernel_profile(three)
def test_it(kernel_profile, late): kernel_profile(lambda: x + 1)
""",
        JSON,
    )
    (test,) = document(pytester.path).tests
    assert [profile.kernel_count for profile in test.profiles] == [1, 3]


def test_an_earlier_document_stays_where_tests_are_only_collected(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    (pytester.path / "run.json").write_text("of an earlier run")
    run(ONE, JSON, "--collect-only")
    assert (pytester.path / "run.json").read_text() == "of an earlier run"


def test_files_that_could_not_be_collected_are_named(run: RunIt, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="import not_there")
    run(ONE, JSON, "--continue-on-collection-errors")
    found = document(pytester.path)
    assert list(by_name(found)) == ["test_it"]
    assert found.unfinished == ("test_other.py could not be collected",)


def test_what_other_plugins_do_as_the_run_ends_loses_nothing(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("def pytest_sessionfinish(): raise ValueError('of another plugin')\n")
    assert run(ONE, JSON).ret == pytest.ExitCode.INTERNAL_ERROR
    assert list(by_name(document(pytester.path))) == ["test_it"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a FIFO")
def test_what_is_no_regular_file_is_not_replaced(run: RunIt, pytester: pytest.Pytester) -> None:
    os.mkfifo(pytester.path / "run.json")
    result = run(ONE, JSON)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'run.json' cannot be written (it is not a regular file)"])


def test_of_a_link_what_it_names_is_written(run: RunIt, pytester: pytest.Pytester) -> None:
    (pytester.path / "run.json").symlink_to("kept.json")
    run(ONE, JSON)
    assert (pytester.path / "run.json").is_symlink()
    assert list(by_name(document(pytester.path))) == ["test_it"]
