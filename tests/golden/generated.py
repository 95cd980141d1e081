"""Write the pytest project of a scenario: a file a test file, a function a test."""

from __future__ import annotations

from pathlib import Path

from described import Described, Scenario

# What the kernels of the scenarios name: the lines 6, 7, 9, 11, 12, 14, 15, 17, 19, 21, 22 and 31.
_MODEL = """\
import torch.nn.functional as F


class Gate:
    def forward(self, x):
        y = x * self.scale
        return y * self.shift

    def layer(self, x): return x * self.bias

        h = F.linear(x, self.weight)
        h = F.gelu(h)

        h = h * self.scale
        h = h + self.bias

        h = h.transpose(0, 1).contiguous()

        h = self.compiled(h)

        if loss.item() > self.limit:
            self.losses.copy_(loss)








        return h * self.scale
"""
_HEAD = "import pytest\n\n\ndef work():\n    pass\n"


def write(scenario: Scenario, folder: Path) -> None:
    """Write the test files, and a model whose lines kernels may name."""
    files: dict[str, list[str]] = {}
    for test in scenario.tests:
        file, _, name = test.id.partition("::")
        function, _, parameter = name.partition("[")
        texts = files.setdefault(file, [_HEAD])
        if parameter:
            _add_parameter(texts, test, function, scenario)
        else:
            texts.append(_function(test, function))
    for file, texts in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "model.py").write_text(_MODEL, encoding="utf-8")


def _add_parameter(texts: list[str], test: Described, function: str, scenario: Scenario) -> None:
    """The function of all tests of one name, at the first of them."""
    start = f"{test.id.partition('[')[0]}["
    alike = [one for one in scenario.tests if one.id.startswith(start)]
    if alike[0] is test:
        ids = [one.id[len(start) : -1] for one in alike]
        marker = f"@pytest.mark.parametrize('case', range({len(ids)}), ids={ids!r})"
        texts.append(f"{marker}\n{_function(test, function, 'case')}")


def _function(test: Described, name: str, *parameters: str) -> str:
    decorators = [_marker(limit, value) for limit, value in test.limits.items()]
    if test.bad_marker:
        decorators.append(f"@pytest.mark.{test.bad_marker}")
    if test.device == "cpu":
        decorators.append('@pytest.mark.kernelprof(device="cpu")')
    if test.targets:
        decorators.append(f"@pytest.mark.kernelprof(targets={test.targets!r})")
    if test.skip:
        decorators.append(f"@pytest.mark.skip(reason={test.skip!r})")
    if test.xfail:
        decorators.append(f"@pytest.mark.xfail(reason={test.xfail!r})")
    fixture = "kernel_benchmark" if test.benchmark else "kernel_profile"
    timer = ', timer="cuda"' if test.benchmark else ""
    body = [f"{fixture}(work{timer})"] * (len(test.calls) // (test.reruns + 1))
    if test.compares is not None:
        contest = test.compares
        *_, reference = contest.rounds_us
        callables = ", ".join(f"{one!r}: work" for one in contest.rounds_us)
        asked = f"reference={reference!r}, metric={contest.metric!r}"
        first = next(iter(contest.rounds_us))
        body.append(f"found = kernel_profile.compare_all({{{callables}}}, {asked})")
        if contest.asserted:
            body.append(f"found[{first!r}].{contest.asserted}")
    if test.crash:
        kind, _, words = test.crash.partition(": ")
        body.append(f"raise {kind}({words!r})")
    head = f"def {name}({', '.join((fixture, *parameters))}):"
    return "\n".join([*decorators, head, *(f"    {line}" for line in body or ["pass"])])


def _marker(limit: str, value: object) -> str:
    """``max_kernels: 3``, ``forbid_kernels: [a, b]``, ``max_memcpys: {n: 0, direction: d2h}``."""
    if isinstance(value, dict):
        given = ", ".join(f"{name}={one!r}" for name, one in value.items())
    elif isinstance(value, list):
        given = ", ".join("..." if one == "..." else repr(one) for one in value)
    else:
        given = repr(value)
    return f"@pytest.mark.{limit}({given})"
