"""Small projects that are really measured, on the CPU: what their terminal shows and how they end,
and that all formats agree with that."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import facts
import measured
import pytest

Once = Callable[[str, Callable[[Path], None]], Path]
Ran = Callable[[str], Path]

RENEW = "python tests/golden/render.py --projects"
FORMATS = {name.replace("-80", ""): read for name, read in facts.FORMATS.items()}
WRITTEN = ("terminal", "failures", "annotations", "summary", "page", "junit", "run")


@pytest.fixture
def ran(once: Once, python: str) -> Ran:
    """The folder with the texts of a project, which is run once."""

    def run(name: str) -> Path:
        def fill(folder: Path) -> None:
            for file, text in measured.run(name, folder, python).items():
                (folder / file).write_text(text, encoding="utf-8")

        return once(f"golden-{name}", fill)

    return run


@pytest.mark.skipif(pytest.version_tuple[0] != 9, reason="kept with pytest 9")
@pytest.mark.parametrize("name", measured.names())
def test_a_project_ends_as_it_is_kept(name: str, ran: Ran) -> None:
    folder = ran(name)
    now = measured.scrubbed((folder / "output.txt").read_text(encoding="utf-8"), folder)
    kept = measured.kept(name).read_text(encoding="utf-8")
    changes = list(
        difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=1)
    )
    assert not changes, "\n".join([*changes, f"read it, then keep it: {RENEW} {name}"])


@pytest.mark.parametrize(("name", "form"), itertools.product(measured.names(), WRITTEN))
def test_formats_of_a_project_state_its_facts(name: str, form: str, ran: Ran) -> None:
    file = next(file for file in FORMATS if file.partition(".")[0] == form)
    told = FORMATS[file]((ran(name) / file).read_text(encoding="utf-8"))
    right = facts.expected(measured.described(name)["facts"])
    stated = {one.name: getattr(told, one.name) for one in fields(told)}
    wanted = {name: facts.as_told(right, name, told, file) for name in stated}
    about = [name for name in stated if name != "has_reasons" and wanted[name] is not None]
    assert {name: stated[name] for name in about} == {name: wanted[name] for name in about}
