"""Draw the story: one bar a candidate, one piece a kernel, as long as the kernel takes.

python example_project/benchmarks/plot.py many-rows.jsonl story.svg
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # as in fused_mlp.py

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from benchmarks.candidates import TITLES
from benchmarks.results import Measured, read

STORY = ("eager", "compile", "liger", "liger_fused", "ours")
GEMMS = ("aten::mm", "aten::addmm")
COLORS = {"GEMM": "#4c72b0", "pointwise": "#dd8452", "GEMMs and activation": "#55a868"}


def draw(shapes: list[Measured], place: str, path: Path) -> None:
    """One panel a shape; the picture's format is that of the file's name."""
    figure, panels = plt.subplots(
        len(shapes), figsize=(9, 0.8 + 2.4 * len(shapes)), sharex=True, squeeze=False
    )
    for axes, one in zip(panels[:, 0], shapes, strict=True):
        _panel(axes, one)
    panels[-1, 0].set_xlabel("GPU time, us (median of interleaved calls, cold L2)")
    patches = [Patch(color=color, label=kind) for kind, color in COLORS.items()]
    panels[0, 0].legend(handles=patches, loc="lower right", fontsize=8, frameon=False)
    figure.text(0.01, 0.01, place, fontsize=5, color="gray")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(path, dpi=150)


def _panel(axes: Any, one: Measured) -> None:
    drawn = {name: one.results[name] for name in STORY if name in one.results}
    drawn = {name: result for name, result in drawn.items() if result.kernels and result.us}
    for row, result in enumerate(drawn.values()):
        at, kernels = 0.0, result.kernels or []
        gemms = [operator in GEMMS or "_mm" in name for operator, name, _ in kernels]
        # A gated MLP is three GEMMs: where fewer are to be seen, the rest is in the others.
        other = "pointwise" if sum(gemms) >= 3 else "GEMMs and activation"
        for is_gemm, (_, _, time) in zip(gemms, kernels, strict=True):
            color = COLORS["GEMM" if is_gemm else other]
            axes.barh(row, time, left=at, color=color, edgecolor="white", linewidth=1.2)
            at += time
        number = f"{len(kernels)} kernel{'s' if len(kernels) > 1 else ''}"
        axes.text(at, row, f"  {number}, {result.us:.0f} us", va="center", fontsize=9)
    axes.set_yticks(range(len(drawn)), [TITLES[name] for name in drawn])
    axes.invert_yaxis()
    axes.margins(x=0.35)
    axes.set_title(one.shape.label, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("json", type=Path, help="what fused_mlp.py --json wrote")
    parser.add_argument("picture", type=Path, help="a .svg or .png file")
    parser.add_argument("--regime", default="many-rows", help="whose shapes to draw")
    options = parser.parse_args()
    places, measured = read([options.json])
    shapes = [one for one in measured if one.shape.regime == options.regime]
    if not shapes:
        parser.error(f"{options.json} has no shape of the regime {options.regime}")
    draw(shapes, places[0], options.picture)


if __name__ == "__main__":
    main()
