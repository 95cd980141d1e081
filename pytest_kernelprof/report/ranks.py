"""Several ranks side by side: the odd one first, then a row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelprof.digest.diff_causes import causes_of_diff
from pytest_kernelprof.digest.ranks import odd_ones
from pytest_kernelprof.digest.words import count_words, line_words, place_words
from pytest_kernelprof.report.rank_table import rank_table, ranks_told, texts_of, waiting_words
from pytest_kernelprof.report.spans import Span
from pytest_kernelprof.report.widths import left, wrapped
from pytest_kernelprof.report.words import completeness_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_kernelprof.digest.ranks import Odd, Rank
    from pytest_kernelprof.report.rank_table import RankTable
    from pytest_kernelprof.report.spans import Line
    from pytest_kernelprof.report.style import Style
    from pytest_kernelprof.schema.diff import ProfileDiff
    from pytest_kernelprof.schema.run import Profile

_MOST_ODD = 3
_MOST_CAUSES = 6
_WORDS = {
    "kernels": ("kernel", "kernels"),
    "memcpys": ("copy", "copies"),
    "syncs": ("wait", "waits"),
}


def rank_lines(
    ranks: Sequence[Rank], unread: Mapping[str, str], diffs: Mapping[str, ProfileDiff], style: Style
) -> list[Line]:
    """What they come to and which one is the odd one, a row each, and what that one does.

    Args:
        unread: why a file is no trace, by its name.
        diffs: of ranks that are not as most are, by name, how they differ from one that is.
    """
    odd = odd_ones(ranks)
    lines = [*_verdict(ranks, unread, odd, style), *_places(ranks, style)]
    lines += [line for one in waiting_words(ranks, odd) for line in _sentence(one, style, "")]
    lines += [(), *_table_lines(rank_table(ranks, odd, _what(ranks)), style)]
    for one in odd:
        lines += _why(one, diffs, _what(ranks), style)
    for one in odd[:1]:
        if one.like.file != one.rank.file:
            words = f"kernelprof diff {one.like.file} {one.rank.file}"
            lines += [(), (Span(style.say(words), "dim"),)]
    return lines


def _what(ranks: Sequence[Rank]) -> str:
    """Files that no number of a rank is found in the names of are traces."""
    return "rank" if all(one.name.partition(".")[0].isdigit() for one in ranks) else "trace"


def _verdict(
    ranks: Sequence[Rank], unread: Mapping[str, str], odd: Sequence[Odd], style: Style
) -> Iterator[Line]:
    lost = [one for one in ranks if not one.profile.integrity.complete]
    what = _what(ranks)
    told = [f"{what} {one.name}: {one.profile.integrity.problems[0]}" for one in lost]
    told += [f"{name} is not read: {why}" for name, why in unread.items()]
    if told:
        yield from _sentence(f"INCOMPLETE: {told[0]}", style, "red")
        for one in told[1:]:
            yield from _sentence(one, style, "red")
    kernels = sum(one.profile.kernel_count for one in ranks)
    on_cpu = all(one.profile.environment.kind == "cpu" for one in ranks)
    counted = count_words(kernels, "operator" if on_cpu else "kernel")
    state = "" if told else f"; {completeness_words([one.profile.integrity for one in ranks])}"
    words = f"{count_words(len(ranks), what)}, {counted}{state}."
    yield from _sentence(
        " ".join([words, *(_odd_words(one, what) for one in odd[:_MOST_ODD])]), style, "bold"
    )


def _sentence(text: str, style: Style, colour: str) -> Iterator[Line]:
    yield from ((Span(one, colour),) for one in wrapped(style.say(text), style.width))  # type: ignore[arg-type]


def _odd_words(odd: Odd, what: str) -> str:
    """For example ``Rank 3 differs: 2 kernels and 2 waits more, 16 % more GPU time.``"""
    told = []
    for sign, word in ((1, "more"), (-1, "fewer")):
        several = [
            count_words(abs(int(by)), *_WORDS[name])
            for name, by in odd.counts.items()
            if by * sign > 0
        ]
        if several:
            told.append(f"{' and '.join(several)} {word}")
    if odd.slower:
        told.append(
            f"{abs(odd.slower) * 100:.0f} % {'more' if odd.slower > 0 else 'less'} GPU time"
        )
    return f"{what.capitalize()} {odd.rank.name} differs: {', '.join(told)}."


def _places(ranks: Sequence[Rank], style: Style) -> Iterator[Line]:
    places = dict.fromkeys(place_words(one.profile.environment) for one in ranks)
    yield from _sentence("; ".join(places), style, "dim")


def lines_of_ranks(profile: Profile, style: Style, indent: int) -> Iterator[Line]:
    """A row a rank and a total, and what is said of them; nothing of one rank."""
    told = ranks_told(profile)
    if told is None:
        return
    table, sentences = told
    pad = Span(" " * indent)
    yield from ((pad, *line) for line in _table_lines(table, style))
    for sentence in sentences:
        lines = wrapped(style.say(sentence), max(style.width - indent, 20))
        yield from ((pad, Span(line)) for line in lines)


def _table_lines(table: RankTable, style: Style) -> Iterator[Line]:
    title, *rows = texts_of(table)
    yield (Span(style.say(title), "dim"),)
    for text, row in zip(rows, table.rows, strict=True):
        told = Span(style.say(text), "yellow" if row.differs else "")
        yield (told, Span("  <- differs")) if row.differs else (told,)


def _why(odd: Odd, diffs: Mapping[str, ProfileDiff], what: str, style: Style) -> Iterator[Line]:
    """What it launches that the others do not."""
    found = causes_of_diff(diffs[odd.rank.name]) if odd.rank.name in diffs else ()
    if not found:
        return
    yield ()
    head = f"{what} {odd.rank.name} "
    for at, cause in enumerate(found[:_MOST_CAUSES]):
        where = f"  {line_words(cause.place)}" if cause.place else ""
        words = style.say(f"{cause.sign or '~'} {cause.text}{where}")
        yield (Span(left(head if not at else "", len(head)) + words),)
    if len(found) > _MOST_CAUSES:
        yield (Span(" " * len(head) + f"{len(found) - _MOST_CAUSES} more changes"),)
