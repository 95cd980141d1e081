"""The order of the house: lower rooms import no higher ones, torch stays where the GPU is, and its
size."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pytest_kernelprof

pytestmark = pytest.mark.bulk  # code is read here, not run

ROOT = Path(pytest_kernelprof.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# What each room stands on. Every room may use errors, units and the system.
STANDS_ON: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "allowances": set(),
    "system": set(),
    "kernel_names": set(),
    "records": {"kernel_names"},
    "stats": {"records"},
    "trace": {"records", "stats"},
    "analysis": {"allowances", "records", "stats", "trace"},
    "gpu": {"records"},
    "distributed": {"records", "gpu"},
    "profiler": {"allowances", "records", "gpu", "distributed"},
    "measure": {"records", "stats", "trace", "analysis", "gpu", "distributed", "profiler"},
    "limits": {"records", "stats"},
    "comparison": {"records", "stats", "kernel_names"},
    "baselines": {"records", "stats", "kernel_names", "trace", "comparison", "gpu", "measure"},
    "summary": {"records", "stats", "kernel_names"},
    "report": {"records", "stats", "kernel_names", "comparison", "summary"},
}
BELOW = set(STANDS_ON)
STANDS_ON["api"] = BELOW
STANDS_ON["plugin"] = BELOW | {"api"}
STANDS_ON["cli"] = BELOW | {"api"}
STANDS_ON["__init__"] = BELOW | {"api", "plugin"}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """What stands directly in a module, a definition, or a statement."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        inside = getattr(node, name, ())
        yield from inside if isinstance(inside, list) else ()  # that of a lambda is none


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All of a module, without their expressions, which are ten times as many."""
    for one in statements_of(node):
        yield one
        yield from statements(one)


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, and whether it does so when it is loaded."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, late: bool) -> None:
        for child in statements_of(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.append((child.module, late))
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            visit(child, late or inside)

    visit(parsed(path), False)
    return found


def test_a_room_imports_only_what_it_stands_on() -> None:
    too_high = {}
    for path in FILES:
        room = room_of(path)
        allowed = STANDS_ON[room] | {room, "errors", "units", "system"}
        rooms = {
            module.split(".")[1]
            for module, _ in imports(path)
            if module.startswith("pytest_kernelprof.")
        }
        too_high[str(path.relative_to(ROOT))] = rooms - allowed
    assert {path: rooms for path, rooms in too_high.items() if rooms} == {}


def test_no_two_rooms_stand_on_each_other() -> None:
    circles = [
        (one, other)
        for one, below in STANDS_ON.items()
        for other in below
        if one in STANDS_ON[other]
    ]
    assert circles == []


def test_no_files_stand_on_each_other_in_a_circle() -> None:
    """Imports that are there for types alone are among them: a reader follows them, too."""
    files = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in FILES
    }
    graph = {}
    for path in FILES:
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        found = set()
        for node in statements(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{one.name}" for one in node.names} & files
                found |= inside or {node.module} & files
        graph[name.removesuffix(".__init__")] = found - {name}
    TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


def test_only_the_rooms_of_the_gpu_import_torch_and_only_when_it_runs() -> None:
    for path in FILES:
        torch = [late for module, late in imports(path) if module.split(".")[0] == "torch"]
        assert all(torch), path
        assert not torch or room_of(path) in ("profiler", "distributed", "gpu"), path


def code_lines(path: Path) -> int:
    """Lines that are no comment, no docstring and not blank."""
    docstrings: set[int] = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(path.read_text().splitlines(), 1)
    told = ((at, line.strip()) for at, line in lines)
    return sum(bool(line) and line[0] != "#" and at not in docstrings for at, line in told)


MODULES, LINES, LONGEST = 130, 27_000, 600
"""What the package may have of them. Simplify first; a commit that raises them says why."""


def test_the_house_does_not_grow() -> None:
    sizes = [code_lines(path) for path in FILES]
    assert len(FILES) <= MODULES, "too many modules: simplify, or see MODULES above"
    assert sum(sizes) <= LINES, f"{sum(sizes) - LINES} lines too many: simplify, or see LINES above"
    assert max(sizes) <= LONGEST


def test_no_two_modules_have_one_file_name() -> None:
    names = [path.name for path in FILES if path.name != "__init__.py"]
    assert sorted(names) == sorted(set(names))


def test_every_file_says_first_what_its_idea_is() -> None:
    missing = [path.name for path in FILES if not ast.get_docstring(parsed(path))]
    assert missing == []


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest_kernelprof.plugin.hooks, pytest_kernelprof.limits.marks;"
        "heavy = ('torch', 'numpy', 'msgspec', 'filelock', 'pynvml');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_load_and_are_documented() -> None:
    for name in pytest_kernelprof.__all__:
        assert getattr(pytest_kernelprof, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytest_kernelprof.nothing


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by it, and would not collect the second of a whole run."""
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def always_holds(claim: ast.expr) -> bool:
    """A constant, and what is held by one of its parts whatever the others are."""
    if isinstance(claim, ast.Constant):
        return bool(claim.value)
    if isinstance(claim, ast.Tuple):
        return bool(claim.elts)
    return isinstance(claim, ast.BoolOp) and (any, all)[isinstance(claim.op, ast.And)](
        map(always_holds, claim.values)
    )


def test_every_assertion_of_a_test_can_fail() -> None:
    here = ROOT.parent
    files = [*(here / "tests").rglob("*.py"), *(here / "example_project").glob("test_*.py")]
    empty = [
        f"{path.relative_to(here)}:{node.lineno}"
        for path in files
        for node in statements(parsed(path))
        if isinstance(node, ast.Assert) and always_holds(node.test)
    ]
    assert not empty
    assert always_holds(ast.parse("x == 1 or True", mode="eval").body)
