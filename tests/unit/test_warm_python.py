"""The interpreter of the tests that has torch loaded: it hands on what it was started with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hands files on")


@pytest.mark.parametrize("number", [63, 64, 300])
def test_a_file_is_handed_on_whatever_its_number(python: str, number: int) -> None:
    """Where hundreds of tests have run, files that are opened have high ones."""
    read, write = os.pipe()
    os.dup2(write, number)
    code = "import os, sys; os.write(int(sys.argv[1]), b'handed on')"
    try:
        subprocess.run([python, "-c", code, str(number)], pass_fds=(number,), check=True)
        assert os.read(read, 99) == b"handed on"
    finally:
        for file in (read, write, number):
            os.close(file)
