import numpy as np
import pytest

from autosched import te
from autosched.codegen import lower_func
from autosched.target import Target
from autosched.tir import PrimFunc, Schedule
from autosched.tuner.cost_model.loop_features import FEATURES, loop_features, per_operation


def product(m: int = 64, n: int = 96, k: int = 80) -> PrimFunc:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="c")
    return te.create_prim_func([a, b, c], "int64")


def features(func: PrimFunc) -> dict[str, float]:
    target = Target("llvm -mcpu=x86-64-v3")
    return dict(zip(FEATURES, np.round(2 ** loop_features(lower_func(func), target) - 1, 3).tolist(), strict=True))


def test_work_and_footprint_of_a_plain_product() -> None:
    found = features(product())
    assert found["flops"] == pytest.approx(2 * 64 * 96 * 80, rel=0.01)
    own = 4 * (64 * 80 + 80 * 96 + 64 * 96)
    assert own <= found["footprint_bytes"] <= own + 4 * 64 * 96 + 1  # the initialisation counts its own store
    assert found["vector_extent"] == found["parallel_extent"] == 1


def test_a_ragged_tile_does_not_count_its_branches_twice() -> None:
    sch = Schedule(product(50, 90, 16))
    i, j, _ = sch.get_loops(sch.get_block("c"))
    io, _ = sch.split(i, [None, 8])
    jo, _ = sch.split(j, [None, 16])
    found = features(sch.func)
    assert found["flops"] == pytest.approx(2 * 50 * 90 * 16, rel=0.4)
    assert io is not jo


def test_annotations_of_loops_and_tiling_for_the_cache() -> None:
    def made(tile: int) -> dict[str, float]:
        sch = Schedule(product(512, 512, 512))
        i, j, k = sch.get_loops(sch.get_block("c"))
        jo, ji = sch.split(j, [None, 16])
        if tile > 1:
            io, ii = sch.split(i, [None, tile])
            ko, ki = sch.split(k, [None, 32])
            sch.reorder(io, jo, ko, ki, ii, ji)
        else:
            sch.reorder(i, jo, k, ji)
        sch.vectorize(ji)
        sch.parallel(sch.get_loops(sch.get_block("c"))[0])
        return features(sch.func)

    plain, tiled = made(1), made(32)
    assert plain["vector_extent"] == 16 and plain["parallel_extent"] == 512 and tiled["parallel_extent"] == 16
    assert tiled["l1_miss_bytes"] < plain["l1_miss_bytes"] / 4
    assert tiled["flops"] == pytest.approx(plain["flops"])
    assert plain["l1_miss_bytes"] >= plain["l2_miss_bytes"] >= plain["l3_miss_bytes"]


def test_all_are_finite() -> None:
    assert np.isfinite(loop_features(lower_func(product(1, 1, 1)), Target("cpu"))).all()


def test_by_operation_a_shape_twice_as_large_is_alike() -> None:
    target = Target("llvm -mcpu=x86-64-v3 -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")
    small, large = (loop_features(lower_func(product(m, 512, 512)), target) for m in (256, 512))
    apart = per_operation(np.array([small, large]))
    assert apart.shape == (2, len(FEATURES) - 3)
    assert np.abs(apart[0] - apart[1]).max() < 0.4 and np.abs(small - large).max() > 0.9


def test_bfloat16_takes_two_bytes() -> None:
    def copy(dtype: str) -> PrimFunc:
        a = te.placeholder((64,), dtype, name="a")
        return te.create_prim_func([a, te.compute((64,), lambda i: a[i], name="c")])

    assert features(copy("bfloat16")) == features(copy("int16"))
