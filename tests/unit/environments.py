"""Environments that differ in one package, made on the spot, and a project that uses it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_kernelprof.baselines import supervisor, worker

PACKAGE = str(Path(supervisor.__file__).parents[2])
"""Where this plugin is, which need not be what is installed."""

CODE = """
import torch
import fastops
def grows(x): return fastops.gelu(x @ x)
def shrinks(x): return fastops.relu(x @ x)
def stays(x): return x @ x
"""
TESTS = """
import torch
from pkg import mlp
x = torch.ones(8, 8)
def test_grows(kernel_profile): kernel_profile(mlp.grows, x)
def test_shrinks(kernel_profile): kernel_profile(mlp.shrinks, x)
def test_stays(kernel_profile): kernel_profile(mlp.stays, x)
def test_only_of_the_test(kernel_profile): kernel_profile(lambda: x + 1)
"""
OLD = """
import torch.nn.functional as F
def gelu(x): return F.gelu(x)
def relu(x): return F.relu(x) + 1
"""
NEW = """
import torch.nn.functional as F
def gelu(x): return F.gelu(x) * 2
def relu(x): return F.relu(x)
"""


class Environments:
    """Environments that share all packages but those that they are made with.

    Each is a folder on ``PYTHONPATH``, and a script that runs a Python with it.

    Args:
        python: one that has loaded torch already, which then stands for this one, too, where it is
            asked what it has.
    """

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, python: str = sys.executable
    ) -> None:
        self._folder, self._patch, self._python = folder, monkeypatch, python
        asked = worker._asked

        def quickly_asked(program: str, given: str) -> object:
            return asked(python if program == sys.executable else program, given)

        monkeypatch.setattr(worker, "_asked", quickly_asked)

    def make(self, name: str, version: str, code: str, **modules: str) -> str:
        """An environment with one version of the package ``fastops``; the path of its Python."""
        place = self._folder / name
        about = f"Metadata-Version: 2.1\nName: fastops\nVersion: {version}\n"
        modules |= {"fastops": code}
        for file, text in {
            f"fastops-{version}.dist-info/METADATA": about,
            **{f"{module}.py": text for module, text in modules.items()},
        }.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text)
        return self.script(name, f'PYTHONPATH={PACKAGE}:{place} exec {self._python} "$@"')

    def script(self, name: str, text: str) -> str:
        """A program that does this."""
        path = self._folder / name / "python"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def enter(self, name: str) -> None:
        """The run of pytest is in this one."""
        place = str(self._folder / name)
        self._patch.setenv("PYTHONPATH", os.pathsep.join([PACKAGE, place]))
        self._patch.syspath_prepend(place)
