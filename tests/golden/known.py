"""What formats say wrong today: of each fault the scenario, the fact, and the formats.

Who mends a fault removes its lines: a test that passes although it is listed here fails.
"""

from __future__ import annotations

# Of a project all facts of a format are looked at together: ``project:NAME facts``.
_BY_FAULT = {
    "a kernel replaced at equal counts is told as the same": """
        earlier_run changes: summary page report
        earlier_run differing: summary
        revision_replaced differing: summary
        revision_replaced changes: terminal-80 terminal-120 quiet summary page run report
    """,
    "fault 1: tests without a profile, and runs not judged to the end, are not in the summary": """
        hostile_names failed: terminal-80 terminal-120 summary annotations page run report
        incomplete verdict: summary
        revision_undecided verdict: summary page report
        stopped_early not_judged: terminal-80 terminal-120 quiet summary
        stopped_early not_judged: annotations page junit run report
        tests_not_judged failed: terminal-80 terminal-120 summary annotations page run report
        project:not_measured facts: terminal annotations summary page run
    """,
    "fault 2: tests that were not judged are not counted": """
        no_gpu verdict: terminal-80 terminal-120 summary page report
        no_gpu not_judged: quiet summary annotations page junit run report
        snapshots not_judged: annotations junit run
    """,
    "fault 3: benchmarks in the run hide failed limits": """
        benchmarks verdict: quiet
    """,
    "fault 4: causes count the first 40 kernels": """
        many_kernels causes: terminal-80 terminal-120 report
    """,
    "fault 5: failures by comparisons and revisions are no limit": """
        comparison_fails failed: page junit
        revision_mixed failed: junit
        project:comparison_fails facts: page junit
        project:worse_than_head facts: junit
    """,
    "fault 6: without a baseline an innocent line is annotated": """
        limits_broken places: annotations
    """,
    "fault 7: of two equal operators the second is told as new": """
        revision_mixed places: annotations
    """,
    "fault 8: of a snapshot the replaced kernels are not named": """
        snapshot_replaced differing: terminal-80 terminal-120 summary page
    """,
    "fault 9: a test that breaks its limit is not compared": """
        revision_and_limit changes: terminal-80 terminal-120 quiet summary page run report
        revision_and_limit verdict: terminal-80 terminal-120 quiet
    """,
    "fault 10: undecided times disappear with warnings": """
        undecided changes: quiet
    """,
    "faults 11, 12: what the CPU cannot judge is told as kept": """
        cpu_only not_judged: terminal-80 terminal-120 quiet summary
        cpu_only not_judged: annotations page junit run report
        project:not_on_the_cpu facts: terminal annotations summary page junit run
    """,
}


def _known() -> dict[tuple[str, str, str], str]:
    found = {}
    for fault, lines in _BY_FAULT.items():
        for line in lines.strip().splitlines():
            where, _, formats = line.partition(": ")
            scenario, fact = where.split()
            for form in formats.split():
                found[scenario, form, fact] = fault
    return found


KNOWN = _known()
"""The fault by scenario, format (the file's name without its end) and fact."""
