"""The step summary as GitHub shows it: in Chromium, with the rules of its style that matter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from gfm_pages import html_of
from records import GEMM, calls_of, kernel, profile

from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Place, Verdict
from pytest_kernelprof.report.markdown import markdown_of

pytestmark = pytest.mark.bulk

WIDTH = 900
STYLE = f"""
body {{ font: 16px/1.5 "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif }}
body {{ margin: 0; width: {WIDTH}px; word-wrap: break-word }}
table {{ border-collapse: collapse; display: block; width: max-content; max-width: 100%;
  overflow: auto }}
td, th {{ border: 1px solid; padding: 6px 13px }}
code {{ font: 85% "Liberation Mono", monospace; padding: .2em .4em; white-space: break-spaces }}
pre {{ overflow: auto; padding: 16px }}
pre code {{ white-space: pre }}
"""
OVER = Verdict(
    limit="max_kernels", outcome="failed", metric="kernels", unit="count", measured=3, allowed=1
)
NAMES = [
    "test_it",
    "test_forward_and_backward_of_attention_with_causal_mask_and_dropout_and_bias_1234",
    "TestFlashAttention::test_matches_the_reference[causal-bfloat16-2x1024x16x64-drop]",
    "TestFusedScaledDotProductAttention::test_is_equal_to_eager_at_every_length[fp16]",
    "TestMultiHeadLatentAttentionDecodeWithPagedCache::test_launches_as_many_kernels",
]
FILES = ["mlp.py", "fused_multi_head_attention_backward_with_rotary_embeddings_hopper.py"]
KERNELS = [GEMM, f"triton_poi_fused_{'native_layer_norm_backward_' * 2}gelu_mul_0"]


CODE = [
    "return self.dropout(F.scaled_dot_product_attention(query, key, value, is_causal=True))",
    "gelu_of_the_projection=torch.nn.functional.gelu(self.projection(x),approximate='tanh')",
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("linked", [False, True])
def test_the_table_is_as_wide_as_the_page_at_most(
    tmp_path: Path,
    opened: Callable[..., Any],
    file: str,
    linked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layers").mkdir()
    Path("layers", file).write_text("\n" * 1116 + "\n".join(CODE * len(NAMES)))
    tests = [
        Test(
            f"tests/layers/test_{file}::{name}",
            (profile([kernel(one, source=f"layers/{file}:{at}")] * 3, verdicts=(OVER,)),),
            outcome="failed",
            limits=("max_kernels",),
            place=Place(f"tests/layers/test_{file}", at),
        )
        for at, (name, one) in enumerate(((n, k) for n in NAMES for k in KERNELS), start=1117)
    ]
    crash = f"ValueError: no {'_'.join(['attribute'] * 9)}"
    tests.append(Test(f"{file}::{NAMES[1]}", outcome="failed", why=crash))
    tests.append(Test(f"{file}::{NAMES[0]}", (calls_of(3, verdicts=(OVER,)),), outcome="failed"))
    path = tmp_path / "summary.html"
    address = (lambda place: f"https://x/{place.file}#L{place.line}") if linked else lambda _: ""
    body = html_of(markdown_of(Run(tuple(tests)), link=address))
    path.write_text(f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{body}")
    page = opened(path.as_uri()).page
    widths = page.evaluate("""[...document.querySelectorAll("table")].map((t) => t.scrollWidth)""")
    assert len(widths) == 1
    assert 500 < widths[0] <= WIDTH
    rows = page.evaluate(
        """[...document.querySelectorAll("tr")].map((r) => r.getBoundingClientRect().height)"""
    )
    assert len(rows) == len(tests) + 1
    assert max(rows) <= 10 * 24 + 13  # lines of a row, and its padding
    assert len(page.query_selector_all("td a")) == 2 * len(tests[:-2]) * linked
