"""Writes the JSON Schemas of run documents and of what commands print, made of the types that write
them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec

from pytest_kernelprof.records.comparison import RunComparison, TracesComparison
from pytest_kernelprof.records.document import Document
from pytest_kernelprof.records.profile import Profile

SCHEMAS: dict[str, tuple[type, str]] = {
    "run": (Document, "A run document of pytest-kernelprof"),
    "show": (Profile, "What kernelprof show --json prints"),
    "diff": (TracesComparison, "What kernelprof diff --json prints"),
    "compare": (RunComparison, "What kernelprof compare --format=json prints"),
}


def schema_of(name: str) -> bytes:
    """JSON Schema, draft 2020-12, indented; what the types' docstrings say are its descriptions."""
    kind, title = SCHEMAS[name]
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_cleaned(msgspec.json.schema(kind)),
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(one) if key == "description" else _cleaned(one)
            for key, one in value.items()
        }
    return list(map(_cleaned, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    for name in SCHEMAS:
        Path(__file__).with_name(f"{name}.schema.json").write_bytes(schema_of(name))
