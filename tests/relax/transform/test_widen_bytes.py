"""Products of bytes as products of 16-bit integers: the same sums, on CPUs without dot products of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.evaluate import evaluate
from autosched.relax.expr import Call, Constant
from autosched.relax.transform import WidenBytes
from autosched.target import Target
from autosched.templates import widens_bytes
from tests.relax.transform.graphs import calls, graph

RNG = np.random.default_rng(0)


def weight(*shape: int) -> Constant:
    return Constant(RNG.integers(-128, 128, shape).astype("int8"))


def widened(build: Any, *shape: int) -> IRModule:
    """The module after the pass, which gives what the original does."""
    module = graph({"x": shape}, lambda bb, x: build(bb, bb.emit(op.astype(x, "uint8"))))
    result = WidenBytes()(module)
    x = {"x": RNG.integers(0, 256, shape).astype("f4")}
    np.testing.assert_array_equal(*(np.asarray(evaluate(m, x)) for m in (module, result)))
    return result


def types(module: IRModule, name: str) -> list[list[str]]:
    values = [b.value for b in module["main"].bindings() if isinstance(b.value, Call)]
    return [[x.struct_info.dtype for x in (*v.args, v)] for v in values if v.op_name == f"relax.{name}"]


def test_products_and_convolutions_read_words_that_are_made_once() -> None:
    def build(bb: Any, x: Any) -> Any:
        parts = [bb.emit(op.nn.conv2d(x, weight(8, 4, 3, 3), padding=1, pad_value=7, out_dtype="int32")) for _ in "ab"]
        return op.add(*parts)

    module = widened(build, 1, 4, 6, 6)
    assert types(module, "nn.conv2d") == [["int16", "int16", "int32"]] * 2 and calls(module).count("astype") == 2
    product = widened(lambda bb, x: op.matmul(x, weight(8, 4), "int32"), 6, 8)
    assert types(product, "matmul") == [["int16", "int16", "int32"]]


def test_few_rows_keep_weights_that_are_half_as_long() -> None:
    product = widened(lambda bb, x: op.matmul(x, weight(8, 4), "int32"), 1, 8)
    assert types(product, "matmul") == [["uint8", "int8", "int32"]]


def test_what_is_no_product_of_bytes_stays() -> None:
    module = graph({"x": (6, 8)}, lambda bb, x: op.matmul(x, Constant(np.ones((8, 4), "f4"))))
    assert types(WidenBytes()(module), "matmul") == [["float32"] * 3]


@pytest.mark.parametrize(
    ("mcpu", "wanted"),
    [("x86-64-v3", True), ("x86-64-v4", True), ("znver4", False), ("alderlake", False), ("x86-64", False)],
)
def test_what_is_faster_depends_on_the_cpu(mcpu: str, wanted: bool) -> None:
    assert widens_bytes(Target(f"llvm -mcpu={mcpu}")) == wanted
    assert not widens_bytes(Target("llvm -mtriple=aarch64-linux-gnu")) and not widens_bytes(Target("cuda"))
