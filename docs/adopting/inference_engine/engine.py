"""The engine: a worker process holds the model and answers requests."""

import multiprocessing

import torch


class Worker:
    """What runs in the other process."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.weight = torch.randn(32, 32, device=device)

    def step(self, x):
        return torch.relu(x.to(self.weight.device) @ self.weight)


def serve(pipe, device, worker_class):
    worker = worker_class(device)
    for method, arguments in iter(pipe.recv, None):
        pipe.send(getattr(worker, method)(*arguments))


class Engine:
    """The front end: ``call`` runs a method of the worker and returns what it returns."""

    def __init__(self, device="cpu", worker_class=Worker):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(other, device, worker_class))
        self.process.start()

    def call(self, method, *arguments):
        self.pipe.send((method, arguments))
        return self.pipe.recv()

    def close(self):
        self.pipe.send(None)
        self.process.join()
