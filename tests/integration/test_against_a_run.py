"""The option --kernelprof-against with a run document: a run is judged by it while it runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from repositories import Repository

from pytest_kernelprof.baselines.supervisor import make_folder
from pytest_kernelprof.plugin import run_baseline
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Document, Run, Test, pack, unpack
from pytest_kernelprof.records.profile import Metric, Profile
from pytest_kernelprof.records.recording import Integrity

RunIt = Callable[..., pytest.RunResult]
Once = Callable[[str, Callable[[Path], None]], Path]
AGAINST = "--kernelprof-against=old.json"
TWICE = "--kernelprof-against: got two {}, *; give one, and with it at most one {}"
OLD = """
def test_a(kernel_profile): kernel_profile(three)
def test_b(kernel_profile):
    kernel_profile(three)
    with kernel_profile.region("r"): three()
def test_gone(kernel_profile): kernel_profile(three)
"""
NEW = """
def test_a(kernel_profile): kernel_profile(lambda: three() * 2)
def test_b(kernel_profile):
    kernel_profile(lambda: x @ x)
    with kernel_profile.region("r"): three() - 1
def test_new(kernel_profile): kernel_profile(three)
"""


@pytest.fixture
def old(once: Once, run: RunIt, pytester: pytest.Pytester) -> Run:
    """The run of ``OLD``, whose document lies at old.json."""

    def take(folder: Path) -> None:
        result = run(OLD, f"--kernelprof-json={folder / 'old.json'}")
        assert result.ret == 0

    path = once("compare-old", take) / "old.json"
    (pytester.path / "old.json").write_bytes(path.read_bytes())
    return unpack(codec.decode(path.read_bytes(), Document))


def write(pytester: pytest.Pytester, found: Run) -> None:
    (pytester.path / "old.json").write_bytes(codec.encode(pack(found)))


def scaled(found: Run, times: float) -> Run:
    """The run, where every latency was so many times as large."""

    def metric(one: Metric) -> Metric:
        value = (one.value or 0.0) * times
        # Rounds that drift, as on a busy machine, have no interval.
        low, high = (value if at is None else at * times for at in (one.low, one.high))
        return replace(one, low=low, value=value, high=high)

    def profile(one: Profile) -> Profile:
        if one.one_shot:
            return one
        latency = {"latency": metric(one.metrics["latency"])}
        return replace(one, metrics={**one.metrics, **latency})

    return replace(
        found, tests=tuple(Test(t.id, tuple(map(profile, t.profiles))) for t in found.tests)
    )


@pytest.mark.usefixtures("old")
def test_what_takes_more_fails_with_its_kernels_and_the_section_tells_all(
    run: RunIt, workers: str
) -> None:
    result = run(NEW, AGAINST, workers)
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "E   worse than the earlier run: operators 3 -> 4",
            "  at test_it.py:7",
            "    7 | def test_a(kernel_profile): *",
            "  against old.json*: + new",
            "+ 4 * aten::mul * test_it.py:7",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "*= kernel profiles against old.json (*) =*",
            "2 of 3 profiles are worse than old.json (*).",
            "✗ test_it.py:7: added operator: aten::mul (test_a)",
            "  to do: remove the added operator, or fuse it (torch.compile)",
            "✗ test_it.py:10: added operator: aten::sub (test_b [[]r])",
            "  to do: remove the added operator, or fuse it (torch.compile)",
            "✓ better: operators 3 -> 1; *",
            "*times not compared for 1 profile: it ran only once",
            "*only in the earlier run: test_it.py::test_gone",
            "*only in this run: test_it.py::test_new",
            "the run fails: kernels rose in 2 profiles",
        ]
    )
    (better,) = re.findall(r"✓ better: .*? \(test_b\)", " ".join(str(result.stdout).split()))
    assert "; operator gone: aten::gelu; operator gone: aten::add" in better


@pytest.mark.usefixtures("old")
def test_one_test_alone_is_compared_and_warned_of_where_that_is_asked(run: RunIt) -> None:
    result = run(NEW, AGAINST, "-k", "test_a", "--kernelprof-warn-only")
    result.assert_outcomes(passed=1, deselected=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*KernelprofWarning: worse than the earlier run: operators 3 -> 4",
            "*  at test_it.py:7",
            "*    7 | def test_a(kernel_profile): *",
            "*only in the earlier run: test_it.py::test_b, *",
            "only a warning: kernels rose in 1 profile",
        ]
    )
    assert result.ret == 0


def test_a_time_that_was_far_less_fails_after_a_second_look_and_an_improvement_never(
    run: RunIt, pytester: pytest.Pytester, old: Run
) -> None:
    code, options = OLD[: OLD.index("def test_b")], ("-o", "kernelprof_fail_on=latency:5%")
    write(pytester, scaled(old, 0.001))
    result = run(code, AGAINST, *options, "--kernelprof-json=new.json")
    result.stdout.fnmatch_lines(
        ["E   worse than the earlier run: latency * -> *", "  latency * -> * (+*, 99 % CI *)"]
    )
    result.assert_outcomes(failed=1)
    new = unpack(codec.decode((pytester.path / "new.json").read_bytes(), Document))
    assert "latency" in new.tests[0].profiles[0].second_look
    write(pytester, scaled(old, 1e6))  # far more than a busy machine holds rounds up
    result = run(code, AGAINST, *options)
    result.assert_outcomes(passed=1)
    # On a busy machine an operator may take longer than before, which is told and fails nothing.
    result.stdout.re_match_lines(
        [
            r".*change .*latency .* test$",
            r"better$|worse \(not checked\)$",
            r".*-100\.0 % .*test_a$",
        ]
    )


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("there.json", None, "*there.json: cannot be read: No such file or directory"),
        ("cut.json", '{"schema": 1, "began": "2026', "*cut.json: *truncated; expected a run doc*"),
        ("newer.json", '{"schema": 99}', "*version 99 *upgrade it*"),
        ("trace.json", '{"traceEvents": []}', "*it looks like a Chrome trace*"),
        ("empty.json", codec.encode(pack(Run())).decode(), "*it holds no profile to compare with"),
    ],
)
def test_a_document_that_is_none_is_a_usage_error(
    run: RunIt, pytester: pytest.Pytester, path: str, content: str | None, words: str
) -> None:
    if content is not None:
        (pytester.path / path).write_text(content)
    result = run("def test_it(): open('ran', 'w')\n", f"--kernelprof-against={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --kernelprof-against: {words}"])
    assert not (pytester.path / "ran").exists()


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            (AGAINST,),
            "*old.json: it has none of the 1 tests of this run (test_it.py::test_o*",
        ),
        ((AGAINST, "--kernelprof-disable"), "*nothing is measured with --kernelprof-disable*"),
        (
            (AGAINST, "-o", "kernelprof_fail_on=kernel:0"),
            "ini key kernelprof_fail_on: 'kernel' is not a metric*",
        ),
        (
            (AGAINST, "-o", "kernelprof_fail_on=kernels:0\nkernels:1"),
            "ini key kernelprof_fail_on: kernels is given twice; give it once",
        ),
        (
            (AGAINST, "--kernelprof-against=./old.json"),
            TWICE.format("run documents", "revision or folder"),
        ),
        (
            ("--kernelprof-against=main", "--kernelprof-against=.."),
            TWICE.format("revisions or folders", "run document"),
        ),
    ],
)
def test_what_could_compare_nothing_is_a_usage_error(
    run: RunIt, pytester: pytest.Pytester, options: tuple[str, ...], words: str
) -> None:
    result = run("def test_other(): open('ran', 'w')\n", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])
    assert not (pytester.path / "ran").exists()


@pytest.mark.usefixtures("old")
def test_a_run_of_which_nothing_was_compared_has_failed(run: RunIt) -> None:
    result = run("def test_a(): pass\n", AGAINST)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "No profile could be compared with old.json (*).",
            "the run fails: nothing could be compared",
        ]
    )


@pytest.mark.usefixtures("old")
def test_a_metric_that_is_to_be_judged_and_is_nowhere_is_no_pass(run: RunIt) -> None:
    code = OLD[: OLD.index("def test_b")]
    result = run(code, AGAINST, "-o", "kernelprof_fail_on=cuda_time:5%")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["the run fails: no profile has cuda_time"])


def test_a_metric_counts_as_there_only_where_it_was_compared(
    run: RunIt, pytester: pytest.Pytester, old: Run
) -> None:
    """Calls have a latency, and were incomplete; a block is compared, and has none."""
    lost = Integrity(problems=("a kernel is lost",))
    tests = (
        replace(
            test,
            profiles=tuple(
                one if one.one_shot else replace(one, integrity=lost) for one in test.profiles
            ),
        )
        for test in old.tests
    )
    write(pytester, replace(old, tests=tuple(tests)))
    result = run(OLD, AGAINST, "-o", "kernelprof_fail_on=latency:5%")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["the run fails: no profile has latency"])


@pytest.mark.usefixtures("old")
def test_a_comparison_that_fails_nothing_does_not_say_that_the_run_passes(run: RunIt) -> None:
    code = OLD.replace("def test_a(", "@pytest.mark.max_kernels(1)\ndef test_a(")
    run(code, AGAINST).stdout.fnmatch_lines(
        [
            "1 of 1 test breaks a limit; none of 4 profiles is worse than old.json (*",
        ]
    )
    run(OLD, AGAINST).stdout.no_fnmatch_line("the run fails*")


@pytest.mark.usefixtures("quick_references")
def test_a_name_of_a_file_and_of_a_revision(
    run: RunIt, pytester: pytest.Pytester, old: Run
) -> None:
    """The file, where it ends in .json; else the revision, and the file as a path."""
    made = Repository(pytester.path)
    made.commit({"pytest.ini": "[pytest]\n"})
    made.git("tag", "old.json")
    code = OLD[: OLD.index("def test_gone")]
    run(code, AGAINST).stdout.fnmatch_lines(["*one of 3 profiles is worse than old.json*"])
    write(pytester, old)
    (pytester.path / "old.json").rename(pytester.path / "main")
    run(code, "--kernelprof-against=main").stdout.fnmatch_lines(
        ["*= kernel profiles against main (*"]
    )
    run(code, "--kernelprof-against=./main").stdout.fnmatch_lines(
        ["*= kernel profiles against main (*) =*"]
    )
    (pytester.path / "main").rename(pytester.path / "last-night")
    run(code, "--kernelprof-against=last-night").stdout.fnmatch_lines(
        ["*= kernel profiles against last-night (*"]
    )


@pytest.mark.usefixtures("old")
def test_the_ini_file_may_name_a_document_and_what_fails(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    lines = ("kernelprof_against = old.json", "kernelprof_fail_on =", "  kernels:1", "  syncs:0")
    pytester.makeini("\n".join(["[pytest]", *lines]))
    code = NEW[: NEW.index("def test_b")]
    run(code).assert_outcomes(passed=1)  # a kernel more is allowed
    run(code, "-o", "kernelprof_fail_on=kernels:0").assert_outcomes(failed=1)


NOT_THERE = """
import pathlib, shutil
@pytest.hookimpl(trylast=True)
def pytest_configure_node(node):
    for path in pathlib.Path(TMPDIR).iterdir():
        shutil.rmtree(path)
"""


@pytest.mark.usefixtures("old")
def test_a_worker_on_a_machine_without_the_controllers_files_says_so(
    run: RunIt, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_baseline, "make_folder", partial(make_folder, str(tmp_path)))
    pytester.makeconftest("import pytest" + NOT_THERE.replace("TMPDIR", repr(str(tmp_path))))
    result = run(OLD[: OLD.index("def test_b")], AGAINST, "-n2")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E   --kernelprof-against: * cannot be read here (*"])
    assert "start pytest-xdist workers on that machine (-n)" in result.stdout.str()


GROWTH = """
import os
if "PYTEST_XDIST_WORKER" in os.environ:
    import torch, tracemalloc
    tracemalloc.start()
"""
GROWN = """
import tracemalloc
def test_a(kernel_profile):
    kernel_profile(three)
    open("grown", "w").write(str(tracemalloc.get_traced_memory()[1]))
"""


def test_the_memory_of_a_worker_does_not_grow_with_tests_that_it_does_not_run(
    run: RunIt, pytester: pytest.Pytester, old: Run
) -> None:
    pytester.makeconftest(GROWTH)
    peaks = []
    for tests in (10, 2_000):
        others = (replace(old.tests[0], id=f"test_other.py::test_{n}") for n in range(tests))
        write(pytester, replace(old, tests=(*old.tests, *others)))
        result = run(GROWN, AGAINST, "-n2")
        result.assert_outcomes(passed=1)
        peaks.append(int((pytester.path / "grown").read_text()))
    few, many = peaks
    assert many - few < 1e6  # all of them are ten times that


BLOCKS = """
def test_a(kernel_profile):
    with kernel_profile.region("r"): x.tanh() @ x
def test_b(kernel_profile):
    with kernel_profile.region("r"): x.tanh() @ x
    with kernel_profile.region("s"): three()
"""


def test_another_kernel_at_equal_counts_is_changed_in_every_format(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    """Blocks that run once have no times, which would differ."""
    assert run(BLOCKS, "--kernelprof-json=old.json").ret == 0
    pages = ("--kernelprof-markdown=run.md", "--kernelprof-html=run.html")
    result = run(BLOCKS.replace("tanh", "sigmoid"), AGAINST, *pages, "--kernelprof-json=new.json")
    assert result.ret == pytest.ExitCode.OK
    counts = "2 changed (other kernels, same counts), 1 unchanged"
    result.stdout.fnmatch_lines(
        [
            "None of 3 profiles is worse than old.json (*",
            "changed (other kernels, same counts)",
            "*test_a [[]r]",
            "    - aten::tanh*",
            "    + aten::sigmoid*",
            f"against *old.json: {counts[:40]}*",
        ]
    )
    for name in ("run.md", "run.html"):
        page = (pytester.path / name).read_text().replace("\u200c", "").replace("\\", "")
        assert f"{counts}; same number of operators" in page
        assert page.count("aten::sigmoid") >= 2
    command = (sys.executable, "-m", "pytest_kernelprof.cli.main", "compare")
    found = pytester.run(*command, "old.json", "new.json", "--format=markdown")
    assert found.ret == 0
    found.stdout.fnmatch_lines(
        [
            "### *None of 3 profiles is worse than old.json*",
            "<details><summary><b>Also changed:</b> 2 changed (other kernels, same counts)*",
            "- ✅ `test_it.py::test_a [[]r]`: changed (other kernels, same counts): "
            "operator gone: aten::tanh; added operator: aten::sigmoid",
            f"<sub>against old.json (*): {counts}; *",
        ]
    )
