"""All processes of a run spend of one budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelprof.against import budget
from pytest_kernelprof.against.budget import Budget


def test_it_is_spent_by_all_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 4.0, 10.0, 16.0])
    monkeypatch.setattr(budget, "now_s", lambda: next(clock))
    one, other = Budget(tmp_path / "spent", 10.0), Budget(tmp_path / "spent", 10.0)
    with one.spending():
        assert not one.is_spent
    assert not other.is_spent
    with pytest.raises(KeyError), other.spending():
        raise KeyError
    assert one.is_spent
    assert other.is_spent


def test_without_a_limit_it_is_never_spent(tmp_path: Path) -> None:
    endless = Budget(tmp_path / "spent", None)
    with endless.spending():
        pass
    assert not endless.is_spent
    assert not (tmp_path / "spent").exists()


def test_what_cannot_be_written_is_not_counted(tmp_path: Path) -> None:
    lost = Budget(tmp_path / "gone" / "spent", 1.0)
    with lost.spending():
        pass
    assert not lost.is_spent
