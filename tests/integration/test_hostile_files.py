"""Tests that take away or replace what files need: the count is right, or an ERROR tells of it.

Each is strictly expected to fail, so that an error of ours that passed for a failure of the test
would be swallowed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

# What a test does before it profiles; the test's folder may be filled and removed.
PATCHES = {
    "open": "monkeypatch.setattr('builtins.open', nothing)",
    "io": "monkeypatch.setattr('io.open', nothing)",
    "os": "[monkeypatch.setattr(os, name, nothing) for name in "
    "('open', 'unlink', 'remove', 'rename', 'replace', 'fdopen', 'fstat', 'mkdir', 'getpid')]",
    "path": "[monkeypatch.setattr(os.path, name, nothing) for name in ('exists', 'isdir')]",
    "tempdir": "monkeypatch.setattr(tempfile, 'tempdir', '/nowhere')",
    "mkstemp": "monkeypatch.setattr(tempfile, 'mkstemp', nothing)",
    "TMPDIR": "monkeypatch.setenv('TMPDIR', '/nowhere'); tempfile.tempdir = None",
    "quote": "os.mkdir('a\"b'); monkeypatch.setattr(tempfile, 'tempdir', start + '/a\"b')",
    "no folder": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "no handles": "os.closerange(3, 64)",
    "uuid": "monkeypatch.setattr(uuid, 'uuid4', lambda: 'mine')",
    "warnings": "warnings.simplefilter('error')",
    "imports": "[sys.modules.pop(name) for name in ('uuid', 'tempfile', 'gzip', 'json')]",
    "gc": "gc.disable(); gc.set_threshold(1)",
    "locale": "monkeypatch.setenv('LC_ALL', 'C')",
}
HEAD = """
import gc, os, sys, tempfile, uuid, warnings
start = os.getcwd()
def nothing(*args, **kwargs):
    raise PermissionError("patched by the test")
@pytest.fixture(autouse=True)
def as_before():
    yield
    os.chdir(start)
    gc.set_threshold(700, 10, 10), gc.enable()
"""


def hostile(patches: dict[str, str]) -> str:
    """Tests that count 3 kernels after each patch, and one after them that patches nothing."""
    code = HEAD
    for number, patch in enumerate(patches.values()):
        code += f"""
@pytest.mark.max_kernels(3)
def test_{number}(kernel_profile):
    with pytest.MonkeyPatch.context() as monkeypatch:
        {patch}
        kernel_profile(three)
    assert kernel_profile.last.kernel_count == 3
@pytest.mark.xfail(strict=True)
@pytest.mark.max_kernels(2)
def test_over_{number}(kernel_profile):
    with pytest.MonkeyPatch.context() as monkeypatch:
        {patch}
        kernel_profile(three)
"""
    return code


def test_a_count_is_right_whatever_is_patched_and_the_next_test_is_as_if_alone(run: Run) -> None:
    patches = {name: patch for name, patch in PATCHES.items() if name != "no handles"}
    result = run(hostile(patches))
    result.assert_outcomes(passed=len(patches), xfailed=len(patches))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
@pytest.mark.parametrize("marked", [True, False])
def test_a_trace_that_cannot_be_written_whole_is_an_error_under_xfail_too(
    run: Run, marked: bool
) -> None:
    limit = "@pytest.mark.max_kernels(0)" if marked else ""
    result = run(
        f"""
import resource, signal
@pytest.fixture
def no_room():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
@pytest.mark.xfail
{limit}
def test_full(kernel_profile, no_room):
    kernel_profile(three)
@pytest.mark.max_kernels(3)
def test_after(kernel_profile):
    kernel_profile(three)
"""
    )
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*IncompleteProfile: the profiler's trace could not be written*"])


def test_a_torch_that_is_hidden_is_an_error_and_the_next_test_is_as_if_alone(run: Run) -> None:
    result = run(
        """
import sys
@pytest.mark.xfail
@pytest.mark.max_kernels(3)
def test_hidden(kernel_profile, monkeypatch):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(sys.modules, "torch", None)
        kernel_profile(three)
@pytest.mark.xfail
@pytest.mark.max_kernels(3)
def test_hidden_by_the_test(kernelprof_device, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    three()
@pytest.mark.xfail
@pytest.mark.max_kernels(3)
def test_hidden_by_the_callable(kernel_profile, monkeypatch):
    kernel_profile(lambda: (monkeypatch.setitem(sys.modules, "torch", None), three()))
@pytest.mark.max_kernels(3)
def test_after(kernel_profile):
    kernel_profile(three)
""",
    )
    result.assert_outcomes(errors=3, passed=1)
    result.stdout.fnmatch_lines(
        [
            *("*ERROR at call of test_hidden *", "E   the profiler cannot be started*torch*"),
            "*ERROR at call of test_hidden_by_the_test *",
            "E   a round cannot be annotated: import of torch halted*",
        ]
    )


def folders_in_memory() -> set[Path]:
    """Ours of this process and those that it started; other runs have their own."""
    return set(Path("/dev/shm").glob(f"kernelprof-*-{os.getpid()}-*"))


def test_nothing_is_left_behind_when_files_are_closed_and_folders_removed(
    pytester: pytest.Pytester, run_apart: Callable[..., pytest.RunResult]
) -> None:
    """In a process of its own, with a temporary folder of its own."""
    (pytester.path / "temporary").mkdir()
    before = folders_in_memory()
    code = "import pytest, torch\nx = torch.ones(4)\ndef three(): return x.exp().sin() + 1\n"
    pytester.makepyfile(
        test_it=code
        + hostile({"no handles": PATCHES["no handles"]})
        + """
import shutil
kept = []
@pytest.mark.max_kernels(2)
def test_fails():
    three()
def test_kept(kernel_profile):
    kernel_profile(three)
    kept.append(kernel_profile.last)  # until the process ends
    assert os.listdir(os.environ["TMPDIR"])
@pytest.mark.max_kernels(3)
def test_removed(kernel_profile):
    kernel_profile(three)
    shutil.rmtree(os.environ["TMPDIR"])
    kernel_profile(three)
"""
    )
    with pytest.MonkeyPatch.context() as here:
        here.setenv("TMPDIR", str(pytester.path / "temporary"))
        result = run_apart(
            *("--kernelprof-device=cpu", "--capture=sys", f"--basetemp={pytester.path}/base")
        )
    result.assert_outcomes(passed=3, xfailed=1, failed=1)
    assert not (pytester.path / "temporary").exists()
    assert folders_in_memory() == before
