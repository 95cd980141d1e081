import pytest
import torch
from engine import Engine
from profiled_worker import ProfiledWorker
from pytest_kernelprof import Profile


@pytest.fixture
def step(tmp_path):
    """The profile of one step of a worker, read from its trace."""
    engine = Engine("cuda" if torch.cuda.is_available() else "cpu", ProfiledWorker)
    try:
        trace = engine.call("profile_step", tmp_path / "step.json.gz", torch.ones(4, 32))
    finally:
        engine.close()
    return Profile.from_trace(trace)


def test_a_step_is_a_product_and_an_activation(step):
    assert step.integrity.complete, step.integrity.problems
    assert step.kernel_count <= 2, step.table()
    assert len(step.copies) <= 1, step.copies  # of the input
