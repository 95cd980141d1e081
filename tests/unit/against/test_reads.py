"""The files of the user's folder that are opened in the process of the reference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pytest_kernelprof.against import reads

PACKAGE = str(Path(reads.__file__).parents[2])
SCRIPT = """
import ctypes, json, os, sys
sys.path.insert(0, {package!r})
from pytest_kernelprof.against.mapping import Mapping
from pytest_kernelprof.against.reads import Reads
root, tree = {root!r}, {tree!r}
found = Reads(Mapping(root, tree, (root + "/env",)))
found.watch()
for path in (root + "/data.bin", root + "/data.bin", root + "/env/x", tree + "/data.bin"):
    open(path).close()
os.close(os.open(os.fsencode(root + "/other.bin"), os.O_RDONLY))
open(os.dup(0)).close()
try:
    ctypes.CDLL(root + "/lib.so")
except OSError:
    pass
first = found.taken()
for number in range(100):
    try:
        open(root + "/" + str(number))
    except OSError:
        pass
print(json.dumps([first, len(found.taken()), found.taken()]))
"""


def test_those_are_known_and_no_others(tmp_path: Path) -> None:
    root, tree = tmp_path / "root", tmp_path / "tree"
    for path in (root / "data.bin", root / "other.bin", root / "env" / "x", tree / "data.bin"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    code = SCRIPT.format(package=PACKAGE, root=str(root), tree=str(tree))
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [["data.bin", "other.bin", "lib.so"], 20, []]
