"""A terminal that only notes what is written."""

from __future__ import annotations

from types import SimpleNamespace


class Terminal:
    """What is used of pytest's."""

    def __init__(self, width: int = 120) -> None:
        self._tw = SimpleNamespace(fullwidth=width)
        self.config = SimpleNamespace(getoption=lambda name, default: default)
        self.isatty = True
        self.verbosity = 0
        self.sections: list[str] = []
        self.lines: list[str] = []
        self.markup: list[dict[str, bool]] = []

    def section(self, title: str) -> None:
        self.sections.append(title)

    def write(self, text: str, **markup: bool) -> None:
        self.lines[-1:] = [(self.lines or [""])[-1] + text]
        if text == "\n":
            self.lines[-1] = self.lines[-1][:-1]
            self.lines.append("")

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)
        self.markup.append(markup)
