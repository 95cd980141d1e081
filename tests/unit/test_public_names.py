"""What users import: the names, their types, and what importing them costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import pytest_kernelprof

ROOT = Path(pytest_kernelprof.__file__).parents[1]
# What the package itself is checked with: torch's own types are not ours to vouch for.
MYPY = """
[mypy]
strict = true
[mypy-torch.*,triton.*]
follow_imports = skip
ignore_missing_imports = true
"""
USE = """
from pytest_kernelprof import Comparison, KernelBenchmark, KernelProfile, Profile, profile
from pytest_kernelprof import __version__

def mean(values: list[float]) -> float:
    return sum(values) / len(values)

def test_it(kernel_profile: KernelProfile, kernel_benchmark: KernelBenchmark) -> None:
    reveal_type(kernel_profile(mean, [1.0]))
    reveal_type(kernel_benchmark(mean, [1.0]))
    reveal_type(profile(mean, [1.0]))
    reveal_type(kernel_profile.compare(mean, mean, [1.0]))
    reveal_type(__version__)
    kernel_profile(3)  # an error, and so is the next
    kernel_benchmark(3)

def ours(found: Profile, compared: Comparison) -> None:
    reveal_type(found)
    reveal_type(compared)
"""


def fresh(code: str) -> str:
    """What a process prints that has loaded nothing yet."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_version_is_the_installed_packages() -> None:
    assert pytest_kernelprof.__version__ == metadata.version("pytest-kernelprof")


def test_a_copy_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert pytest_kernelprof.__version__ == "0+unknown"


def test_importing_the_package_looks_nothing_up_and_loads_but_the_clocks() -> None:
    code = (
        "import __future__, importlib, sys, typing\n"
        "known = set(sys.modules)\n"
        "import pytest_kernelprof\n"
        "loaded = set(sys.modules) - known\n"
        "others = {one for one in loaded if one.split('.')[0] not in sys.stdlib_module_names}\n"
        "print(sorted(others), 'importlib.metadata' in loaded)"
    )
    assert fresh(code) == "['pytest_kernelprof', 'pytest_kernelprof.system'] False"


def test_every_public_name_imports_without_pytest_benchmark() -> None:
    names = ", ".join(pytest_kernelprof.__all__)
    code = "import sys; sys.modules['pytest_benchmark'] = None\n"
    code += f"from pytest_kernelprof import {names}\n"
    assert fresh(f"{code}print(KernelBenchmark.__name__)") == "KernelBenchmark"


def test_users_types_are_checked_and_none_is_any(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    (tmp_path / "mypy.ini").write_text(MYPY)
    # What it keeps of this package and of what that needs serves the next run as well.
    mypy = [sys.executable, "-m", "mypy", f"--cache-dir={ROOT}/.mypy_cache/of_users"]
    done = subprocess.run(
        [*mypy, "--config-file=mypy.ini", "use.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    shown = [re.sub(r"\b(?:builtins|pytest_kernelprof)\.(?:\w+\.)*", "", one) for one in revealed]
    assert shown == ["float", "float", "Profile", "Comparison", "str", "Profile", "Comparison"]
    errors = re.findall(r"error: Argument 1 to .* has incompatible type \"int\"", done.stdout)
    assert len(errors) == 2, done.stdout
    assert "Found 2 errors" in done.stdout
