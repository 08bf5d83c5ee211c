"""What is computed of the results of a scan, a sort or a scatter is computed where they are written: no launch more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.relax.op.registry import get_op
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from autosched.topi.sort import argsort, cumsum, take_along
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")
ROWS, WIDTH = 5, 37
X, BIAS = te.placeholder((ROWS, WIDTH), name="x"), te.placeholder((WIDTH,), name="bias")
POSITIONS = te.placeholder((9, WIDTH), dtype="int64", name="at")
UPDATES = te.placeholder((9, WIDTH), name="updates")
RNG = np.random.default_rng(0)
VALUES = {
    "x": RNG.permutation(ROWS * WIDTH).reshape(ROWS, WIDTH).astype("f") - 90.0,
    "bias": RNG.integers(-9, 9, WIDTH).astype("f"),
    "at": RNG.integers(0, ROWS, (9, WIDTH)),
    "updates": RNG.integers(-9, 9, (9, WIDTH)).astype("f"),
}


def summed() -> Tensor:
    return cumsum(X, 1, False)


def ordered() -> Tensor:
    return argsort(X, 1, True, "int32")


def ranked() -> Tensor:
    return take_along(X, ordered(), 1)


def scattered() -> Tensor:
    made: Tensor = get_op("scatter_elements").compute(X, POSITIONS, UPDATES, 0, "add", "clip")
    return made


def reference(name: str) -> np.ndarray:
    x = VALUES["x"].astype("d")
    match name:
        case "summed":
            return x.cumsum(1)
        case "ordered":
            return np.argsort(-x, 1, kind="stable")
        case "ranked":
            return -np.sort(-x, 1)
        case _:
            out = x.copy()
            np.add.at(out, (VALUES["at"], np.arange(WIDTH)[None, :].repeat(9, 0)), VALUES["updates"])
            return out


def launches(func: PrimFunc) -> int:
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET).kernel
    assert isinstance(kernel, CudaKernel)
    return len(kernel.launches)


def made_of(outputs: list[Tensor]) -> PrimFunc:
    """A function of what the outputs read."""
    found: list[Tensor] = []

    def visit(t: Tensor) -> None:
        if t in (X, BIAS, POSITIONS, UPDATES):
            if t not in found:
                found.append(t)
            return
        for source in t.op.input_tensors:
            visit(source)

    for out in outputs:
        visit(out)
    return create_prim_func([*found, *outputs])


def check(func: PrimFunc, expected: list[np.ndarray]) -> None:
    inputs = [VALUES[b.name] for b in func.buffers[: -len(expected)]]
    outs = [np.full(e.shape, 99).astype(b.dtype) for e, b in zip(expected, func.buffers[-len(expected) :], strict=True)]
    config = default_config(func, TARGET)
    for way, found in run_in_all_ways(apply_config(func, config, TARGET).func, TARGET, inputs, outs):
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4, err_msg=f"{config} {way}")


CORES: list[Callable[[], Tensor]] = [summed, ordered, ranked, scattered]


@spread(2, "core", CORES)
def test_an_epilogue_is_no_launch_more(core: Callable[[], Tensor]) -> None:
    plain = core()
    out = topi.relu(topi.add(topi.cast(core(), "float32"), BIAS))
    func = made_of([out])
    assert launches(func) == launches(made_of([plain]))
    check(func, [np.maximum(reference(core.__name__) + VALUES["bias"], 0)])


@spread(3, "core", CORES)
def test_a_result_that_is_wanted_itself_is_written_too(core: Callable[[], Tensor]) -> None:
    result = core()
    turned = te.compute((WIDTH, ROWS), lambda j, i: result(i, j) * te.const(2, result.dtype), name="turned")
    func = made_of([result, turned])
    known = reference(core.__name__)
    assert launches(func) == launches(made_of([core()]))
    check(func, [known, 2 * known.T])


@spread(3, "core", CORES, first=1)
def test_what_needs_other_elements_is_a_launch_of_its_own(core: Callable[[], Tensor]) -> None:
    result = core()
    backwards = te.compute((ROWS, WIDTH), lambda i, j: result(i, WIDTH - 1 - j) + result(i, j), name="both")
    func, known = made_of([backwards]), reference(core.__name__)
    assert launches(func) == launches(made_of([core()])) + 1
    check(func, [known[:, ::-1] + known])


def test_sorts_scans_and_scatters_are_not_searched_as_sums_over_pairs() -> None:
    """Their work grows with the square of a line's length; short lines are worth it."""
    long = te.placeholder((8, 4096), name="x")
    for name, made in (("scan", cumsum(long, 1, False)), ("sort", argsort(long, 1, True, "int32"))):
        assert {c.template for c in space_for(create_prim_func([long, made]), TARGET).sample(0, 60)} == {name}
    assert {c.template for c in space_for(made_of([summed()]), TARGET).sample(0, 60)} == {"scan", "rows", "reduction"}
