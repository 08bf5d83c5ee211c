"""What the text of a function takes from Python around it, and annotations that leave something open."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.script import from_source
from autosched.script import relax as R
from autosched.script import tir as T

SHAPE, DTYPE, SUFFIX = (2, 3), "float32", "step"
ADD, RELU = R.add, R.nn.relu


def run(module, *arrays):  # type: ignore[no-untyped-def]
    built = relax.VirtualMachine(relax.build(autosched.IRModule({"main": module}), "llvm"), autosched.cpu())
    return built["main"](*(autosched.nd.array(a) for a in arrays)).numpy()


def test_shapes_operators_and_formatted_text() -> None:
    @R.function
    def main(x: R.Tensor(SHAPE, DTYPE)) -> R.Tensor(SHAPE, DTYPE):  # type: ignore[valid-type]
        y = ADD(x, x)
        return RELU(y)

    data = np.arange(-3, 3, dtype=np.float32).reshape(SHAPE)
    np.testing.assert_array_equal(run(main, data), np.maximum(2 * data, 0))

    @R.function
    def other(x: R.Tensor(SHAPE, DTYPE)):  # type: ignore[no-untyped-def,valid-type]
        y = R.call_packed(f"my.{SUFFIX}", x, sinfo_args=R.Tensor(SHAPE, DTYPE))
        return y

    assert '"my.step"' in str(other)


def test_attributes_and_names_of_blocks_from_python() -> None:
    @T.prim_func
    def main(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.func_attr({"global_symbol": f"kernel_{SUFFIX}", "wide": 8 if len(SHAPE) == 2 else 4})
        for i in range(4):
            with T.block(f"block_{SUFFIX}"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] * T.float32(2)

    assert (main.attrs["global_symbol"], main.attrs["wide"]) == ("kernel_step", 8)
    assert 'T.block("block_step")' in main.script()
    with pytest.raises(ValueError, match="cannot be the value of an attribute"):
        from_source("""
@T.prim_func
def f(x: T.Buffer((4,), "float32")):
    T.func_attr({"a": x.shape})
    T.evaluate(0)
""")


def test_operators_of_python_s_own_signs() -> None:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "bool"):  # type: ignore[valid-type]
        gv = -x < y * x
        return gv

    x, y = np.array([1, -1, 2, 0], np.float32), np.array([0, 3, -4, 1], np.float32)
    np.testing.assert_array_equal(run(main, x, y), -x < y * x)


def test_a_result_of_open_type() -> None:
    main = from_source("""
@R.function
def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor:
    return R.add(x, x)
""")
    assert main.ret_struct_info.ndim == -1
    data = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(main, data), data + data)


@pytest.mark.parametrize(
    "annotation",
    ['R.Tensor(None, "float32", ndim=4)', 'R.Tensor(None, dtype="float32", ndim=4)', 'R.Tensor("float32", ndim=4)'],
)
def test_a_shape_of_none(annotation: str) -> None:
    info = from_source(f"@R.function\ndef main(x: {annotation}):\n    return x\n").params[0].struct_info
    assert (info.shape, info.dtype, info.ndim) == (None, "float32", 4)


def test_symbols_declared_together() -> None:
    func = from_source("""
@T.prim_func
def f(a: T.handle):
    n, m = T.int32(), T.int32()
    A = T.match_buffer(a, (n, m))
    for i, j in T.grid(n, m):
        A[i, j] = A[i, j] + T.float32(1)
""")
    assert [d.name for d in func.buffers[0].shape] == ["n", "m"]
    graph = from_source("""
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    n, m = T.int64(), T.int64()
    y: R.Tensor((m, n), "float32") = R.permute_dims(x)
    return y
""")
    dims = graph.params[0].struct_info.shape.values
    assert [d.name for d in dims] == ["n", "m"]
    assert graph.body.struct_info.shape.values[0] is dims[1]


def test_a_shape_s_variable_as_a_shape() -> None:
    main = from_source("""
@R.function
def main(x: R.Tensor((2, 6), "float32"), s: R.Shape(ndim=2)):
    t: R.Shape([3, 4]) = R.shape([3, 4])
    y: R.Tensor(t, "float32") = R.reshape(x, t)
    return y
""")
    assert [int(d) for d in main.body.struct_info.shape.values] == [3, 4]
    open_ = from_source("""
@R.function
def main(x: R.Tensor("float32", ndim=2), s: R.Shape(ndim=2)):
    y = R.call_packed("f", x, s, sinfo_args=R.Tensor(s, "float32"))
    return y
""")
    assert (open_.body.struct_info.shape, open_.body.struct_info.ndim) == (None, 2)


def test_what_is_no_shape_is_refused() -> None:
    with pytest.raises(autosched.TVMError, match="tuple of dimensions"):
        from_source('@R.function\ndef main(x: R.Tensor((2,), "float32"), y: R.Tensor(x, "float32")):\n    return x\n')
    assert T is not None
