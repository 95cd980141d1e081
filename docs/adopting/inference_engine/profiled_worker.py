from engine import Worker
from pytest_kernelprof import profile


class ProfiledWorker(Worker):
    """A worker that can profile its own step, where the kernels are."""

    def profile_step(self, path, x):
        found = profile(self.step, x, device=self.weight.device.type)
        found.save_trace(path)
        return path
