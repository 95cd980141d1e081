"""What is kept of each scenario is what the code of today renders."""

from __future__ import annotations

import difflib
from pathlib import Path

import described
import pytest
import render

RENEW = "python tests/golden/render.py"

for plugin in ("pytest_benchmark", "pytest_rerunfailures"):
    pytest.importorskip(plugin)


@pytest.mark.skipif(pytest.version_tuple[0] != 9, reason="kept with pytest 9")
@pytest.mark.parametrize("scenario", described.names())
def test_a_scenario_renders_as_it_is_kept(scenario: str, tmp_path: Path) -> None:
    render.render_to(scenario, tmp_path)
    now, kept = _texts(tmp_path / scenario), _texts(described.KEPT / scenario)
    changes = [
        line
        for name in sorted({*now, *kept})
        for line in difflib.unified_diff(
            kept.get(name, []),
            now.get(name, []),
            f"kept/{scenario}/{name}",
            "now",
            lineterm="",
            n=1,
        )
    ]
    assert not changes, "\n".join(
        [*changes[:80], f"{len(changes)} lines differ; read them, then keep them: {RENEW}"]
    )


def test_nothing_is_kept_of_scenarios_that_are_gone() -> None:
    assert sorted(path.name for path in described.KEPT.iterdir()) == described.names()


def test_what_is_kept_is_small() -> None:
    assert sum(path.stat().st_size for path in described.KEPT.rglob("*")) < 2_000_000


def _texts(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text(encoding="utf-8").splitlines() for path in folder.glob("*")}
