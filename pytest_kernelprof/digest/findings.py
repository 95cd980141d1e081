"""What is wrong with a row or a comparison, limit by limit, each with its numbers in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_kernelprof.digest.words import pair_words, rank_words, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_kernelprof.digest.marks import Told
    from pytest_kernelprof.digest.records import Row
    from pytest_kernelprof.schema.run import Verdict

_WRONG = ("over", "incomplete", "undecided")
_SLOWER = "against: cuda_time"


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that is wrong.

    Attributes:
        told: "over", "incomplete", "undecided"; else how the test ended.
        limit: as it was written; of what was before ``snapshot: kernels``; empty of a test that
            ended badly by itself.
        measured, allowed: in words; empty where there are none.
        where: on which ranks, in words; empty where there is one.
    """

    told: Told
    limit: str = ""
    measured: str = ""
    allowed: str = ""
    where: str = ""

    @property
    def words(self) -> str:
        """``max_kernels: 16 > 14``, for titles."""
        if not self.limit:
            return f"test {self.told}"
        if self.told != "over":
            return f"{self.limit}: {self.told}{self.where}"
        if not self.measured:
            return f"{self.limit}: {'worse' if self.limit == _SLOWER else 'broken'}{self.where}"
        sign = "<" if self.limit.startswith("min_") else ">"
        return f"{self.limit}: {self.measured} {sign} {self.allowed}{self.where}"


def findings_of(row: Row) -> tuple[Found, ...]:
    """All that is wrong with a row, limits first; of one that is marked at least one."""
    found = [*_by_verdicts(row.profile.verdicts), *_by_what_was_before(row)]
    if not found and row.told is not None:  # over, but of no count: of times in turn
        found = [Found(row.told, _SLOWER if row.told == "over" else "")]
    return tuple(found)


def wrong_with(verdicts: Iterable[Verdict]) -> tuple[Found, ...]:
    """The same of verdicts alone, as those of a comparison of callables."""
    return tuple(_by_verdicts(verdicts))


def _by_verdicts(verdicts: Iterable[Verdict]) -> Iterator[Found]:
    for one in verdicts:
        if one.outcome in _WRONG and (one.of_limit or one.outcome != "over"):
            yield Found(one.outcome, title(one), *_values(one), rank_words(one))


def _values(verdict: Verdict) -> tuple[str, str]:
    if verdict.measured is None or verdict.allowed is None:
        return "", ""
    if verdict.unit == "times":
        return f"{verdict.measured:.3f} times", f"{verdict.allowed:.3f} times"
    return pair_words(verdict.unit, verdict.measured, verdict.allowed)


def _by_what_was_before(row: Row) -> Iterator[Found]:
    """A launch more for each kernel more is nothing else that is wrong."""
    kernels, launches = row.broken.get("kernels"), row.broken.get("launches")
    alike = (
        kernels
        and launches
        and launches.measured - kernels.measured == (launches.allowed - kernels.allowed)
    )
    for one in row.broken.values():
        is_told = alike and one.metric == "launches"
        if one.by in ("snapshot", "compare", "against") and not is_told:
            values = pair_words(one.unit, one.measured, one.allowed)
            yield Found("over", f"{one.by}: {one.metric}", *values)
