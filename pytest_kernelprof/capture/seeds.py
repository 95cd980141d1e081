"""Seeds the random numbers of a test by its name, so that two processes draw the same ones."""

from __future__ import annotations

import random
import sys
import zlib


def seed_by(name: str) -> None:
    """Seed Python's, NumPy's and torch's generators, as far as they are loaded."""
    number = zlib.crc32(name.encode("utf-8", "backslashreplace"))
    random.seed(number)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(number)
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(number)
