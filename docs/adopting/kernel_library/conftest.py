import os

import pytest
import torch

GPUS = [name for name in ("cuda", "xpu") if getattr(torch, name).is_available()]
if not GPUS:
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported


@pytest.fixture
def device():
    return GPUS[0] if GPUS else "cpu"
