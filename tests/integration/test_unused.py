"""A session that uses nothing of ours pays nothing and sees nothing."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("bridged", [False, True], ids=["", "pytest-benchmark"])
def test_torch_is_not_imported_and_nothing_is_printed(
    pytester: pytest.Pytester, workers: str, monkeypatch: pytest.MonkeyPatch, bridged: bool
) -> None:
    pytester.makeconftest(
        """
import sys
def pytest_unconfigure(config):
    heavy = [name for name in ("torch", "numpy", "msgspec") if name in sys.modules]
    print("heavy:", heavy)
    ours = [name.partition(".")[2] for name in sys.modules if name.startswith(PACKAGE)]
    print("rooms:", *sorted({name.split(".")[0] for name in ours}))
    print("bridge:", "plugin.benchmark" in ours)
""".replace("PACKAGE", repr("pytest_kernelprof."))
    )
    pytester.makepyfile("def test_one(): pass\ndef test_two(): pass\n")
    # Other plugins of the machine may load what they like.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    ours = ["-p", "pytest_kernelprof.plugin.hooks", "-p", "xdist"]
    if bridged:
        pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
        ours += ["-p", "pytest_benchmark.plugin"]
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *ours, workers)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "heavy: [[][]]",
            "rooms: errors limits plugin records system units",
            f"bridge: {bridged}",
        ]
    )
    result.stdout.no_fnmatch_line("*kernel profiles*")


def test_the_plugin_can_be_turned_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass\n")
    result = pytester.runpytest_subprocess("-p", "no:kernelprof", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("option", ["--collect-only", "--markers", "--fixtures", "--help"])
def test_listing_needs_no_torch(pytester: pytest.Pytester, option: str) -> None:
    pytester.makeconftest(
        """
import sys
def pytest_unconfigure(config):
    print("torch:", "torch" in sys.modules)
"""
    )
    pytester.makepyfile("def test_it(kernel_profile): pass\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", option)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*torch: False*"])
