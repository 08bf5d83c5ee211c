"""Float16 where TVM's rule has it: products give it, what follows them keeps it, others are given float32."""

from __future__ import annotations

import pytest

from autosched.ir import IRModule, assert_structural_equal
from autosched.relax.transform import ToMixedPrecision
from autosched.script import from_source

HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "{x}"), w: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32")):
        with R.dataflow():
"""


def module(x: str, *lines: str) -> IRModule:
    read = from_source(HEAD.format(x=x) + "".join(f"            {line}\n" for line in lines) + "        return y\n")
    assert isinstance(read, IRModule)
    return read


@pytest.mark.parametrize(
    ("before", "after", "options"),
    [
        (
            ["a = R.matmul(x, w)", "r = R.nn.relu(a)", "y = R.nn.softmax(r)"],
            ['h = R.astype(x, "float16")', 'v = R.astype(w, "float16")', 'm = R.matmul(h, v, "float32")',
             'a = R.astype(m, "float16")', "r = R.nn.relu(a)", 'f = R.astype(r, "float32")', "y = R.nn.softmax(f)"],
            {},
        ),
        (
            ["a = R.matmul(x, w)", "c = R.add(a, b)", 'y = R.multiply(c, R.const(2.0, "float32"))'],
            ['h = R.astype(x, "float16")', 'v = R.astype(w, "float16")', 'm = R.matmul(h, v, "float16")',
             'a = R.astype(m, "float32")', "c = R.add(a, b)", 'y = R.multiply(c, R.const(2.0, "float32"))'],
            {"out_dtype": "float16"},
        ),
        (
            ["a = R.nn.relu(x)", 'c = R.matmul(a, w)', 'y = R.multiply(c, R.const(2.0, "float32"))'],
            ['v = R.astype(w, "float16")', "a = R.nn.relu(x)", 'm = R.matmul(a, v, "float32")',
             'c = R.astype(m, "float16")', 'd = R.multiply(c, R.const(2.0, "float16"))', 'y = R.astype(d, "float32")'],
            {"fp16_input_names": ["x"]},
        ),
    ],
)  # fmt: skip
def test_forms(before: list[str], after: list[str], options: dict[str, object]) -> None:
    x = "float16" if "fp16_input_names" in options else "float32"
    changed = ToMixedPrecision(**options)(module("float32", *before, "R.output(y)"))  # type: ignore[arg-type]
    assert_structural_equal(changed, module(x, *after, "R.output(y)"))
