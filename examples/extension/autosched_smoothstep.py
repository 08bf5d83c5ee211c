"""An extension of autosched: an operator, its converters for ONNX and PyTorch, a template for it, a search strategy.

    pip install ./examples/extension

The package's entry point names this module; autosched imports it when it first looks into one of its tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import autosched
from autosched import te, topi
from autosched.frontend.onnx.registry import converter
from autosched.frontend.torch.registry import converter as torch_converter
from autosched.space import Config, ConfigSpace, Knob
from autosched.target import Target
from autosched.templates.base import Anchor
from autosched.templates.cpu.elementwise import Elementwise
from autosched.tir import PrimFunc
from autosched.tuner.search.base import BaseSearch


def compute(x: te.Tensor) -> te.Tensor:
    """3 t² - 2 t³ with t = x between 0 and 1, in tensor expressions."""
    t = topi.clip(x, 0.0, 1.0)
    return te.compute(x.shape, lambda *i: t[i] * t[i] * (3.0 - 2.0 * t[i]), name="smoothstep")


def reference(x: np.ndarray) -> np.ndarray:
    t = np.clip(x, 0, 1)
    return t * t * (3 - 2 * t)


smoothstep = autosched.register_operator(
    "example.smoothstep", infer_type=lambda x: x, compute=compute, reference=reference, samples=[(4, 5)]
)


@converter("example.SmoothStep")  # the domain and the name of the node
def _smoothstep(node: Any) -> Any:
    return smoothstep(node.inputs[0])


@torch_converter("smoothstep")  # of torch.library, without its namespace
def _smoothstep_of_torch(emit: Any, x: Any) -> Any:
    return emit(smoothstep(x))


class WideElementwise(Elementwise):
    """Element-wise code in longer vectors, for functions that compute `smoothstep`."""

    name = "wide_elementwise"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        return super().match(func, target) if "smoothstep" in str(func) else None

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        widths = [target.lanes("float32") * n for n in (2, 4, 8)]
        return ConfigSpace(self.name, [Knob("width", widths)], default=self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, {"width": 8 * target.lanes("float32")})


class SmallFirst(BaseSearch):
    """Configurations drawn at random, each batch from the first candidates of the knobs to the last."""

    name = "small-first"

    def propose(self, n: int) -> np.ndarray:
        rows = self.pool.random(n)
        ordered: np.ndarray = rows[np.argsort(rows.sum(axis=1), kind="stable")]
        return ordered


autosched.register_template(WideElementwise())
autosched.register_strategy("small-first", SmallFirst)
