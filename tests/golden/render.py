"""Render every scenario in every format: ``python tests/golden/render.py [--projects] [NAME...]``.

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import linecache
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generated  # noqa: E402
import measured  # noqa: E402
import outputs  # noqa: E402
import page  # noqa: E402
from described import KEPT, Described, Scenario, names, scenario  # noqa: E402

MOST_LINES = 60
_WIDE = 100
_WITHOUT = (
    "xdist",
    "cacheprovider",
    "logging",
    "asyncio",
    "pytest_forked",
    "randomly",
    "timeout",
    "pytest_cov",
)
# Of a package that is imported from a folder where it is not installed: a copy, a worktree.
_KNOWN_WARNING = "-Wignore:Module already imported so cannot be rewritten"
_REPORTS = (
    *("--kernelprof-report", "--kernelprof-markdown=run.md", "--kernelprof-html=run.html"),
    *("--kernelprof-json=run.json", "--kernelprof-github", "--junitxml=junit.xml"),
    *("-o", "junit_logging=no"),
)
_SCRUBBED = (
    (
        re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\u200c?\d\d:\u200c?\d\dZ?| \d\d:\d\d UTC)?"),
        "2026-01-01",
    ),
    (re.compile(r"in \d+\.\d\ds( \(\d+:\d\d:\d\d\))?"), "in 0.00s"),
    (re.compile(r"^platform .*$", re.M), "platform"),
    # As long as the words beside it, which differ by how long a time is.
    (re.compile(r"^=+ (.* in 0\.00s) =+$", re.M), r"=== \1 ==="),
    (re.compile(r"^-+ (generated xml file): .*$", re.M), r"--- \1 ---"),
    (re.compile(r"0x[0-9a-f]{8,}"), "0x0"),
    (re.compile(r"\d\d:\d\d:\d\d UTC"), "00:00:00 UTC"),
    (re.compile(r'("pytest(?:-kernelprof)?": )"[\d.]+"'), r'\1"0.0"'),
    (re.compile(r"^(kernelprof: .*run\.(?:html|md)): [\d.]+ [KM]?B", re.M), r"\1: 0 kB"),
    (re.compile(r"^(plugins|rootdir|benchmark|configfile): .*\n", re.M), ""),
    (re.compile(r"(pytest|pytest-kernelprof) \d+\.\d[\w.+]*"), r"\1 0.0"),
)


def main() -> int:
    """Render what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=KEPT, help="a folder, by default kept/")
    parser.add_argument("--projects", action="store_true", help="run the projects instead")
    parser.add_argument("names", nargs="*", help="scenarios or projects, by default all")
    chosen = parser.parse_args()
    if chosen.projects:
        for name in chosen.names or measured.names():
            measured.keep(name)
        return 0
    wanted = chosen.names or names()
    if not chosen.names:
        shutil.rmtree(chosen.to, ignore_errors=True)
    with ProcessPoolExecutor(max_workers=min(2, len(wanted))) as pool:
        for _ in pool.map(render_to, wanted, [chosen.to] * len(wanted)):
            pass
    print(f"{len(wanted)} scenarios are in {chosen.to}")
    return 0


def render_to(name: str, folder: Path) -> None:
    """Write each format of a scenario to a file."""
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file, text in render(scenario(name)).items():
        (target / file).write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def render(one: Scenario) -> dict[str, str]:
    """All formats of a scenario, by the names of their files."""
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        work = _Work(one, Path(temporary).resolve())
        generated.write(one, work.project)
        work.prepare()
        found = {**work.reported(80), **work.shown(120), **work.quiet(), **work.commands()}
        return {file: _shortened(file, work.scrubbed(text)) for file, text in found.items()}


class _Work:
    """The folder of one scenario, and the runs in it."""

    def __init__(self, one: Scenario, folder: Path) -> None:
        self.scenario = one
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self._options = list(one.options)

    def prepare(self) -> None:
        """The runs before: of the snapshots, of the earlier run."""
        if self.scenario.has("snapshot"):
            self._run("--kernelprof-update", side="snapshot", before=True)
        if self.scenario.has("earlier"):
            self._run("--kernelprof-json=../earlier.json", side="earlier", before=True)
            self._options.append("--kernelprof-against=../earlier.json")
        if self.scenario.has("revision"):
            self._options.append("--kernelprof-against=main")
        if self.scenario.has("environment"):
            self._options.append("--kernelprof-against-python=old/bin/python")

    def reported(self, columns: int) -> dict[str, str]:
        """A run that is asked for everything."""
        text, status = self._run(*_REPORTS, columns=columns)
        parts = outputs.parted(text)
        return {
            f"terminal-{columns}.txt": f"{parts['terminal']}\nexit status {status}",
            "failures.txt": parts["failures"],
            "summary.md": (self.project / "summary.md").read_text(encoding="utf-8"),
            "annotations.txt": parts["annotations"],
            "page.txt": page.text_of((self.project / "run.html").read_text(encoding="utf-8")),
            "junit.txt": outputs.junit_text(self.project / "junit.xml"),
            "run.json": _json(self.project / "run.json"),
        }

    def shown(self, columns: int) -> dict[str, str]:
        """A run with its report alone."""
        text, status = self._run("--kernelprof-report", "--tb=no", columns=columns)
        return {f"terminal-{columns}.txt": f"{text}\nexit status {status}"}

    def quiet(self) -> dict[str, str]:
        """A run that is asked for nothing."""
        text, status = self._run("-q", "--tb=no", columns=100)
        return {"quiet.txt": f"{text}\nexit status {status}"}

    def commands(self) -> dict[str, str]:
        """What the command line says of the document, and of the traces."""
        found = {"report.txt": self._command("report", "run.json")}
        test = next((test for test in self.scenario.tests if test.calls), None)
        if test is not None:
            trace = self._trace("new.json", test.calls[0])
            found["show.txt"] = self._command("show", trace)
            before = next(filter(None, (test.in_turn, test.earlier, test.snapshot)), None)
            if before:
                found["diff.txt"] = self._command("diff", self._trace("old.json", before[0]), trace)
            if test.device == "cpu":
                found |= self._plain(test)
        if self.scenario.has("earlier"):
            found["compare.txt"] = self._command("compare", "../earlier.json", "run.json")
        if (self.project / "traces").is_dir():
            found["show_folder.txt"] = self._command("show", "traces")
        if self.scenario.has("snapshot"):  # last, since it writes
            found["update.txt"] = self._command("update", "run.json")
        return found

    def _plain(self, test: Described) -> dict[str, str]:
        """Of traces of the CPU as torch.profiler exports them, without our notes."""
        plain = self._trace("plain.json", test.calls[0], noted=False)
        found = {"show_plain.txt": self._command("show", plain)}
        others = (one.calls for one in self.scenario.tests if one.device == "cpu" and one.calls)
        for calls in [one for one in others if one != test.calls][:1]:
            other = self._trace("other.json", calls[0], noted=False)
            found["diff_plain.txt"] = self._command("diff", other, plain)
        return found

    def _trace(self, name: str, call: Any, *, noted: bool = True) -> str:
        import doubles

        path = doubles.recorded(call, self.folder).path
        shutil.copy(path if noted else path.with_suffix(".events"), self.project / name)
        return name

    def _run(
        self, *options: str, side: str = "calls", columns: int = 100, before: bool = False
    ) -> tuple[str, int]:
        """pytest in this process."""
        import doubles
        import pytest

        given = [_KNOWN_WARNING, *(f"-pno:{name}" for name in _WITHOUT)]
        given += ["-p", "no:warnings"] if before else []
        benchmarks = any(test.benchmark for test in self.scenario.tests)
        reruns = max((test.reruns for test in self.scenario.tests), default=0)
        given += [] if benchmarks else ["-pno:benchmark"]
        given += [f"--reruns={reruns}"] if reruns else ["-pno:rerunfailures"]
        if before:  # tests that were not there then
            given += [one.id for one in self.scenario.tests if getattr(one, side) is not None]
        else:
            given += self._options
        # Modules of these names that the process has are others.
        ours = {path.stem for path in self.project.rglob("*.py")}
        others = {name: sys.modules.pop(name) for name in ours & sys.modules.keys()}
        with (
            self._inside(columns),
            doubles.played(self.scenario, self.folder, side),  # type: ignore[arg-type]
            contextlib.redirect_stdout(_Terminal()) as out,
            contextlib.redirect_stderr(out),
        ):
            status = int(pytest.main([*given, *options]))
        linecache.clearcache()  # of files by these names in other projects
        if status > 1:
            raise RuntimeError(
                f"{self.scenario.name}: pytest ended with {status}\n{out.getvalue()}"
            )
        for name in [name for name, one in sys.modules.items() if self._is_ours(one)]:
            del sys.modules[name]
        sys.modules.update(others)
        return out.getvalue(), status

    def _command(self, *arguments: str) -> str:
        from pytest_kernelprof.cli.main import main as kernelprof

        with (
            self._inside(100),
            contextlib.redirect_stdout(_Terminal()) as out,
            contextlib.redirect_stderr(out),
        ):
            status = kernelprof(arguments)
        return f"$ kernelprof {' '.join(arguments)}\n{out.getvalue()}exit status {status}"

    @contextlib.contextmanager
    def _inside(self, columns: int) -> Any:
        here, before, wrote = os.getcwd(), dict(os.environ), not sys.dont_write_bytecode
        (self.project / "summary.md").unlink(missing_ok=True)
        os.chdir(self.project)
        os.environ.clear()
        os.environ.update(outputs.environment(self.project, columns), NO_COLOR="1")
        sys.dont_write_bytecode = True  # of a project that is gone in a moment
        try:
            yield
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)
            sys.dont_write_bytecode = not wrote

    def _is_ours(self, module: object) -> bool:
        return str(getattr(module, "__file__", None) or "").startswith(str(self.folder))

    def scrubbed(self, text: str) -> str:
        """Without dates, versions, and places of this machine."""
        text = text.replace(str(self.project), "/project").replace(str(self.folder), "/")
        for pattern, words in _SCRUBBED:
            text = pattern.sub(words, text)
        return "\n".join(line.rstrip() for line in text.splitlines())


class _Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]


def _json(path: Path) -> str:
    """The document without what pictures are made of, and without metrics that are zero."""
    document = json.loads(path.read_text())
    for name in ("timelines", "names", "metrics"):
        del document[name]
    for test in document["tests"]:
        for profile in test.get("profiles", ()):
            for name in ("gaps", "host_shares", "bound"):
                profile.pop(name, None)
            known = profile["metrics"].items()
            profile["metrics"] = {name: one["value"] for name, one in known if one.get("value")}
    return "\n".join(_json_lines(document))


def _json_lines(value: Any, before: str = "", indent: str = "") -> list[str]:
    """JSON, in which what fits into a line stands in one."""
    short = indent + before + json.dumps(value, ensure_ascii=False)
    if len(short) <= _WIDE or not isinstance(value, (dict, list)):
        return [short]
    is_table = isinstance(value, dict)
    keyed = [(f"{json.dumps(key)}: ", one) for key, one in value.items()] if is_table else []
    inside = [_json_lines(one, key, f"{indent} ") for key, one in keyed or (("", v) for v in value)]
    for lines in inside[:-1]:
        lines[-1] += ","
    opened, closed = "{}" if is_table else "[]"
    told = [line for lines in inside for line in lines]
    return [f"{indent}{before}{opened}", *told, f"{indent}{closed}"]


def _shortened(file: str, text: str) -> str:
    """Of very many lines the first and the last."""
    lines = text.splitlines()
    if len(lines) <= (2000 if file.endswith(".json") else 400):
        return text
    left = len(lines) - 2 * MOST_LINES
    return "\n".join([*lines[:MOST_LINES], f"[{left} lines left out]", *lines[-MOST_LINES:]])


if __name__ == "__main__":
    sys.exit(main())
