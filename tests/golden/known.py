"""What formats say wrong today: of each fault the scenario, the fact, and the formats.

Who mends a fault removes its lines: a test that passes although it is listed here fails.
"""

from __future__ import annotations

# Of a project all facts of a format are looked at together: ``project:NAME facts``.
_BY_FAULT = {
    "fault 4: causes count the first 40 kernels": """
        many_kernels causes: terminal-80 terminal-120 report
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
