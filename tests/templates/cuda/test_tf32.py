"""Products of float32 rounded to tf32: only where a function allows it; values, shared memory, machine code."""

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.codegen import compile_func
from autosched.runtime import array, cuda
from autosched.runtime.cuda.devices import use_driver
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.templates.cuda import warpgroup_matmul
from autosched.templates.tf32 import SHARE, with_tf32
from autosched.templates.workload import describe
from autosched.tuner.measure.make_reference import make_reference
from tests.check_cuda import _conv
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")
RNG = np.random.default_rng(0)


def product(m, k, n, batch=(), transposed=False, dtype="float32"):
    """relu(A B), B as it is or [n, k]."""
    a = te.placeholder((*batch, m, k), dtype, name="A")
    b = te.placeholder((*batch, n, k) if transposed else (*batch, k, n), dtype, name="B")
    axis = te.reduce_axis((0, k), "k")

    def term(*i):
        *rest, row, column = i
        return te.sum(a[(*rest, row, axis)] * b[(*rest, column, axis) if transposed else (*rest, axis, column)], axis)

    return create_prim_func([a, b, topi.relu(te.compute((*batch, m, n), term, name="C"))])


def rounded(x):
    """To the nearest number of 11 bits, halves away from 0."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def cut(x):
    return (x.view(np.uint32) & 0xFFFFE000).view(np.float32)


def run(func, config, inputs, order="late", traces=()):
    applied = apply_config(func, config, TARGET)
    kernel = compile_func(applied.func, TARGET, use_cache=False).kernel
    given = [x if pack is None else pack.pack(x) for x, pack in zip([*inputs], applied.packs, strict=False)]
    out = np.zeros(kernel.outputs[0].shape, kernel.outputs[0].dtype)
    emulate.run_kernel(kernel, [*given, out], order=order, traces=list(traces))
    return kernel, out


def draw(name, func, count):
    """Configurations from the space of one template."""
    (space,) = [t.space(anchor, TARGET) for t, anchor in templates_for(func, TARGET) if t.name == name]
    drawn = space.sample(1, count)
    assert len(drawn) == count
    return drawn


@spread(
    2,
    "sizes, transposed",
    [((70, 64, 52), False), ((33, 48, 67), False), ((70, 96, 72, (3,)), True), ((130, 32, 65), True)],
)
def test_factors_are_rounded_and_sums_are_not(sizes, transposed):
    func = with_tf32(product(*sizes, transposed=transposed))
    a, b = (RNG.standard_normal(x.const_shape()).astype("f") for x in func.buffers[:2])
    right = rounded(b) if not transposed else np.swapaxes(rounded(b), -1, -2)
    expected = np.maximum(rounded(a).astype("d") @ right, 0)
    first = default_config(func, TARGET)
    assert first.template.startswith("tensor_")
    for config, order in zip([first, *draw("tensor_matmul", func, 2)], ("late", "ahead", "late"), strict=True):
        kernel, out = run(func, config, [a, b], order)
        assert "m16n8k8.row.col.f32.tf32" in kernel.ptx
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4, err_msg=str(config))


def test_columns_that_lie_apart_are_read_without_conflicts():
    func, trace = with_tf32(product(64, 64, 64)), emulate.Trace()
    a, b = (RNG.standard_normal(x.const_shape()).astype("f") for x in func.buffers[:2])
    (config,) = draw("tensor_matmul", func, 1)
    run(func, config, [a, b], traces=[trace])
    reads = [x for x in trace.accesses() if x.space == "shared" and not x.writes]
    assert reads and all(x.transactions == x.ideal for x in reads)


@pytest.mark.parametrize("transposed", [True, False])
@spread(2, "sizes", [(200, 136, 72), (96, 68, 131)])
def test_warpgroups_cut_off(sizes, transposed, monkeypatch):
    """A matrix [k, n] is packed as [n, k], which the instruction wants of words."""
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    func = with_tf32(product(*sizes, transposed=transposed))
    a, b = (RNG.standard_normal(x.const_shape()).astype("f") for x in func.buffers[:2])
    expected = np.maximum(cut(a).astype("d") @ (cut(b).T if transposed else cut(b)), 0)
    config = default_config(func, TARGET)
    assert config.template == "warpgroup_matmul"
    for order in ("late", "ahead"):
        kernel, out = run(func, config, [a, b], order)
        assert "k8.f32.tf32.tf32" in kernel.ptx
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@spread(2, "shape", [(16, 9, 24, 3, 1), (32, 11, 40, 1, 2)])
def test_convolutions(shape):
    func = with_tf32(_conv(*shape))
    config = default_config(func, TARGET)
    assert config.template == "tensor_contraction"
    x, w = (RNG.standard_normal(b.const_shape()).astype("f") for b in func.buffers[:2])
    _, out = run(func, config, [x, w])
    known = make_reference(func)
    assert known.rounding[0] > SHARE
    _, plain = run(_conv(*shape), default_config(_conv(*shape), TARGET), [x, w])
    assert 0 < np.abs(out - plain).max() < SHARE * np.abs(plain).max()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_defaults_of_small_sizes_are_in_their_spaces_and_become_code(dtype):
    """Also of sizes that no tile divides: a warp that is alone computes whole instructions."""
    for m, k, n in [(16, 16, 16), (8, 8, 8), (17, 64, 9), (40, 16, 15), (9, 64, 20), (20, 32, 65)]:
        func = with_tf32(product(m, k, n, dtype=dtype))
        config = default_config(func, TARGET)
        assert space_for(func, TARGET).contains(config), (config, m, k, n)
        compile_func(apply_config(func, config, TARGET).func, TARGET)


def test_nothing_is_rounded_unasked():
    plain, allowed = product(128, 128, 128), with_tf32(product(128, 128, 128))
    assert not any("tensor" in c.template for c in space_for(plain, TARGET).sample(0, 50))
    assert describe(plain, TARGET) != describe(allowed, TARGET), "records of the one are not used for the other"
    half = product(64, 64, 64, dtype="float16")
    assert with_tf32(half) is half
    assert "tensor" not in default_config(allowed, Target("cuda -arch=sm_75")).template


def test_large_products_stay_in_registers():
    func = with_tf32(product(4096, 4096, 4096))
    config = default_config(func, TARGET)
    assert config.template == "warpgroup_matmul"
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    (used,) = kernel.resources.launches
    assert used.stack_bytes == used.spill_bytes == 0 and used.registers <= 224
    assert "m64n256k8" in kernel.ptx and "ld.shared" not in kernel.ptx


def test_what_is_known_when_called_is_packed_then(monkeypatch):
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    func = with_tf32(product(96, 160, 72))
    a, b = (RNG.standard_normal(x.const_shape()).astype("f") for x in func.buffers[:2])
    with use_driver(emulate.EmulatorDriver):
        given = [array(x, cuda(0)) for x in (a, b, np.zeros((96, 72), "f"))]
        autosched.build(func, target=TARGET, records=[])(*given)
        found = given[2].numpy()
    np.testing.assert_allclose(found, np.maximum(cut(a).astype("d") @ cut(b), 0), rtol=1e-5, atol=1e-4)


def test_bytes_along_n_are_packed_for_warpgroups(monkeypatch):
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    a, b = te.placeholder((96, 160), "int8", name="A"), te.placeholder((160, 72), "int8", name="B")
    axis = te.reduce_axis((0, 160), "k")
    c = te.compute((96, 72), lambda i, j: te.sum(a[i, axis].astype("int32") * b[axis, j].astype("int32"), axis=axis))
    func = create_prim_func([a, b, c])
    config = default_config(func, TARGET)
    assert config.template == "warpgroup_matmul"
    x, w = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((96, 160), (160, 72)))
    _, out = run(func, config, [x, w])
    np.testing.assert_array_equal(out, x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.parametrize(
    "fault, order",
    [("barrier", "late"), ("barrier", "ahead"), ("wait", "late"), ("mbarrier", "late"), ("mbarrier", "ahead")],
)
def test_planted_faults_are_found(fault, order, monkeypatch):
    """A barrier or a wait that is missing is an error, or at least a wrong number in one of the orders."""
    from autosched.codegen.cuda import instructions, tile
    from autosched.codegen.lower import device

    if fault == "barrier":
        monkeypatch.setattr(device, "place_barriers", lambda body, *_: body)
    elif fault == "wait":
        monkeypatch.setattr(tile, "cp_async_wait", lambda builder, groups: None)
    else:
        monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
        monkeypatch.setattr(instructions, "mbarrier_wait", lambda builder, *args: None)
    func = with_tf32(product(64, 160, 64))
    a, b = np.ones((64, 160), "f"), np.ones((160, 64), "f")
    config = default_config(func, TARGET)
    assert (config.template == "warpgroup_matmul") == (fault == "mbarrier")
    try:
        _, out = run(func, config, [a, b], order)
    except emulate.EmulationError:
        return
    assert fault == "wait" and not np.array_equal(out, np.full((64, 64), 160, "f"))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_threads_that_gather_pixels_read_neighbours(dtype):
    """Also where terms lie side by side in shared memory, as bytes do."""
    if dtype == "float32":
        func = with_tf32(_conv(32, 16, 32, 3, 1))
    else:
        data, weight = te.placeholder((1, 32, 16, 16), dtype, name="D"), te.placeholder((32, 32, 3, 3), dtype, name="W")
        func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 1, 1, "NCHW", out_dtype="int32")])
    config, trace = default_config(func, TARGET), emulate.Trace()
    assert config.template == "tensor_contraction"
    inputs = [RNG.integers(-9, 9, b.const_shape()).astype(b.dtype) for b in func.buffers[:2]]
    run(func, config, inputs, traces=[trace])
    reads = [x for x in trace.accesses() if x.space == "global" and not x.writes]
    assert sum(x.transactions for x in reads) <= 2 * sum(x.ideal for x in reads)
