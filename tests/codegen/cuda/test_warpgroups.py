"""Products of warpgroups fed by tensor maps, on the emulator: numbers, borders, waits; and their machine code."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.errors import CodegenError
from autosched.tir.schedule import Schedule
from tests.codegen.gpu_programs import warpgroup_product
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
ml_dtypes = pytest.importorskip("ml_dtypes")


def run(func, arrays, shape, order):
    kernel = compile_func(func, "cuda -arch=sm_90a", use_cache=False).kernel
    assert "wgmma.mma_async" in kernel.ptx and "cp.async.bulk.tensor" in kernel.ptx
    out = np.zeros(shape, kernel.outputs[0].dtype)
    emulate.run_kernel(kernel, [*arrays, out], order=order)
    return out


def operands(m, n, k, dtype, transposed=False):
    rng, total = np.random.default_rng(0), "int32" if dtype == "int8" else "float32"
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b, bias = (rng.integers(-8, 8, shape) for shape in ((m, k), (n, k) if transposed else (k, n), (n,)))
    return [a.astype(kind), b.astype(kind), bias.astype(total)], a @ (b.T if transposed else b) + bias


@pytest.mark.parametrize("order", ["late", "ahead"])
@spread(
    3,
    "sizes, dtype, options",
    [
        ((128, 64, 256), "float16", {}),
        ((200, 136, 136), "bfloat16", {"tile": (128, 128, 64), "stages": 3}),
        ((64, 96, 192), "float16", {"tile": (64, 96, 64), "groups": 1, "transposed": True, "stages": 4}),
        ((64, 48, 256), "int8", {"tile": (64, 48, 128), "groups": 1, "transposed": True}),
        ((64, 16, 160), "float32", {"tile": (64, 16, 64), "groups": 1, "transposed": True}),
        ((256, 64, 256), "float16", {"cluster": (2, 1)}),
        ((72, 136, 200), "bfloat16", {"tile": (64, 64, 64), "groups": 1, "stages": 3, "cluster": (1, 2)}),
        ((200, 96, 192), "float16", {"tile": (64, 32, 64), "groups": 1, "transposed": True, "cluster": (2, 2)}),
        ((128, 64, 160), "float32", {"tile": (64, 32, 64), "groups": 1, "transposed": True, "cluster": (1, 2)}),
        ((200, 136, 136), "float16", {"tile": (64, 64, 64), "groups": 1, "stages": 2, "blocks": 5}),
        ((384, 128, 192), "bfloat16", {"tile": (64, 64, 64), "groups": 1, "stages": 4, "cluster": (2, 1), "blocks": 2}),
    ],
)
def test_products(sizes, dtype, options, order):
    arrays, expected = operands(*sizes, dtype, options.get("transposed", False))
    out = run(warpgroup_product(*sizes, dtype, **options).func, arrays, sizes[:2], order)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("order", ["late", "ahead"])
def test_a_missing_wait_is_found(monkeypatch, missing, order):
    """The first wait is that of who multiplies, the second of who copies."""
    from autosched.codegen.cuda import instructions

    made, wait = [], instructions.mbarrier_wait

    def skip_one(builder, *args):
        made.append(args)
        if len(made) - 1 != missing:
            wait(builder, *args)

    monkeypatch.setattr(instructions, "mbarrier_wait", skip_one)
    arrays, _ = operands(64, 64, 320, "float16")
    with pytest.raises(emulate.EmulationError):
        run(warpgroup_product(64, 64, 320, tile=(64, 64, 64), groups=1).func, arrays, (64, 64), order)


def skipped(monkeypatch, name, number):
    """Leave out one call of a function of `instructions`."""
    from autosched.codegen.cuda import instructions

    made, whole = [], getattr(instructions, name)

    def skip_one(*args):
        made.append(args)
        if len(made) - 1 != number:
            whole(*args)

    monkeypatch.setattr(instructions, name, skip_one)


def changed(monkeypatch, name, change):
    """Let a function of `instructions` have other arguments."""
    from autosched.codegen.cuda import instructions

    whole = getattr(instructions, name)
    monkeypatch.setattr(instructions, name, lambda *args: whole(*change(*args)))


def clustered(order):
    arrays, _ = operands(128, 64, 320, "float16")
    func = warpgroup_product(128, 64, 320, tile=(64, 64, 64), groups=1, cluster=(2, 1)).func
    run(func, arrays, (128, 64), order)


def test_a_missing_barrier_of_the_cluster_is_found(monkeypatch):
    """The first stands behind the initialisation of mbarriers, the last one before blocks end."""
    for number, kind in ((0, "race"), (1, "ended")):
        with monkeypatch.context() as patch, pytest.raises(emulate.EmulationError) as caught:
            skipped(patch, "cluster_wait", number)
            clustered("ahead")
        assert caught.value.kind == kind


@pytest.mark.parametrize("order", ["late", "ahead"])
def test_a_missing_arrival_at_another_block_is_found(monkeypatch, order):
    skipped(monkeypatch, "mbarrier_arrive_at", 1)
    with pytest.raises(emulate.EmulationError) as caught:
        clustered(order)
    assert caught.value.kind == "deadlock"


def test_an_arrival_at_the_own_block_instead_is_found(monkeypatch):
    from autosched.codegen.cuda import instructions

    own = lambda builder, barrier, condition, rank: instructions.mbarrier_arrive(builder, barrier, condition)  # noqa: E731
    monkeypatch.setattr(instructions, "mbarrier_arrive_at", own)
    with pytest.raises(emulate.EmulationError, match="race"):
        clustered("ahead")


@pytest.mark.parametrize("order", ["late", "ahead"])
@pytest.mark.parametrize("mask, kind", [(1, "deadlock"), (2, "deadlock"), (7, "bounds")])
def test_a_wrong_set_of_receivers_is_found(monkeypatch, mask, kind, order):
    def other(builder, target, source, at, barrier, blocks):
        return builder, target, source, at, barrier, blocks and blocks.type(mask)

    changed(monkeypatch, "tensor_copy", other)
    with pytest.raises(emulate.EmulationError) as caught:
        clustered(order)
    assert caught.value.kind == kind


def test_a_block_waits_for_what_the_next_tile_overwrites(monkeypatch):
    """Several tiles of one block, each of fewer steps than there are stages."""
    arrays, _ = operands(256, 64, 128, "float16")
    func = warpgroup_product(256, 64, 128, tile=(64, 64, 64), groups=1, stages=3, blocks=1).func
    skipped(monkeypatch, "mbarrier_wait", 1)
    with pytest.raises(emulate.EmulationError):
        run(func, arrays, (256, 64), "ahead")


def test_clusters_are_for_later_architectures():
    func = warpgroup_product(128, 128, 256, cluster=(1, 2)).func
    kernel = compile_func(func, "cuda -arch=sm_90a", use_cache=False).kernel
    assert kernel.launches[0].cluster == (2, 1, 1) and "multicast::cluster" in kernel.ptx
    rows, columns = te.placeholder((64, 256), name="A"), te.compute((64, 256), lambda i, j: i + j)
    s = Schedule(te.create_prim_func([rows, columns]))
    i, j = s.get_loops("compute")
    block, own = s.split(i, [None, 4])
    for loop, axis in ((block, "blockIdx.x"), (own, "clusterCtaIdx.x"), (j, "threadIdx.x")):
        s.bind(loop, axis)
    kernel = compile_func(s.func, "cuda -arch=sm_90", use_cache=False).kernel
    assert (kernel.launches[0].grid, kernel.launches[0].cluster) == ((64, 1, 1), (4, 1, 1))
    out = np.zeros((64, 256), np.int32)
    emulate.run_kernel(kernel, [np.zeros((64, 256), "f"), out])
    np.testing.assert_array_equal(out, np.add.outer(np.arange(64), np.arange(256)))
    with pytest.raises(CodegenError, match="sm_80 lacks .*clusters"):
        compile_func(s.func, "cuda -arch=sm_80", use_cache=False)


def test_the_last_wait_comes_before_results_are_used():
    ptx = compile_func(warpgroup_product(128, 64, 256).func, "cuda -arch=sm_90a", use_cache=False).kernel.ptx
    lines = ptx.splitlines()
    last = max(i for i, line in enumerate(lines) if "wgmma.wait_group.sync.aligned 0" in line)
    assert any("wgmma.mma_async" in line for line in lines[:last])
    stores = [i for i, line in enumerate(lines) if "st.global" in line or "\tst.v2" in line]
    assert stores and min(stores) > last


@pytest.mark.parametrize(
    "sizes, options, message",
    [
        ((128, 64, 256), {"tile": (128, 64, 32)}, "no box"),
        ((128, 64, 252), {}, "multiples of 16 bytes"),
        ((128, 64, 256), {"tile": (64, 64, 64), "groups": 2}, "no whole tiles of 64"),
        ((128, 512, 256), {"tile": (128, 512, 64)}, "columns at once"),
        ((128, 64, 256), {"stages": 1}, "one stage"),
    ],
)
def test_what_has_no_code(sizes, options, message):
    with pytest.raises(CodegenError, match=message):
        compile_func(warpgroup_product(*sizes, **options).func, "cuda -arch=sm_90a", use_cache=False)


def test_only_one_architecture_has_the_instructions():
    with pytest.raises(CodegenError, match="sm_90 lacks what the kernel uses: wgmma"):
        compile_func(warpgroup_product(128, 64, 256).func, "cuda -arch=sm_90", use_cache=False)


def test_sums_that_are_used_too_early_are_refused(monkeypatch):
    """The assembler would let each product wait for the one before."""
    from autosched.codegen.cuda import instructions

    monkeypatch.setattr(instructions, "wgmma_wait", lambda builder, sums: list(sums))
    func = warpgroup_product(4096, 4096, 4096, tile=(128, 256, 64), stages=4).func
    with pytest.raises(CodegenError, match="would wait for each other"):
        compile_func(func, "cuda -arch=sm_90a", use_cache=False)
