"""Floats of 16 bits on a GPU: sums in float32, bfloat16 by its bits."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen.lower.device import lower_device
from autosched.ir.node import preorder
from autosched.testing.gpu import run_serially
from autosched.tir import Buffer, BufferStore, Call
from autosched.tir.schedule import Schedule
from tests.codegen.gpu_programs import elementwise, tiled_product

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16


def row_sums(m, n, dtype):
    """Sums of rows whose every step the program writes in 16 bits, kept in registers."""
    x, k = te.placeholder((m, n), dtype, name="X"), te.reduce_axis((0, n), "k")
    y = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = Schedule(te.create_prim_func([x, y]))
    own = s.cache_write("Y", 0, "local")
    bx, tx = s.split(s.get_loops(own)[0], [None, 32])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    s.compute_at("Y", tx)
    return s.func


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_sums_in_registers_are_float32(dtype):
    x = np.full((40, 5000), 1, dtype)
    y = np.zeros(40, dtype)
    run_serially(row_sums(40, 5000, np.dtype(dtype).name), x, y)
    np.testing.assert_array_equal(y, np.full(40, 5000, dtype))


def test_a_sum_in_registers_has_another_type_than_its_result():
    (launch,) = lower_device(row_sums(40, 50, "float16")).launches
    found = {n.buffer.scope: n.buffer.dtype for n in preorder(launch.body) if isinstance(n, BufferStore)}
    assert found == {"local": "float32", "global": "float16"}


def test_no_bfloat16_is_left():
    lowered = lower_device(row_sums(40, 50, "bfloat16"))
    nodes = [n for launch in lowered.launches for n in preorder(launch.body)]
    assert not any(getattr(n, "dtype", "") == "bfloat16" for n in nodes if not isinstance(n, Buffer))
    assert [b.dtype for b in lowered.arguments] == ["uint16", "uint16"]


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_products(dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((65, 9), (9, 67)))
    bias, out = rng.standard_normal(67).astype("f"), np.zeros((65, 67), "f")
    run_serially(tiled_product(65, 67, 9, dtype=np.dtype(dtype).name).func, a, b, bias, out)
    np.testing.assert_allclose(out, np.maximum(a.astype("d") @ b.astype("d") + bias, 0), rtol=1e-4, atol=1e-5)


def test_bfloat16_rounds_to_the_nearest_even():
    a = np.array([1.0, 1.00390625, 1.01171875, -3.5, 3e38, np.inf, -np.inf, np.nan, 1e-40, 0.0] * 20, "f")
    x = te.placeholder((200,), "float32", name="X")
    y = te.compute((200,), lambda i: x[i].astype("bfloat16"), name="Y")
    s = Schedule(te.create_prim_func([x, y]))
    bx, tx, v = s.split(s.get_loops("Y")[0], [None, 32, 4])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    s.vectorize(v)
    out = np.zeros(200, bfloat16)
    run_serially(s.func, a, out)
    np.testing.assert_array_equal(out.astype("f"), a.astype(bfloat16).astype("f"))


def test_bfloat16_elementwise():
    a, out = np.arange(100).astype(bfloat16), np.zeros(100, bfloat16)
    run_serially(elementwise((100,), 8, "bfloat16").func, a, out)
    np.testing.assert_array_equal(out, (a.astype("f") * 2 + 1).astype(bfloat16))


def test_a_copy_of_bfloat16_is_one_of_bits():
    x = te.placeholder((70,), "bfloat16", name="X")
    s = Schedule(te.create_prim_func([x, te.compute((70,), lambda i: x[i], name="Y")]))
    s.bind(s.get_loops("Y")[0], "threadIdx.x")
    lowered = lower_device(s.func)
    assert not any(isinstance(n, Call) for launch in lowered.launches for n in preorder(launch.body))


def test_the_least_bfloat16_begins_a_maximum():
    assert te.min_value("bfloat16").value == float(np.finfo(np.float32).min) * (2 - 2**-7) / (2 - 2**-23)
