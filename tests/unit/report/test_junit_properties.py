"""The properties of a test in JUnit files: few, flat, and none that is not known."""

from __future__ import annotations

from records import CPU, absent, calls_of, counted, timed

from pytest_kernelprof.records.profile import Verdict
from pytest_kernelprof.records.recording import Integrity
from pytest_kernelprof.report.files import properties_of

OVER = Verdict(limit="max_kernels", outcome="failed")
KEPT = Verdict(limit="max_kernels", outcome="passed")
LOST = Integrity(problems=("a launch without its kernel",))


def test_several_profiles_are_told_together_by_the_worst_verdict() -> None:
    one = calls_of(2, timed("cuda_time", [10.0004]), counted("peak_memory", 64), verdicts=(KEPT,))
    two = calls_of(3, timed("cuda_time", [5]), counted("peak_memory", 32), verdicts=(OVER,))
    assert properties_of([one, two], ()) == [
        ("verdict", "failed"),
        ("kernels", 5),
        ("cuda_time_us", 15.0),
        ("peak_memory_bytes", 64),
        ("profiles", 2),
        ("device", "NVIDIA H200"),
    ]


def test_what_one_profile_does_not_have_is_not_there() -> None:
    found = dict(properties_of([calls_of(1, timed("cuda_time", [5], ())), calls_of(1)], ()))
    assert "cuda_time_us" not in found
    assert (found["kernels"], found["verdict"]) == (2, "no limit")


def test_of_what_is_incomplete_no_number_is_told() -> None:
    found = dict(properties_of([calls_of(1, timed("cuda_time", [5]), integrity=LOST)], ()))
    assert found == {"verdict": "incomplete", "profiles": 1, "device": "NVIDIA H200"}


def test_there_are_eight_at_most_and_none_without_a_profile() -> None:
    times = (timed("cuda_time", [5]), timed("latency", [9]), counted("syncs", 1))
    assert len(properties_of([calls_of(1, *times, counted("peak_memory", 5))], ())) == 8
    assert properties_of([], ()) == []


def test_a_device_of_any_name_is_one_line_of_text() -> None:
    odd = calls_of(1, absent("latency"), environment=type(CPU)("cpu", "a\nb\x1b\ud800"))
    assert dict(properties_of([odd], ()))["device"] == "a\\nb\\x1b\\ud800"
