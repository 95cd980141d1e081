"""Runs whose every name is an attack, or breaks what is not made for it."""

from __future__ import annotations

from msgspec.structs import replace
from records import held_to
from rounds import Recording, over, profile_of, run_of

from pytest_kernelprof.records.comparison import (
    KernelChange,
    KernelDiff,
    KernelSide,
    MetricDelta,
    ProfileComparison,
    RunComparison,
    Source,
)
from pytest_kernelprof.records.document import Run, Test
from pytest_kernelprof.records.profile import Copy, Kernel, Place, Wait
from pytest_kernelprof.records.recording import Environment, Integrity

SOURCES: tuple[Source, ...] = ("snapshot", "revision", "run")
TEXTS = (
    "<script>window.hurt = 1</script>",
    "</script></style></title><script>window.hurt = 2</script>",
    "\" onmouseover=\"window.hurt = 3\" ' onfocus='window.hurt = 4' autofocus",
    "<img src=x onerror='window.hurt = 5'>",
    "javascript:window.hurt=6",
    "<!-- --><![CDATA[ ]]> &lt;b&gt; &#60; {{ 7*7 }} {% raw %} ${7*7}",
    "a|b\nc\r\nd\te \x1b[31mred\x1b[0m \x00 \x7f \x9b \u2028 \u2029",
    "\u202eright to left\u202c שלום العربية 漢字 🧪👩‍🔬 \ud800 \ufffe",
    "x" * 100_000,
    "long words " * 10_000,
    "",
)


def hostile_test(text: str, number: int) -> Test:
    """One whose names are all this text, over its limits in every way."""
    made = Recording()
    lanes = (f"thread {text}", f"device 0 stream {text}")
    for i in range(3):
        made.add("operator", text, 10 * i, 9, lanes[0])
        made.add("annotation", text, 10 * i + 1, 7, lanes[0])
        made.add("call", text, 10 * i + 2, 3, lanes[0], i + 1)
        made.add("kernel", text, 10 * i + 6, 5, lanes[1] if i else "device 0 stream 7", i + 1)
    kernel = Kernel(
        *(text, 5.0, (1, 1, 1), (1, 1, 1), 8, 0, 0, 7, text, (text, f"{text}2"), f"{text}:3")
    )
    verdict = replace(over(3, 1), qualifier=text, why=text, note=text, place=Place(text, 3))
    side = KernelSide(text, (text, f"{text}2"), f"{text}:4")
    changes = (KernelChange("added", current=side, lines=(text, text)), KernelChange("moved", side))
    worse = MetricDelta(name="kernels", baselines=(1,), current=3, change="worse", judged=True)
    baselines = (
        ProfileComparison(
            source=source,
            test=f"tests/{text}.py::{text}[{text}-{number}]",
            label=text,
            change="worse",
            kernels=KernelDiff(baseline_kernels=1, current_kernels=3, changes=changes),
            metrics=(worse,),
            differences=(text,),
            lost=("syncs",),
            incomplete=(text,),
            notes=(text,),
        )
        for source in SOURCES
    )
    profile = replace(
        held_to(profile_of(3, verdict), *baselines),
        label=text,
        environment=Environment("cuda", text, text, {"torch": text, "triton": text}),
        kernels=(kernel,) * 3,
        copies=(Copy(text, "h2d", 3, 1.0, (text,), text),),
        waits=(Wait(text, (text,), text),),
        timeline=made.timeline(),
        integrity=Integrity(problems=(text,) if number % 2 else (), cold=(text,)),
        in_place=(text,),
        trace=text,
        place=Place(text, 5),
    )
    return Test(f"tests/{text}.py::{text}[{text}-{number}]", (profile,), outcome="failed")


def hostile_run() -> Run:
    """All of these, one a test, and in what is told of the run."""
    worst = TEXTS[1]
    return replace(
        run_of(*(hostile_test(text, i) for i, text in enumerate(TEXTS))),
        unfinished=TEXTS,
        versions={worst: worst},
        baselines=tuple(
            RunComparison(source=one, name=worst, began=worst, notes=TEXTS, gone=TEXTS)
            for one in SOURCES
        ),
    )
