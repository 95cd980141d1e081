"""Kernel snapshots: written by an update, from then on checked in every run, and told in a line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_kernelprof.baselines.snapshots import read
from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.comparison import KeptTest
from pytest_kernelprof.records.document import Document, unpack

RunIt = Callable[..., pytest.RunResult]
UPDATE = "--kernelprof-update"

TWO = """
@pytest.mark.max_kernels(9)
def test_a(kernel_profile):
    kernel_profile(three)
class TestIt:
    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.max_kernels(9)
    def test_b(self, n):
        three()
        with open("ran", "a") as file:
            print(n, file=file)
"""
MORE = TWO.replace("kernel_profile(three)", "kernel_profile(lambda: three() * 2)")


def path(pytester: pytest.Pytester) -> Path:
    return pytester.path / "__kernelprof__" / "cpu" / "test_it.json"


def kept(pytester: pytest.Pytester) -> dict[str, KeptTest]:
    return read(str(path(pytester)))


UPDATE_ALL = "pytest --kernelprof-update --kernelprof-device=cpu"


def snapshot_lines(result: pytest.RunResult) -> list[str]:
    """What is told of snapshots; a command, which stands below what it is for, in the same line."""
    text = "\n".join(result.outlines).replace("; to update:\n  ", "; to update: ")
    starts = "snapshots:", "looser:", "not "
    return [line for line in text.splitlines() if line.startswith(starts)]


def rewrite(pytester: pytest.Pytester, old: str, new: str) -> None:
    text = path(pytester).read_text()
    assert old in text
    path(pytester).write_text(text.replace(old, new))


def test_an_update_writes_and_each_run_checks(run: RunIt, pytester: pytest.Pytester) -> None:
    result = run(TWO, UPDATE)
    result.assert_outcomes(passed=3)
    assert snapshot_lines(result) == ["snapshots: 3 written"]
    assert sorted(kept(pytester)) == ["TestIt::test_b[1]", "TestIt::test_b[2]", "test_a"]
    (profile,) = kept(pytester)["test_a"].profiles
    assert (profile.kernels, profile.counts) == (("aten::mm", "aten::gelu", "aten::add"), {})
    before = path(pytester).read_bytes()
    for secret in (str(pytester.path), "2026", "us"):
        assert secret not in before.decode()

    result = run(TWO)
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("*snapshot*")

    result = run(MORE)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   snapshot: operators 3 -> 4",
            "  at test_it.py:9",
            "    9 | kernel_profile(lambda: three() [*] 2)",
            "      | *^^^^^^^^^^^ added operator: aten::mul",
            "  to do: remove the added operator, or fuse it (torch.compile)",
            "  rerun: pytest test_it.py::test_a --kernelprof-device=cpu",
            "  if intended, accept it in the snapshot:",
            "    pytest test_it.py::test_a --kernelprof-update --kernelprof-device=cpu",
            "  against the snapshot: + new",
            "+ 4 * aten::mul *test_it.py:9*",
        ]
    )
    assert path(pytester).read_bytes() == before

    result = run(MORE, UPDATE)
    result.assert_outcomes(passed=3)
    assert snapshot_lines(result) == [
        "snapshots: 1 written, 2 unchanged",
        "looser: test_it::test_a: kernels 3 -> 4",
    ]
    run(MORE).assert_outcomes(passed=3)


FEWER = TWO.replace("kernel_profile(three)", "kernel_profile(lambda: x @ x)").replace(
    "        three()", "        F.relu(x @ x) + 1"
)


def test_fewer_or_other_kernels_are_stale_which_is_told_and_passes(run: RunIt) -> None:
    run(TWO, UPDATE)
    result = run(FEWER)
    result.assert_outcomes(passed=3)
    assert snapshot_lines(result) == [
        "snapshots: 3 outdated (not failing); to update: pytest test_it.py::test_a "
        "'test_it.py::TestIt::test_b[1]' 'test_it.py::TestIt::test_b[2]' --kernelprof-update "
        "--kernelprof-device=cpu"
    ]
    told = run(FEWER, "-v").outlines
    assert "  outdated: test_it.py::test_a" in told


def test_a_replaced_kernel_is_named_where_the_run_passes(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(TWO, UPDATE)
    other = TWO.replace("kernel_profile(three)", "kernel_profile(lambda: F.relu(x @ x) + 1)")
    result = run(other, "--kernelprof-markdown=summary.md")
    result.assert_outcomes(passed=3)
    named = [
        "snapshots: 2 unchanged, 1 outdated (not failing); to update:",
        "  pytest test_it.py::test_a --kernelprof-update --kernelprof-device=cpu",
        "  outdated: test_it.py::test_a",
        "    - aten::gelu",
        "    + aten::relu",
    ]
    result.stdout.fnmatch_lines(named, consecutive=True)
    summary = (pytester.path / "summary.md").read_text()
    assert "\n| ⚠️ | **aten::gelu → aten::relu** in `test_a`<br>`test_it.py:9`<br>" in summary
    table, _, _ = summary.partition("```text\n")[2].partition("```")
    changed = [line for line in table.splitlines() if line[:2] in ("- ", "+ ")]
    assert [(line[0], "aten::gelu" in line, "aten::relu" in line) for line in changed] == [
        ("-", True, False),
        ("+", False, True),
    ]


PLAIN = "def test_plain(): three()\ndef test_other(): x + 1\n"


def test_a_snapshot_has_a_test_checked_that_asks_for_nothing(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    result = run(PLAIN, UPDATE)
    assert (snapshot_lines(result), path(pytester).exists()) == ([], False)
    run(PLAIN, UPDATE, "--kernelprof-all", "-k", "plain")
    assert list(kept(pytester)) == ["test_plain"]
    run(PLAIN).assert_outcomes(passed=2)
    result = run(PLAIN.replace("x + 1", "three()").replace(": three()", ": three() * 2", 1))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*_ test_plain _*", "E   snapshot: operators 3 -> 4"])
    only = run(PLAIN, "--kernelprof-only")
    only.assert_outcomes(passed=1, deselected=1)


def test_without_a_gpu_it_is_the_cpus_snapshot(
    run: RunIt, pytester: pytest.Pytester, no_gpu: None
) -> None:
    run(PLAIN, UPDATE, "--kernelprof-all", device=None)
    assert sorted(kept(pytester)) == ["test_other", "test_plain"]
    run(PLAIN.replace("three()", "three() * 2"), device=None).assert_outcomes(passed=1, failed=1)
    run(PLAIN.replace("three()", "three() * 2"), device="cuda").assert_outcomes(passed=2)


def test_an_update_touches_only_what_ran(run: RunIt, pytester: pytest.Pytester) -> None:
    run(TWO, UPDATE)
    result = run(MORE, UPDATE, "-k", "test_b")
    assert snapshot_lines(result) == ["snapshots: 2 unchanged"]
    assert [len(one.profiles[0].kernels) for one in kept(pytester).values()] == [3, 3, 3]
    # Of a file that is not collected whole nothing is known.
    run("def test_new(): pass\n", UPDATE, "test_it.py::test_new")
    assert len(kept(pytester)) == 3


def test_workers_check_and_their_controller_writes(run: RunIt, pytester: pytest.Pytester) -> None:
    run(TWO, UPDATE)
    one_less = MORE.replace("[1, 2]", "[1]")
    result = run(one_less, "-n2")
    result.assert_outcomes(passed=1, failed=1)
    assert snapshot_lines(result) == [f"snapshots: 1 unchanged, 1 unused; to update: {UPDATE_ALL}"]
    assert snapshot_lines(run(one_less, "-n2", UPDATE)) == [
        "snapshots: 1 written, 1 unchanged, 1 removed",
        "looser: test_it::test_a: kernels 3 -> 4",
    ]
    assert len(kept(pytester)["test_a"].profiles[0].kernels) == 4
    assert sorted(kept(pytester)) == ["TestIt::test_b[1]", "test_a"]


def test_snapshots_that_no_test_has_are_told_and_removed(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(TWO, UPDATE)
    fewer = TWO.replace("[1, 2]", "[1]")
    for options in ((), ("-k", "test_a")):
        (line,) = snapshot_lines(run(fewer, *options))
        assert line.endswith(f"unchanged, 1 unused; to update: {UPDATE_ALL}")
    assert snapshot_lines(run(fewer, "test_it.py::test_a")) == []
    assert len(kept(pytester)) == 3
    assert snapshot_lines(run(fewer, UPDATE)) == ["snapshots: 2 unchanged, 1 removed"]
    assert sorted(kept(pytester)) == ["TestIt::test_b[1]", "test_a"]


def test_those_of_a_file_that_is_gone_are_unused(run: RunIt, pytester: pytest.Pytester) -> None:
    run(TWO, UPDATE)
    path(pytester).rename(path(pytester).with_name("test_gone.json"))
    run(TWO, UPDATE, "-k", "test_a")
    assert not path(pytester).with_name("test_gone.json").exists()
    assert list(kept(pytester)) == ["test_a"]


@pytest.mark.parametrize("option", ["--lf", "--deselect=test_it.py::test_a"])
def test_what_a_run_leaves_out_is_not_unused(
    run: RunIt, pytester: pytest.Pytester, option: str
) -> None:
    run(TWO, UPDATE)
    run(TWO, UPDATE, option)
    assert len(kept(pytester)) == 3


def test_a_file_that_cannot_be_collected_loses_nothing(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(TWO, UPDATE)
    pytester.makepyfile(test_other="def test_it(): pass")
    run(TWO + "raise RuntimeError\n", UPDATE, "--continue-on-collection-errors")
    assert len(kept(pytester)) == 3


NOT_KEPT = """
@pytest.mark.max_kernels(1)
def test_broken(kernel_profile): kernel_profile(three)
@pytest.mark.xfail
def test_expected(kernel_profile): kernel_profile(three); assert False
def test_fails(kernel_profile): kernel_profile(three); assert False
@pytest.fixture
def ends_badly():
    yield
    assert False
def test_teardown(kernel_profile, ends_badly): kernel_profile(three)
@pytest.mark.max_kernels(9)
def test_unstable(kernel_profile):
    calls = []
    kernel_profile(lambda: (calls.append(0), [x + 1 for _ in calls]))
def test_skips(kernel_profile): kernel_profile(three); pytest.skip()
"""


def test_what_is_not_sure_is_not_written(run: RunIt, pytester: pytest.Pytester) -> None:
    result = run(NOT_KEPT, UPDATE)
    assert snapshot_lines(result) == [
        "snapshots: 5 not kept",
        "not kept: test_it.py::test_broken: over a limit",
        "not kept: test_it.py::test_expected: xfailed",
        "not kept: test_it.py::test_fails: the test failed for another reason",
        "not kept: test_it.py::test_teardown: error",
        "not kept: test_it.py::test_unstable: unstable",
    ]
    assert not path(pytester).exists()


def test_missing_ones_are_told_where_others_are(run: RunIt, pytester: pytest.Pytester) -> None:
    run(TWO, UPDATE, "-k", "test_a")
    line = (
        "snapshots: 1 unchanged, 2 missing; to update: pytest 'test_it.py::TestIt::test_b[1]' "
        "'test_it.py::TestIt::test_b[2]' --kernelprof-update --kernelprof-device=cpu"
    )
    assert snapshot_lines(run(TWO)) == [line]
    path(pytester).parent.rename(path(pytester).parent.with_name("NVIDIA-H200"))
    assert snapshot_lines(run(TWO)) == [
        "snapshots: 3 missing (none for cpu, some for NVIDIA-H200); to update: pytest "
        "test_it.py::test_a 'test_it.py::TestIt::test_b[1]' 'test_it.py::TestIt::test_b[2]' "
        "--kernelprof-update --kernelprof-device=cpu"
    ]
    result = run(TWO, "--kernelprof-require-snapshots")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*_ test_a _*",
            "E   snapshot: this test has none for cpu",
            "  to do: accept it:",
            "    pytest test_it.py::test_a --kernelprof-update --kernelprof-device=cpu",
        ]
    )


PROFILES = """
def test_it(kernel_profile):
    for n in (1, 2):
        with kernel_profile.region("r"):
            x + 1
"""


def test_profiles_of_one_label_are_told_apart(run: RunIt, pytester: pytest.Pytester) -> None:
    run(PROFILES, UPDATE)
    assert [one.label for one in kept(pytester)["test_it"].profiles] == ["r", "r"]
    second = PROFILES.replace("x + 1", "[x + 1 for _ in range(n)]")
    result = run(second)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   snapshot: operators 1 -> 2",
            "  in region 'r'",
            "  at test_it.py:9",
            '    9 | with kernel_profile.region("r"):',
        ]
    )
    held = "outdated (not failing)", "missing"
    for profiles, told in zip(("(1,)", "(1, 2, 3)"), held, strict=True):
        lines = snapshot_lines(run(PROFILES.replace("(1, 2)", profiles)))
        (line,) = lines
        command = "pytest test_it.py::test_it --kernelprof-update --kernelprof-device=cpu"
        assert line == f"snapshots: 1 {told}; to update: {command}"


def test_after_an_upgrade_a_difference_is_told_and_fails_only_if_asked(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(TWO, UPDATE)
    assert json.loads(path(pytester).read_text())["made_with"]["mkldnn"] == "on"
    rewrite(pytester, '"mkldnn": "on"', '"mkldnn": "off"')
    result = run(TWO)
    assert (result.ret, snapshot_lines(result)) == (0, [])
    result = run(MORE)
    result.assert_outcomes(passed=3)
    assert snapshot_lines(result) == [
        "snapshots: 2 unchanged, 1 not judged (more, but mkldnn off -> on); to update: "
        "pytest test_it.py::test_a --kernelprof-update --kernelprof-device=cpu"
    ]
    result = run(MORE, "--kernelprof-require-snapshots")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ test_a _*",
            "E   snapshot: operators 3 -> 4",
            "  at test_it.py:9",
            "    9 | kernel_profile(lambda: three() [*] 2)",
        ]
    )


@pytest.mark.parametrize("option", [(), (UPDATE,)])
def test_a_file_that_cannot_be_read_is_an_error_of_its_tests(
    run: RunIt, pytester: pytest.Pytester, option: tuple[str, ...]
) -> None:
    run(TWO + PLAIN, UPDATE)
    pytester.makepyfile(test_other="def test_it(): pass")
    rewrite(pytester, '  "test_a": {', "<<<<<<< HEAD\n=======\n>>>>>>> other\n")
    before = path(pytester).read_bytes()
    result = run(TWO + PLAIN, *option)
    result.assert_outcomes(errors=5, passed=1)
    result.stdout.fnmatch_lines(
        ["E   SnapshotError: *__kernelprof__/cpu/test_it.json:*: a merge *"]
    )
    assert path(pytester).read_bytes() == before


def test_under_xfail_it_is_an_error_too(run: RunIt, pytester: pytest.Pytester) -> None:
    code = "@pytest.mark.xfail\n@pytest.mark.max_kernels(9)\ndef test_it(): three()\n"
    path(pytester).parent.mkdir(parents=True)
    path(pytester).write_text("{")
    run(code).assert_outcomes(errors=1)


def test_where_nothing_can_be_written_an_update_is_an_error(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    (pytester.path / "__kernelprof__").write_text("a file")
    result = run(TWO, UPDATE)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*SnapshotError: *__kernelprof__: cannot be written: not a *"])
    run(TWO).assert_outcomes(passed=3)


def test_what_cannot_be_written_at_the_end_fails_the_run(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    code = TWO + "def test_z():\n    open('__kernelprof__', 'w').close()\n"
    result = run(code, UPDATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["snapshots: *test_it.json: cannot be *"])


def test_where_nothing_is_profiled_nothing_is_checked_or_written(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    assert snapshot_lines(run(TWO, UPDATE, "--kernelprof-disable")) == []
    run(TWO, UPDATE)
    before = path(pytester).read_bytes()
    run(MORE, UPDATE, "--kernelprof-disable").assert_outcomes(passed=3)
    run(MORE, "--kernelprof-disable").assert_outcomes(passed=3)
    assert path(pytester).read_bytes() == before


def test_tests_of_folders_have_theirs_beside_them(run: RunIt, pytester: pytest.Pytester) -> None:
    code = "import os, torch\ndef test_it(kernel_profile, tmp_path):\n    os.chdir(tmp_path)\n"
    code += "    kernel_profile(torch.ones, 3)\n"
    for folder in ("a", "b c"):
        (pytester.path / folder).mkdir()
        (pytester.path / folder / "test_in.py").write_text(code)
    run("", UPDATE, "--import-mode=importlib")
    for folder in ("a", "b c"):
        file = pytester.path / folder / "__kernelprof__" / "cpu" / "test_in.json"
        assert list(read(str(file))) == ["test_it"]


def test_a_run_document_has_how_a_snapshot_fared(run: RunIt, pytester: pytest.Pytester) -> None:
    run(TWO, UPDATE)
    run(MORE, "--kernelprof-json=run.json")
    document = codec.decode((pytester.path / "run.json").read_bytes(), Document)
    (test,) = (one for one in unpack(document).tests if one.id.endswith("::test_a"))
    limit, verdict = test.profiles[0].verdicts
    assert (limit.limit, limit.outcome) == ("max_kernels", "passed")
    assert (verdict.limit, verdict.outcome) == ("snapshot", "failed")
    assert verdict.comparison is not None
    assert verdict.comparison.changes[0].side.name == "aten::mul"


def test_a_document_of_a_run_gives_what_an_update_in_it_would(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    regions = TWO + PROFILES
    run(regions, UPDATE, "--kernelprof-json=run.json")
    of_the_run = path(pytester).read_bytes()
    path(pytester).unlink()
    assert main(["update", "run.json"]) == 0
    assert path(pytester).read_bytes() == of_the_run


def remedies(result: pytest.RunResult) -> list[list[str]]:
    """The commands that accept and that failures print, as a shell takes them apart."""
    joined = "\n".join(result.outlines).replace(" \\\n", " ")
    commands = re.findall(r"accept it(?: in the snapshot)?:\n    pytest (.*)", joined)
    found = map(shlex.split, commands)
    return [arguments for arguments in found if arguments[1:2] == [UPDATE]]


NAMES = """
@pytest.mark.parametrize("n", ["a b", "$HOME'"])
def test_y(kernel_profile, n):
    kernel_profile(three)
    kernel_profile(three)
"""


@pytest.mark.parametrize("option", [(), ("--kernelprof-require-snapshots",)])
def test_the_remedy_names_its_test_and_works(
    run: RunIt, pytester: pytest.Pytester, option: tuple[str, ...]
) -> None:
    run("" if option else NAMES, UPDATE)
    more = NAMES.replace("three", "lambda: three() * 2")
    found = remedies(run(more, *option, "-v"))
    assert [one[0] for one in found] == ["test_it.py::test_y[a b]", "test_it.py::test_y[$HOME']"]
    for arguments in found:
        run(more, *arguments, device=None).assert_outcomes(passed=1)
    assert all(len(one.profiles[0].kernels) == 4 for one in kept(pytester).values())
    result = run(more, *option)
    result.assert_outcomes(passed=2)


def test_the_remedy_names_the_test_as_seen_from_where_pytest_runs(
    run: RunIt, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(TWO, UPDATE)
    (pytester.path / "below").mkdir()
    monkeypatch.chdir("below")
    (arguments,) = remedies(run(MORE, ".."))
    assert arguments[0] == "../test_it.py::test_a"


REFUSED = """
@pytest.mark.max_kernels(3)
def test_limit(kernel_profile): kernel_profile(three)
def test_fails(kernel_profile): kernel_profile(three); assert True
def test_cold(kernel_profile):
    with kernel_profile.region("r"): three()
def test_unstable(kernel_profile):
    calls = []
    kernel_profile(lambda: (calls.append(0), three()))
def test_two(kernel_profile):
    kernel_profile(three)
    with kernel_profile.region("r", max_kernels=3): three()
@pytest.mark.xfail(strict=False)
def test_expected(kernel_profile): kernel_profile(three)
def test_alone(kernel_profile): kernel_profile(three)
@pytest.mark.max_kernels(9)
def test_missing(): three()
"""
WORSE = (
    REFUSED.replace("profile(three", "profile(lambda: three() * 2")
    .replace("max_kernels=3): three()", "max_kernels=3): three() * 2")
    .replace("assert True", "assert False")
    .replace("(calls.append(0), three())", "(calls.append(0), three(), [x + 1 for _ in calls])")
)


def test_a_document_has_what_the_snapshot_alone_refused_accepted(
    run: RunIt, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    run(REFUSED, UPDATE, "--deselect=test_it.py::test_missing")
    before = kept(pytester)
    strict = ("--kernelprof-require-snapshots", "--kernelprof-json=run.json")
    result = run(WORSE, *strict, "--kernelprof-markdown=run.md")
    assert [one[0] for one in remedies(result)] == [
        f"test_it.py::test_{x}" for x in ("alone", "missing")
    ]
    markdown = (pytester.path / "run.md").read_text()
    for command in (
        "**To accept in a snapshot, if intended:**\n```sh\npytest test_it.py::test_alone "
        "--kernelprof-update --kernelprof-device=cpu\n",
        "**To update outdated or missing snapshots:**\n```sh\npytest test_it.py::test_missing "
        "--kernelprof-update --kernelprof-device=cpu\n",
    ):
        assert command in markdown
    assert "| Record a snapshot for this device |" in markdown
    capsys.readouterr()
    assert main(["update", "run.json"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "snapshots: 2 written, 1 unchanged, 5 not kept",
        "looser: test_it.py::test_alone: kernels 3 -> 4",
        "not kept: test_it.py::test_limit: limit exceeded: max_kernels",
        "not kept: test_it.py::test_fails: the test failed for another reason",
        "not kept: test_it.py::test_unstable: unstable",
        "not kept: test_it.py::test_two: limit exceeded: max_kernels",
        "not kept: test_it.py::test_expected: xfailed",
    ]
    after = kept(pytester)
    assert sorted(set(after) - set(before)) == ["test_missing"]
    assert [key for key in before if before[key] != after[key]] == ["test_alone"]


def test_a_document_of_a_run_that_snapshots_alone_fail_updates_all(
    run: RunIt, pytester: pytest.Pytester
) -> None:
    run(TWO, UPDATE)
    run(MORE, "--kernelprof-json=run.json", "-n2")
    assert main(["update", "run.json"]) == 0
    run(MORE).assert_outcomes(passed=3)


def test_a_run_without_snapshots_looks_once_a_folder(
    run: RunIt, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_kernelprof.plugin import run_snapshots

    looked = []
    monkeypatch.setattr(
        run_snapshots.os.path,
        "isdir",
        lambda path, isdir=run_snapshots.os.path.isdir: looked.append(path) or isdir(path),
    )
    run(PLAIN, "-k", "test_other")
    assert len([one for one in looked if str(one).endswith("__kernelprof__")]) == 1


def test_where_nothing_is_measured_no_snapshot_is_read(
    run: RunIt, pytester: pytest.Pytester, no_gpu: None
) -> None:
    run(TWO, UPDATE)
    path(pytester).write_text("{")
    run(TWO).assert_outcomes(errors=3)
    run(TWO, device=None).assert_outcomes(passed=3)
