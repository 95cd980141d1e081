import pytest
import torch
from engine import Engine
from profiled_worker import ProfiledWorker


@pytest.fixture
def step(tmp_path):
    """The trace of one step of a worker, which the worker has recorded."""
    engine = Engine("cuda" if torch.cuda.is_available() else "cpu", ProfiledWorker)
    try:
        return engine.call("profile_step", tmp_path / "step.json.gz", torch.ones(4, 32))
    finally:
        engine.close()


@pytest.mark.max_kernels(2)
@pytest.mark.max_memcpys(1)  # the input
def test_a_step_is_a_product_and_an_activation(kernel_profile, step):
    kernel_profile.load(step)
