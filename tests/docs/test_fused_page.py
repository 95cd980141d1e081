"""What the page on the fused MLP quotes stands in the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fused-mlp.md"
PACKAGE = ROOT / "example_project" / "fused_mlp"


def test_the_loop_of_narrow_is_quoted_as_it_is() -> None:
    (quoted,) = re.findall(r"```triton\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = re.sub(r"\s+", "", (PACKAGE / "narrow.py").read_text())
    assert re.sub(r"\s+", "", quoted) in code


def test_each_module_has_its_row_in_the_readme() -> None:
    text = (PACKAGE.parent / "README.md").read_text()
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert {name for name in modules if f"`{name}`" not in text} == set()
