"""Read from each rendered text what it says of the run; adapt this when words change.

One function a format. What a format does not speak of by its design is None; what it should say
and does not is empty, which is then another fact than the scenario's.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Failed = dict[str, frozenset[str]]

CHANGES = ("worse", "better", "changed", "undecided")
_UNDECIDED = r"(\d+)(?: of \d+ tests? (?:is|are))? undecided"
_NO_REASON = frozenset[str]()


@dataclass(frozen=True)
class Facts:
    """What a text says.

    Attributes:
        failed: the tests that it marks as failed, each with the reasons that it names: limits,
            "snapshot", "revision" (or another environment), "earlier run", "crash", ...
        has_reasons: whether the format names reasons.
        changes: how many tests are worse, better, changed, undecided.
        not_judged: how many tests were not judged that should have been.
        verdict: "failed", "neutral" or "passed"; joined by "and" where it says several.
        exit: the exit status that is printed below it.
        causes: kernels with their numbers, as ``add x100``.
        places: the line that a failed test is told at.
        differing: kernels that only one side has, as ``+silu`` and ``-gelu``.
    """

    failed: Failed | None = None
    has_reasons: bool = True
    changes: dict[str, int] | None = None
    not_judged: int | None = None
    verdict: str | None = None
    exit: int | None = None
    causes: frozenset[str] | None = None
    places: dict[str, str] | None = None
    differing: frozenset[str] | None = None


def expected(told: Mapping[str, Any]) -> Facts:
    """The facts of a scenario, as its file has them."""
    not_judged = told.get("not_judged", 0)
    changes = {name: len(told.get(name, ())) for name in CHANGES}
    return Facts(
        failed={name: frozenset(why) for name, why in told.get("failed", {}).items()},
        changes=changes,
        not_judged=not_judged if isinstance(not_judged, int) else len(not_judged),
        verdict=told["verdict"],
        exit=told["exit"],
        causes=frozenset(told["causes"]) if "causes" in told else None,
        places=told.get("places"),
        differing=frozenset(told["differing"]) if "differing" in told else None,
    )


def as_told(right: Facts, fact: str, told: Facts, file: str) -> Any:
    """A fact as a format should state it; None where it is not about that, by its design.

    Args:
        right: the facts of the run. told: what the format states. file: the format's.
    """
    found, wanted = getattr(told, fact), getattr(right, fact)
    if found is None or wanted is None:
        return None
    if fact == "failed":
        return {name: _reasons_in(file, why, told) for name, why in wanted.items()}
    if fact == "changes":
        return {name: wanted[name] for name in found}
    if fact == "places":
        return {**found, **wanted}
    return wanted


def _reasons_in(file: str, reasons: frozenset[str], told: Facts) -> frozenset[str]:
    if not told.has_reasons:
        return _NO_REASON
    if file == "junit.txt":  # whether the test is over anything
        if reasons & {"incomplete", "nothing measured"}:
            return frozenset({"incomplete"})
        return frozenset({"failed"} if reasons - {"crash", "bad marker"} else ())
    if file == "run.json":  # which has no message of a failure
        by_message = {"bad marker", "nothing measured"}
        return frozenset("crash" if one in by_message else one for one in reasons)
    return reasons


def of_terminal(text: str) -> Facts:
    """A run's output with its report, and ``kernelprof report``."""
    sections = _sections(text)
    ours = [line for name, lines in sections.items() if _is_ours(name) for line in lines]
    sentences = list(_sentences(ours))
    status = re.search(r"^exit status (\d)$", text, re.M)
    return Facts(
        failed=dict.fromkeys(_marked(ours), _NO_REASON),
        has_reasons=False,
        changes=_changes("\n".join(ours)),
        not_judged=_not_judged(text),
        verdict=_verdict(sentences, ours),
        exit=int(status[1]) if status else None,
        causes=_causes(ours),
        differing=_differing(text),
    )


def of_terminal_below_failures(text: str) -> Facts:
    """The same where failures are printed: those have the kernels."""
    return dataclasses.replace(of_terminal(text), causes=None)


def of_report(text: str) -> Facts:
    """``kernelprof report``: all lines are ours, and the exit status is the command's."""
    lines = text.splitlines()[1:-1]
    return Facts(
        failed=dict.fromkeys(_marked(lines), _NO_REASON),
        has_reasons=False,
        changes=_changes("\n".join(lines)),
        not_judged=_not_judged(text),
        verdict=_verdict(_sentences(lines), lines),
        causes=_causes(lines),
    )


def of_compare(text: str) -> Facts:
    """``kernelprof compare``, whose exit status is that of the comparison."""
    lines = text.splitlines()[1:-1]
    sentences = list(_sentences(lines))
    return Facts(
        failed=dict.fromkeys(_marked(lines), _NO_REASON),
        has_reasons=False,
        changes=_changes("\n".join(lines)),
        verdict=_verdict(sentences, lines),
        exit=int(text.split()[-1]),
    )


def of_quiet(text: str) -> Facts:
    """A run with ``-q``: pytest's summary, and lines of ours where there are any."""
    found = of_terminal(text)
    ours = [line for name, lines in _sections(text).items() if _is_ours(name) for line in lines]
    summary = re.findall(r"^(?:FAILED|ERROR) \S+?::(.*)$", text, re.M)
    changes = _changes("\n".join([*ours, *_snapshot_words(text)]))
    undecided = re.search(
        r"^kernelprof: .*\b(\d+)(?: of \d+ tests? (?:is|are))? undecided", text, re.M
    )
    changes["undecided"] = max(changes["undecided"], int(undecided[1]) if undecided else 0)
    return Facts(
        failed={_name(words): _NO_REASON for words in summary},
        has_reasons=False,
        changes=changes,
        not_judged=found.not_judged,
        verdict=found.verdict if ours else None,
        exit=found.exit,
    )


def of_failures(text: str) -> Facts:
    """The texts of failures and errors."""
    parts = re.split(r"^_+ (?:ERROR at \w+ of )?(test_.*?) _+$", text, flags=re.M)
    failed: Failed = {}
    for name, words in zip(parts[1::2], parts[2::2], strict=True):
        failed[_name(name)] = _reasons(words.splitlines())
    return Facts(failed=failed)


_BLOCK = re.compile(r"^(`{3,})\w*\n.*?^\1$\n?", re.M | re.S)
_DETAILS = re.compile(
    r"^<details(?: open)?><summary>(?:Kernels|Causes)(?: and commands)? of <b>(.*?)</b></summary>$",
    re.M,
)
_NO_REMEDY = {"crash"}
"""Of these a row may have nothing to do."""


def of_markdown(text: str) -> Facts:
    """The step's summary."""
    text = text.replace("<wbr>", "").replace("→", "->")
    plain = re.sub(r"\\([^\w\s])", r"\1", text)
    heading, *rest = plain.splitlines()
    failed: dict[str, set[str]] = {}
    # What the title of details names, and what stands below it.
    parts = _DETAILS.split(_BLOCK.sub("", text.replace("\u200c", "")))[1:]
    details = [
        (html.unescape(name), below.partition("</details>")[0])
        for name, below in zip(parts[::2], parts[1::2], strict=True)
    ]
    for row in re.findall(r"^\| \S+ \| .* \|$", text, flags=re.M):
        sign, what, todo = row[2:-2].split(" | ")
        wrong, *lines = what.split("<br>")  # below are lines of code, and why
        wrong, name = _wrong_and_name(wrong)
        at = next((at for at, (title, _) in enumerate(details) if title == name), None)
        below = "" if at is None else details[at][1]
        details = details if at is None else details[at + 1 :]
        if sign != "❌":
            continue
        assert ".py" in lines[0], row
        facts = [_unescaped(one) for one in (*lines, *re.findall("^- (.*)$", below, re.M))]
        for one, why in _of_each(name, wrong, facts):
            # What a crash says may name a limit.
            said = why if re.match(r"\w+Error: ", why[0]) else re.split(r"; |, ", "; ".join(why))
            reasons = _reasons(said)
            assert todo or reasons <= _NO_REMEDY, row
            failed.setdefault(_name(one), set()).update(reasons)
    mark = {"❌": "failed", "✅": "passed"}.get(heading.split()[1], "neutral")
    return Facts(
        failed={name: frozenset(why) for name, why in failed.items()},
        changes=_changes(_against(plain)),
        not_judged=_not_judged(plain),
        verdict=mark,
        causes=_causes(rest),
        differing=_differing(plain),
    )


def _against(plain: str) -> str:
    """With the title of what else changed as a line on the baseline, where there is none."""
    told = re.search(r"^<sub>against ", plain, re.M)
    return plain if told else plain.replace("<b>Also changed:</b>", "against it:")


def _unescaped(markdown: str) -> str:
    plain = re.sub(r"\\([^\w\s])", r"\1", markdown.replace("\u200c", ""))
    return html.unescape(plain).replace("\N{NO-BREAK SPACE}", " ")


def _wrong_and_name(what: str) -> tuple[str, str]:
    """Of ``**what** in `test``` and ``**what** (12 tests)``."""
    what = re.sub(r"(`|</code>)(, profile \d+)$", r"\2\1", what)
    found = re.fullmatch(r"(?:\*\*(.*)\*\* )?(?:in (?:`|<code>)(.*)(?:`|</code>)|\((.*)\))", what)
    assert found is not None, what
    wrong, test, tests = found.groups(default="")
    return _unescaped(wrong), html.unescape(test) or tests


def _of_each(name: str, wrong: str, facts: list[str]) -> list[tuple[str, list[str]]]:
    """What is wrong with each test, by its name.

    Args:
        name: the test, or how many. wrong: with the worst.
        facts: of several tests with their names, ``test_a, test_b: max_kernels: 5 > limit 4``; by
            these alone where the same is wrong with them.
    """
    if not re.fullmatch(r"\d+ tests", name):
        return [(name, [wrong, *facts])]
    found = []
    for one in facts:
        if one.startswith("test_"):
            names, _, words = one.partition(": ")
            found += [(test, [words or wrong]) for test in _NAME.findall(names)]
    return found


def of_annotations(text: str) -> Facts:
    """GitHub's commands: the title names the test, or the first lines name those of each cause."""
    failed: Failed = {}
    places = {}
    found = re.findall(
        r"^::error file=(.*?),line=(\d+)(?:,endLine=\d+)?,title=(.*?)::(.*)$", text, re.M
    )
    for file, line, title, data in found:
        first, _, others = title.replace("%3A", ":").replace("%2C", ",").partition("); ")
        head, _, name = first.rpartition(" (")
        name, _, more = name.partition(")")
        others = others or more
        wrong, lines = head.removeprefix("kernelprof: "), data.split("%0A")
        above = list(itertools.takewhile(lambda line: not line.startswith("to do: "), lines))
        told = [
            (one, [why or wrong])
            for names, why in map(_named, lines if others else above)
            for one in names
        ]
        told += [(name, [wrong, *above])] if others or not told else []
        for one, why in told:
            # What a crash says may name a limit.
            parts = why if re.match(r"\w+Error: ", why[0]) else re.split(r"; |, ", "; ".join(why))
            places[_name(one)] = f"{file}:{line}"
            failed[_name(one)] = _reasons(parts)
    return Facts(
        failed=failed,
        not_judged=_not_judged(text),
        causes=_causes(text.splitlines()),
        places=places,
    )


def of_page(text: str) -> Facts:
    """The HTML page, as text."""
    lines = text.splitlines()
    at = lines.index("Dark") + 1
    told = " ".join(lines[at : at + 2])
    below = list(itertools.pairwise(lines))
    marked = [line for line in lines if re.match(r"\| [✗!?] ", line)]
    causes = [line for row, line in below if row in marked and line.startswith("| | ")]
    changes = [f"{head}: {words}" for head, words in below if head.startswith("against ")]
    failed = [both for both in below if re.match(r"\| [✗!] \| ", both[0])]
    names = [
        _name(name)
        for row, why in failed
        for name in (_NAME.findall(why) if re.match(r"\| . \| \d+ tests$", row) else [row])
    ]
    return Facts(
        failed=dict.fromkeys(names, _NO_REASON),
        has_reasons=False,
        changes=_changes(". ".join([told, *changes])),
        not_judged=_not_judged(text),
        verdict=_verdict([told], []),
        causes=_causes([*marked, *causes]),
        differing=_differing(text),
    )


def of_junit(text: str) -> Facts:
    """The properties: of each failing test, whether they say that it is over a limit."""
    failed: Failed = {}
    for case in re.split(r"^(?=\S+::)", text, flags=re.M)[1:]:
        if re.match(r".* (failure|error)$", case, re.M):
            over = re.search(r"kernelprof\.verdict: (failed|incomplete)$", case, re.M)
            name = case.splitlines()[0].partition("::")[2]
            failed[_name(name)] = frozenset({over[1]} if over else ())
    return Facts(failed=failed, not_judged=_not_judged(text))


def of_json(text: str) -> Facts:
    """The run document."""
    if "lines left out" in text:
        return Facts()
    document = json.loads(text)
    failed: Failed = {}
    undecided = not_judged = 0
    for test in document["tests"]:
        verdicts = [
            verdict
            for one in (*test.get("profiles", ()), *test.get("comparisons", ()))
            for verdict in one.get("verdicts", ())
        ]
        limits = (one for one in verdicts if not one.get("comparison"))
        left = any(one["outcome"] == "not judged" for one in limits)
        not_judged += bool(test.get("not_judged")) or left
        undecided += any(one["outcome"] == "undecided" for one in verdicts)
        if test.get("outcome") in ("failed", "error"):
            over = {one["limit"] for one in verdicts if one["outcome"] == "failed"}
            over |= {"incomplete" for one in verdicts if one["outcome"] == "incomplete"}
            failed[_name(test["id"])] = frozenset(_SOURCES.get(one, one) for one in over)
    failed = {name: why or frozenset({"crash"}) for name, why in failed.items()}
    kinds = {one["source"] for one in document["baselines"]}
    in_turn = next(iter(kinds & {"revision", "environment"}), None)
    counts = _changes_in(document, in_turn) if in_turn else Counter()
    counts["undecided"] = max(counts["undecided"], undecided)
    states = [(test.get("snapshot") or {}).get("state") for test in document["tests"]]
    counts["changed"] += states.count("changed")
    changes = None if "run" in kinds else {name: counts[name] for name in CHANGES}
    return Facts(failed=failed, changes=changes, not_judged=not_judged)


def _changes_in(document: dict[str, Any], source: str) -> Counter[str]:
    """How many tests compare so, each by its worst profile."""
    worst: dict[str, str] = {}
    for test in document["tests"]:
        for profile in test.get("profiles", ()):
            for verdict in profile.get("verdicts", ()):
                found = verdict.get("comparison") or {}
                if found.get("source") == source:
                    change = found.get("change", "same")
                    known = worst.get(test["id"], "same")
                    worst[test["id"]] = min(change, known, key=_WORST_FIRST.index)
    return Counter(worst.values())


FORMATS: Mapping[str, Callable[[str], Facts]] = {
    "terminal-80.txt": of_terminal_below_failures,
    "terminal-120.txt": of_terminal,
    "quiet.txt": of_quiet,
    "failures.txt": of_failures,
    "summary.md": of_markdown,
    "annotations.txt": of_annotations,
    "page.txt": of_page,
    "junit.txt": of_junit,
    "run.json": of_json,
    "report.txt": of_report,
    "compare.txt": of_compare,
}

_SOURCES = {"against": "revision"}
_WORST_FIRST = ("worse", "undecided", "not compared", "better", "changed", "same")
_REASONS = (
    (r"(?:(?:max|min)_\w+|(?:forbid|expect)_kernels|not_slower)(?=[(:, ]|$)", None),
    (r"snapshot\b", "snapshot"),
    (r"(?:against\b|worse than \S+ \()", "revision"),
    (r"worse than the earlier run\b", "earlier run"),
    (r"worse than \S+(?=$|:)", "revision"),
    (r"earlier run\b", "earlier run"),
    (r"profile incomplete", "incomplete"),
    (r".*MarkerError: ", "bad marker"),
    (r".*the test asks for kernel_profile but profiled nothing", "nothing measured"),
    (r"(?:E +)?[\w.]+Error: ", "crash"),
)


def _reasons(lines: Iterable[str]) -> frozenset[str]:
    found = set()
    for line in lines:
        for pattern, reason in _REASONS:
            match = re.match(pattern, re.sub(r"^E   (?=\S)(?!\w+Error: )", "", line))
            if match:
                found.add(reason or re.split(r"[(: ]", match[0])[0])
                found |= {"max_launches"} if ", max_launches: " in line else set()
                break
        if was := re.search(r"\(was \d+ in (the earlier run)?", line):
            found.add("earlier run" if was[1] else "revision")
    if re.search("incomplete|no number", " ".join(lines)):
        return frozenset({"incomplete"})
    return frozenset(found)


_NAME = re.compile(r"\btest_\w+\b(?!\.py)(?:\[[^]]*\])?")


def _named(line: str) -> tuple[list[str], str]:
    """The tests that a line begins with, and what it says of them: ``test_a, test_b, and 36 more``,
    ``test_a[1] and 7 more: max_kernels: 4 > limit 3``."""
    if not line.startswith("test_"):
        return [], ""
    names, _, why = line.partition(": ")
    return _NAME.findall(names), why


def _name(words: str) -> str:
    """A test's name, its parameters and its number left out."""
    found = re.search(r"\b(test_\w+)\b(?!\.py)(\[)?", words)
    if found is None:
        return words
    name = re.sub(r"(?<=_)\d+$", "*", found[1])
    return f"{name}[*]" if found[2] else name


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {"": []}
    name = ""
    for line in text.splitlines():
        heading = re.match(r"=+ (.+?) =+$", line)
        if heading:
            name = heading[1]
        sections.setdefault(name, []).append(line)
    return sections


def _is_ours(section: str) -> bool:
    ours = ("kernel profiles", "comparisons", "against ", "compared with ")
    return section.startswith(ours)


def _marked(lines: Iterable[str]) -> Iterable[str]:
    """The tests of rows with a sign of failure, of comparisons, and those that the list names."""
    lines = list(lines)
    for item in re.split(r"\n(?=[✗!~?] |\n)", "\n".join(lines)):
        # ``✗ test_ops.py:14: RuntimeError: no such layer (test_mul)``, which may be broken.
        if found := re.match(r"[✗!] \S+\.py:\d[^(]*(?:\([^t][^)]*\)[^(]*)*\((test_[^)]*)\)", item):
            yield _name(found[1])
        # ``✗ model.py:17: added kernel: elementwise [copy] (12 tests)``: their names are below.
        elif item.startswith(("✗ ", "! ")) and re.search(r"\(\d+\s+tests\)$", item, re.M):
            for line in item.splitlines():
                names, _ = _named(line.removeprefix("  "))
                yield from map(_name, names)
    for line in lines:
        # A row, but no place to look at; a comparison of callables.
        if re.match(r"[✗!] (?!\S+\.py(:[\d, or]+)?: )|\S+::.* \(failed\)$", line):
            yield _name(line)


def _sentences(lines: Iterable[str]) -> Iterable[str]:
    """The sentence that each section begins with; all of a section without one."""
    for words in re.split(r"^=.*$", "\n".join(lines), flags=re.M):
        first, _, _ = words.strip("\n").partition("\n\n")
        sentence = " ".join(re.split(r"(?<=\.)\n", first)[0].splitlines())
        if sentence.strip():
            yield sentence


_CHANGED = re.compile(
    r"^[✓. ] (worse|better|changed)\b(?:.|\n  )*?"
    r"\(test_\w+(?:\[.*\])?(?:\s+and\s+(\d+)\s+more)?\)$",
    re.M,
)
"""``✓ better: kernels 2 -> 1 (test_better)``."""


def _changes(text: str) -> dict[str, int]:
    """Of the first sentence and of the line on each baseline, where these agree, or of lines on
    tests that changed and need no look; of snapshots those that are outdated."""
    listed = [(1 + int(more or 0), result) for result, more in _CHANGED.findall(text)]
    words = re.sub(r"\s+", " ", re.sub(r"\\([^\w\s])", r"\1", text))
    found = dict.fromkeys(CHANGES, 0)
    for told in re.findall(r"\b[Aa]gainst +`?[\w./-]+(?: \([^)]*\))?`?: (\d[^;.]*)", words):
        for number, word in re.findall(r"(\d+) (worse|better|undecided|changed)", told):
            found[word] += int(number)
    for number, word in listed:
        if word != "worse":
            found[word] += number
    outdated = re.search(r"(\d+) (?:snapshots? )?outdated", words)
    found["changed"] += int(outdated[1]) if outdated else 0
    open_ones = re.search(_UNDECIDED, words)
    found["undecided"] = max(found["undecided"], int(open_ones[1]) if open_ones else 0)
    worse = re.search(
        r"(\d+) of \d+ (?:compared )?\w+ (?:breaks? a limit and )?(?:is|are) worse", words
    )
    unchecked = re.search(r"[,:] (\d+) worse \(not checked\)", words)
    wanted = sum(int(one[1]) for one in (worse, unchecked) if one)
    wanted += sum(number for number, word in listed if word == "worse")
    # A line on a baseline may leave out what the first sentence says.
    known = (wanted, int(unchecked[1]) if unchecked else 0)
    return {**found, "worse": wanted if found["worse"] in known else -1}


def _snapshot_words(text: str) -> list[str]:
    return re.findall(r"^snapshots: .*$", text, re.M)


def _not_judged(text: str) -> int:
    """Of the first line that says so: tests that were not judged, and tests with limits that were
    not."""
    joined = re.sub(r"\s+", " ", text)
    tests = re.search(r"(\d+) not judged", joined)
    some = re.search(r"not judged in (\d+) tests?", joined)
    return sum(int(found[1]) for found in (tests, some) if found)


def _verdict(sentences: Iterable[str], lines: Iterable[str]) -> str:
    """By what each section says; several where they contradict each other."""
    said = {_verdict_of(sentence) for sentence in sentences} - {""}
    last = " ".join(lines)
    if re.search("the run fails|exit status 1: ", last):
        said.add("failed")
    if "failed" in said:
        return "failed and nothing fails" if "nothing fails by it" in last else "failed"
    return "neutral" if "neutral" in said else "passed" if said else "neutral"


def _verdict_of(sentence: str) -> str:
    if re.search(r"breaks? a limit|exceeds? \w+ snapshot|incomplete|✗ failed", sentence):
        return "failed"
    if re.search(r"[1-9]\d* (failed|errors?)\b", sentence):
        return "failed"
    if re.search(r"(?<!of )\b[1-9]\d* (of \d+ )?(compared )?\w+ (is|are) worse", sentence):
        return "failed"
    if re.search(r"snapshots? (outdated|missing)", sentence):
        return "neutral"
    if re.search(r"undecided|No test has a limit|not compared|cannot run|not judged", sentence):
        return "neutral"
    kept = re.match(r"(\d+) of (\d+) tests? (?:is|are) within", sentence)
    if kept is not None:
        return "passed" if kept[1] == kept[2] else "neutral"
    return "passed" if "worse than" in sentence or "No limit applied" in sentence else ""


def _causes(lines: Iterable[str]) -> frozenset[str]:
    """``vectorized_elementwise [add] x100`` as ``add x100``."""
    told = re.findall(r"\[(\w+)\] (x\d+)", " ".join(lines))
    return frozenset(f"{name} {times}" for name, times in told)


def _differing(text: str) -> frozenset[str]:
    """``+ vectorized_elementwise [add]`` as ``+add``, also with a number and a time before; what a
    list says in words; ``elementwise [gelu] -> [silu]``."""
    text = re.sub(r"added kernel:\s+", "+ ", re.sub(r"kernel gone:\s+", "- ", text))
    text = re.sub(r"(\w+ )(\[\w+\]) -> (?=\[)", r"- \1\2; + \1", text)
    row = r"([+\u2212-])\s*(?:\d+\s+[\d.]+\s+)?(?:new: |gone: )?\w+\s+\[(\w+)\]"
    return frozenset(f"{'+' if sign == '+' else '-'}{name}" for sign, name in re.findall(row, text))
