"""Tables of recorded profiles."""

from __future__ import annotations

import pytest
from corpus import record

from pytest_kernelprof.report.kernel_tables import copy_table, kernel_table, wait_table


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("name", ["backward", "syncs", "compiled"])
def test_tables_fit_the_width(name: str, width: int) -> None:
    profile = record(name)
    for lines in (f(profile, width) for f in (kernel_table, copy_table, wait_table)):
        assert max(map(len, lines)) <= width


def test_a_recorded_copy_is_told_with_its_size() -> None:
    assert "4.19 MB" in copy_table(record("copies"), 120)[1]


def test_each_recorded_wait_has_its_row() -> None:
    assert len(wait_table(record("syncs"), 100)) == 1 + 7
