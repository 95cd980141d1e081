"""Quantities with units, as users write them."""

from __future__ import annotations

import pytest

from pytest_kernelprof.units import (
    format_bytes,
    format_rate,
    format_time,
    parse_bytes,
    parse_percent,
    parse_rate,
    parse_time,
    whole_number,
)


@pytest.mark.parametrize(
    ("text", "us"),
    [("200us", 200), ("200 µs", 200), ("1.5ms", 1500), ("2s", 2e6), ("30ns", 0.03), ("1e2us", 100)],
)
def test_times_become_microseconds(text: str, us: float) -> None:
    assert parse_time(text) == pytest.approx(us)


@pytest.mark.parametrize(
    "text", ["200", "us", "", "200 fortnights", "-1us", "nanus", "1e999s", "2m"]
)
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="us"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "size"), [("1 MB", 10**6), ("64MiB", 2**26), ("512 B", 512), ("1.5 kb", 1500)]
)
def test_sizes_become_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["1", "1 MBit", "-1 MB", "many"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("600 TFLOP/s", "FLOP/s", 600e12),
        ("1.5PFLOP/s", "FLOP/s", 1.5e15),
        ("80%", "FLOP/s", 0.8),
        ("3 TB/s", "B/s", 3e12),
        ("100 %", "B/s", 1.0),
    ],
)
def test_rates_and_shares_of_a_peak_are_read(text: str, unit: str, value: float) -> None:
    assert parse_rate(text, unit) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "3", "3 TB/h", "3 Tb/s", "3 TFLOP/s", "0 TB/s", "101%"])
def test_what_is_no_rate_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r'write "3 TB/s", or "80%" of the peak'):
        parse_rate(text, "B/s")


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("FLOP/s", 612.44e12, "612.4 TFLOP/s"),
        ("FLOP/s", 989.5e12, "989.5 TFLOP/s"),
        ("FLOP/s", 999.97e12, "1 PFLOP/s"),
        ("B/s", 3.124e12, "3.124 TB/s"),
        ("B/s", 570e9, "570 GB/s"),
        ("B/s", 100.0, "0.0001 MB/s"),
        ("FLOP/s", 0.0, "0 MFLOP/s"),
    ],
)
def test_rates_are_shown_with_the_prefix_that_fits(unit: str, value: float, text: str) -> None:
    assert format_rate(unit, value) == text


def test_percentages_become_fractions() -> None:
    assert parse_percent("30%") == pytest.approx(0.3)
    for text in ("30", "101%", "-1%"):
        with pytest.raises(ValueError, match="30%"):
            parse_percent(text)


@pytest.mark.parametrize(
    ("us", "text"), [(0.86, "0.9us"), (234.94, "234.9us"), (1250, "1.25ms"), (2.1e6, "2.10s")]
)
def test_times_are_shown_in_the_unit_that_fits(us: float, text: str) -> None:
    assert format_time(us) == text


def test_sizes_are_shown_in_the_unit_that_fits() -> None:
    assert [format_bytes(n) for n in (4, 4096, 12_582_912, 3e9)] == [
        "4 B", "4.1 KB", "12.6 MB", "3 GB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0.0us"), (999.94, "999.9us"), (999.96, "1.00ms"), (999_960, "1.00s"), (1e9, "1000.0s")],
)
def test_a_time_next_to_the_end_of_a_unit_is_never_shown_beyond_it(us: float, text: str) -> None:
    assert format_time(us) == text


@pytest.mark.parametrize("us", [float("nan"), float("inf")])
def test_what_is_no_number_is_shown_as_unknown(us: float) -> None:
    assert format_time(us) == "?"


@pytest.mark.parametrize("text", ["200us", "1.5ms", "2s"])
def test_what_is_shown_can_be_written_again(text: str) -> None:
    assert parse_time(format_time(parse_time(text))) == pytest.approx(parse_time(text))


@pytest.mark.parametrize("value", [1, 24, 10**30])
def test_a_whole_number_is_kept(value: int) -> None:
    assert whole_number(value) == value


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "3", None])
def test_what_is_no_whole_number_of_one_or_more_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^expected a whole number of one or more$"):
        whole_number(value)
