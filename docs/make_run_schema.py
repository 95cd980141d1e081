"""Prints the JSON Schema of run documents, made of the types that write them."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import msgspec

from pytest_kernelprof.schema.document import Document


def run_schema() -> bytes:
    """JSON Schema, draft 2020-12, indented; what the types' docstrings say are its descriptions."""
    made = _cleaned(msgspec.json.schema(Document))
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run document of pytest-kernelprof",
        **made,
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
    sys.stdout.buffer.write(run_schema())
