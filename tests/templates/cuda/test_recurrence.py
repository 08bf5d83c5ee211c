"""Recurrent layers over a number of steps that comes with the call: launches that are repeated, on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

import autosched
from autosched import te, tir
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.codegen.cuda.emulate.driver import EmulatorDriver
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.codegen.lower.launches import LAUNCHED
from autosched.errors import CodegenError, ScheduleError
from autosched.runtime.cuda.devices import use_driver
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, schedule_sizes
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule
from autosched.topi.recurrent import recurrent
from tests.frontend.test_recurrent import layer
from tests.spread import spread

TARGET = Target("cuda -arch=sm_75")
ORDERS = ("late", "ahead")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
PANEL = 128


def size(name: str) -> tir.Var:
    return te.var(name, dtype="int64")


def panels(columns: int, hidden: int) -> tuple[int, int, int]:
    width = min(PANEL, columns)
    return -(-columns // width), hidden, width


def of_layer(
    kind: str, hidden: int, steps: Any = None, batch: Any = None, backward: bool = False, reset_after: bool = False
) -> PrimFunc:
    steps, batch, gates = steps or size("steps"), batch or size("batch"), GATES[kind] * hidden
    x = te.placeholder((steps, batch, gates), name="x")
    columns = [2 * hidden, hidden] if kind == "GRU" and not reset_after else [gates]
    weights = [te.placeholder(panels(c, hidden), name=f"w{i}") for i, c in enumerate(columns)]
    bias = te.placeholder((gates,), name="bias")
    start = [te.placeholder((batch, hidden), name=f"h{i}") for i in range(1 + (kind == "LSTM"))]
    out = recurrent(x, weights, bias, start, kind, FUNCTIONS[kind], backward, reset_after)
    return create_prim_func([x, *weights, *([bias] if reset_after else []), *start, *out])


def filled_up(shape: tuple[int, ...], columns: int, rng: np.random.Generator) -> np.ndarray:
    """A weight in panels, whose last columns are 0."""
    panel_count, hidden, width = shape
    whole = np.zeros((hidden, panel_count * width), "float32")
    whole[:, :columns] = rng.standard_normal((hidden, columns)) / np.sqrt(hidden)
    return np.ascontiguousarray(whole.reshape(hidden, panel_count, width).swapaxes(0, 1))


def compiled(func: PrimFunc, target: Target = TARGET) -> CudaKernel:
    is_known = all(isinstance(tir.expr.const_int(s), int) for b in func.buffers for s in b.shape)
    made = apply_config(func, default_config(func, target), target) if is_known else schedule_sizes(func, target)
    kernel = compile_func(made.func, target, name="kernel").kernel
    assert isinstance(kernel, CudaKernel)
    return kernel


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def computed(kind: str, hidden: int, arrays: list[np.ndarray], backward: bool, reset_after: bool) -> list[np.ndarray]:
    """(states of all steps, the last one, of an LSTM the last cell)."""
    x, *rest = [a.astype("float64") for a in arrays]
    weights = [np.hstack(rest.pop(0)) for _ in range(2 if kind == "GRU" and not reset_after else 1)]
    bias = rest.pop(0) if reset_after else np.zeros(1)
    h, cell = rest[0], rest[-1]
    states = np.empty((len(x), *h.shape))
    for t in range(len(x))[:: -1 if backward else 1]:
        parts = [slice(n * hidden, (n + 1) * hidden) for n in range(GATES[kind])]
        of_state = (h @ weights[0])[:, : 2 * hidden if kind == "GRU" and not reset_after else GATES[kind] * hidden]
        if kind == "RNN":
            h = np.tanh(of_state + x[t])
        elif kind == "LSTM":
            i, o, f, c = ((of_state + x[t])[:, part] for part in parts)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
            h = sigmoid(o) * np.tanh(cell)
        else:
            of_state = of_state + bias
            z, r = (sigmoid(of_state[:, part] + x[t][:, part]) for part in parts[:2])
            reset = r * of_state[:, parts[2]] if reset_after else ((r * h) @ weights[1])[:, :hidden]
            new = np.tanh(reset + x[t][:, parts[2]])
            h = new + z * (h - new)
        states[t] = h
    return [states, h, *([cell] if kind == "LSTM" else [])]


LAYERS = {
    "LSTM": ("LSTM", 37, None, 2, False, False),
    "LSTM, all sizes open, backward": ("LSTM", 19, None, None, True, False),
    "GRU": ("GRU", 21, None, 3, False, False),
    "GRU, all sizes open, reset after": ("GRU", 37, None, None, True, True),
    "RNN": ("RNN", 16, None, 1, False, False),
    "GRU of known sizes": ("GRU", 33, 4, 2, False, False),
    "LSTM of 3 steps": ("LSTM", 8, 3, None, False, False),
    "LSTM of many rows": ("LSTM", 64, None, 24, False, False),
}


@spread(3, "case", LAYERS)
def test_steps_are_launches(case: str) -> None:
    kind, hidden, steps, batch, backward, reset_after = LAYERS[case]
    kernel = compiled(of_layer(*LAYERS[case]))
    assert len(kernel.repeats) == 1
    assert Kernel.from_manifest(kernel.to_manifest(), kernel.code) == kernel
    for n_steps in [steps] if steps else (1, 2, 5):
        for rows in [batch] if batch else (1, 3):
            rng, at = np.random.default_rng(n_steps), kernel
            if kernel.sized is not None:
                at = kernel.at(tuple({"steps": n_steps, "batch": rows}[name] for name in kernel.sized.names))
            inputs = []
            for arg in at.inputs:
                columns = hidden * (GATES[kind] if kind != "GRU" or reset_after else 2 if arg.name == "w0" else 1)
                is_weight = arg.name.startswith("w")
                made = filled_up(arg.shape, columns, rng) if is_weight else rng.standard_normal(arg.shape)
                inputs.append(made.astype("float32"))
            expected = computed(kind, hidden, inputs, backward, reset_after)
            for order in ORDERS:
                outputs = [np.full(arg.shape, np.nan, "float32") for arg in at.outputs]
                run_kernel(at, [*inputs, *outputs], order=order)
                for found, wanted in zip(outputs, expected, strict=True):
                    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=f"{n_steps} x {rows}")


@spread(3, "case", LAYERS)
def test_it_becomes_machine_code_without_a_stack(case: str) -> None:
    archs = ["sm_75", "sm_80", "sm_90a", "sm_120"]
    assert len(add_images(compiled(of_layer(*LAYERS[case])), archs).images) == len(archs)


def test_a_step_takes_three_launches_and_memory_for_one_row_of_products() -> None:
    kernel = compiled(of_layer("LSTM", 32, None, 2))
    (repeat,) = kernel.repeats
    assert repeat.end - repeat.first == 3
    states, products = 2 * 11 * 2 * 32 * 4, 2 * 128 * 4
    assert states + products <= kernel.at((10,)).scratch_bytes <= states + products + 3 * 64


def test_repeats_that_are_not_of_the_launches_are_refused() -> None:
    damaged = compiled(of_layer("RNN", 8, None, 2)).to_manifest()
    for repeats in ([[0, 99, 1]], [[2, 2, 1]], [[1, 3, 1], [2, 4, 1]]):
        with pytest.raises(ValueError, match="repeats the launches"):
            CudaKernel.check_manifest("it", {**damaged, "repeats": repeats})
    with pytest.raises(ValueError, match="a size is"):
        CudaKernel.check_manifest("it", {**damaged, "repeats": [[1, 3, "other"]]})


def summed(steps: Any) -> tuple[PrimFunc, Schedule]:
    """Row t + 1 is row t and row t of x; scheduled by hand."""
    x = te.placeholder((steps, 8), name="x")
    state = te.placeholder((steps + 1, 8), name="state")
    start = te.compute((1, 8), lambda _, i: te.const(0.0, "float32"), name="start")
    row = te.compute(state.shape, lambda t, i: state[t - 1, i] + x[t - 1, i], name="row")
    rows = te.scan(start, row, state, inputs=[x])
    out = te.compute((steps, 8), lambda t, i: rows[t + 1, i], name="out")
    func = create_prim_func([x, out])
    sch = Schedule(func)
    sch.bind(sch.get_loops("start")[-1], "threadIdx.x")
    sch.annotate(sch.get_loops("row")[0], LAUNCHED, True)
    sch.bind(sch.get_loops("out")[0], "blockIdx.x")
    sch.bind(sch.get_loops("out")[1], "threadIdx.x")
    return func, sch


@pytest.mark.parametrize("steps", [5, size("n")], ids=["known", "open"])
def test_a_schedule_may_launch_again_and_again(steps: Any) -> None:
    _, sch = summed(steps)
    sch.bind(sch.get_loops("row")[1], "threadIdx.x")
    kernel = compiled_by_hand(sch)
    x = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")
    out = np.full_like(x, np.nan)
    run_kernel(kernel.at((5,)) if kernel.sized else kernel, [x, out])
    np.testing.assert_allclose(out, x.cumsum(0), rtol=1e-5, atol=1e-6)
    if isinstance(steps, int):
        run_serially(sch.func, x, again := np.full_like(x, np.nan))
        np.testing.assert_allclose(again, out, rtol=1e-6)


def compiled_by_hand(sch: Schedule) -> CudaKernel:
    kernel = compile_func(sch.func, TARGET, name="kernel").kernel
    assert isinstance(kernel, CudaKernel)
    return kernel


def test_such_a_loop_inside_of_another_is_refused() -> None:
    x = te.placeholder((4, 8), name="x")
    sch = Schedule(create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] + 1.0, name="y")]))
    outer, inner = sch.get_loops("y")
    sch.annotate(inner, LAUNCHED, True)
    sch.bind(outer, "blockIdx.x")
    with pytest.raises(CodegenError, match="inside of another loop"):
        compiled_by_hand(sch)


def test_a_row_that_depends_on_its_number_is_refused() -> None:
    n = size("n")
    x, state = te.placeholder((n, 8), name="x"), te.placeholder((n + 1, 8), name="state")
    start = te.compute((1, 8), lambda _, i: te.const(0.0, "float32"), name="start")
    scaled = te.compute(state.shape, lambda t, i: state[t - 1, 7 - i] * t.astype("float32"), name="scaled")
    row = te.compute(state.shape, lambda t, i: scaled[t, 7 - i] + x[t - 1, i], name="row")
    rows = te.scan(start, row, state, inputs=[x])
    with pytest.raises(ScheduleError, match="computes with the number of its row"):
        schedule_sizes(create_prim_func([x, te.compute((n, 8), lambda t, i: rows[t + 1, i], name="out")]), TARGET)


@spread(3, "kind, direction", [("LSTM", "bidirectional"), ("GRU", "forward"), ("RNN", "reverse")], first=2)
def test_a_model_over_any_number_of_steps(kind: str, direction: str, tmp_path: Any) -> None:
    model = layer(kind, 2 if direction == "bidirectional" else 1, direction=direction, hidden=5)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    expected = autosched.build(model)
    with use_driver(EmulatorDriver):
        made = autosched.build(model, target="cuda -arch=sm_90a")
        assert isinstance(made, DynamicExecutable), made.reason
        made.save(tmp_path / "m.asx")
        loaded = autosched.load(tmp_path / "m.asx")
        for steps in (1, 7, 3):
            x = np.random.default_rng(steps).standard_normal((steps, 2, 3)).astype("float32")
            for run in (made, loaded):
                for found, wanted in zip(run(x), expected(x), strict=True):
                    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
