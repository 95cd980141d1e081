"""The Markdown of ``kernelprof compare``, as GitHub renders it: hostile names do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from gfm_pages import HOSTILE, rendered
from records import calls_of

from pytest_kernelprof.cli.main import main
from pytest_kernelprof.records import codec
from pytest_kernelprof.records.document import Run, Test, pack
from pytest_kernelprof.report.markdown import line

TAGS = {"p", "strong", "ul", "li", "span", "h3", "sub"}
TABLE = {"table", "thead", "tbody", "tr", "th", "td"}
DETAILS = {"br", "wbr", "details", "summary", "pre", "code", "b"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_seen_as_they_are_and_notify_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    id, less = f"t.py::test_it[{name}]", f"t.py::test_less[{name}]"
    gone = Test(f"t.py::gone[{name}]", (calls_of(4),))
    for file, tests in (
        ("old", (Test(id, (calls_of(4),)), Test(less, (calls_of(4),)), gone)),
        ("new", (Test(id, (calls_of(5),)), Test(less, (calls_of(3),)))),
    ):
        (tmp_path / file).write_bytes(codec.encode(pack(Run(tests, "2026-11-22T08:50:00Z"))))
    main(["compare", str(tmp_path / "old"), str(tmp_path / "new"), "--format=markdown"])
    page = rendered(capsys.readouterr().out)
    worse, fewer = (codec.text(one).removeprefix("t.py::") for one in (id, less))
    (look,) = page.looks()
    wrong = line(f"added kernel: gelu in {worse}")
    assert look[:4] == ("❌", "t.py", wrong, "Remove the added kernel, or fuse it (torch.compile)")
    *_, changed = page.texts("li")
    assert changed.startswith(f"✅ {line(f't.py::{fewer}')}: better: kernels 4 -> 3")
    (table,) = page.tables
    assert [len(one) for one in table] == [3, 3]
    assert page.tags <= TAGS | TABLE | DETAILS
    assert page.unclosed == []
    assert not page.notified
