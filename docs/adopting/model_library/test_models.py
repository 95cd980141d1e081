import unittest

import torch
from kernel_mixin import KernelTesterMixin
from models import Encoder, Gated


class ModelTesterMixin:
    """What the library had before."""

    def test_shape(self):
        self.assertEqual(self.model_class()(torch.zeros(2, 16)).shape, (2, 16))


class EncoderTest(ModelTesterMixin, unittest.TestCase):
    model_class = Encoder


class EncoderKernelTest(KernelTesterMixin, unittest.TestCase):
    model_class, most_kernels = Encoder, 3


class GatedKernelTest(KernelTesterMixin, unittest.TestCase):
    model_class, most_kernels = Gated, 5
