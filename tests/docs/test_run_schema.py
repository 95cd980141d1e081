"""The published JSON Schema of run documents is that of the types, and files hold to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED = DOCS / "run.schema.json"


def test_the_published_schema_is_that_of_the_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_run_schema import run_schema

    wrong = "python docs/make_run_schema.py > docs/run.schema.json"
    assert PUBLISHED.read_bytes() == run_schema(), wrong


def test_what_a_run_writes_holds_to_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest, torch
        x = torch.ones(8, 8)
        @pytest.mark.max_kernels(2)
        @pytest.mark.max_latency("10s")
        def test_kept(kernel_profile):
            kernel_profile(lambda: x + 1)
        @pytest.mark.expect_kernels("mul", ...)
        def test_broken(kernel_profile):
            kernel_profile(lambda: x + 1)
        def test_compared(kernel_profile):
            kernel_profile.compare(lambda: x + 1, lambda: x + 2, metric="latency")
        """
    )
    pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "--kernelprof-device=cpu", "--kernelprof-json=run.json")
    )
    written = json.loads((pytester.path / "run.json").read_bytes())
    assert len(written["tests"]) == 3
    validator = Draft202012Validator(json.loads(PUBLISHED.read_text()))
    validator.validate(written)
    with pytest.raises(ValidationError):
        validator.validate({**written, "tests": [{"id": 3}]})
