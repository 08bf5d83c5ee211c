"""TVM's helpers of tests of the graph level: registered functions, and models over a BlockBuilder."""

from autosched.relax.testing import nn, vm

__all__ = ["nn", "vm"]
