"""The published JSON Schemas are those of the types, and what is written holds to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from pytest_kernelprof.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
TRACES = Path(__file__).parents[1] / "traces"
PUBLISHED = DOCS / "run.schema.json"


@pytest.mark.parametrize("name", ["run", "show", "diff", "compare"])
def test_the_published_schemas_are_those_of_the_types(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from make_schemas import SCHEMAS, schema_of

    assert set(SCHEMAS) == {path.name.partition(".")[0] for path in DOCS.glob("*.schema.json")}
    published = DOCS / f"{name}.schema.json"
    assert published.read_bytes() == schema_of(name), "run python docs/make_schemas.py"


def test_what_commands_print_holds_to_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, other = (str(TRACES / f"{name}.json.gz") for name in ("mlp", "compiled"))
    run = tmp_path / "run.json"
    run.write_bytes((DOCS.parent / "benchmarks" / "results" / "h200-example.json").read_bytes())
    for name, command in {
        "show": ["show", trace, "--json"],
        "diff": ["diff", trace, other, "--json"],
        "compare": ["compare", str(run), str(run), "--format=json"],
    }.items():
        main(command)
        schema = json.loads((DOCS / f"{name}.schema.json").read_text())
        Draft202012Validator(schema).validate(json.loads(capsys.readouterr().out))


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
