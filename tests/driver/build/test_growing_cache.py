"""A decoder whose cache grows: each call has another size than the one before."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.errors import ShapeError
from autosched.ir import IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.transform.bind_symbolic import BindSymbolicVars
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.program import Program
from autosched.tir.expr import Var

pytestmark = pytest.mark.usefixtures("helper")

OP, NN = relax.op, relax.op.nn
WIDTH, HEADS, LAYERS = 32, 2, 3
HEAD = WIDTH // HEADS


def decoder(n_new: int | Var = 1) -> IRModule:
    """Layers of attention over a cache and new tokens, which the outputs hold together."""
    rng = np.random.default_rng(3)
    builder, past = BlockBuilder(), Var("past", "int64")
    x = relax.Var("x", relax.TensorStructInfo((1, n_new, WIDTH), "float32"))
    cache = [
        relax.Var(f"past_{n}", relax.TensorStructInfo((1, HEADS, past, HEAD), "float32")) for n in range(2 * LAYERS)
    ]
    with builder.function("main", [x, *cache]):
        with builder.dataflow():
            y, grown = _layers(builder, rng, x, cache, n_new)
            out = builder.emit_output(relax.Tuple([y, *grown]))
        builder.emit_func_output(out)
    return builder.get()


def _layers(builder: BlockBuilder, rng: Any, y: Any, cache: list[Any], n_new: int | Var) -> tuple[Any, list[Any]]:
    emit, grown = builder.emit, []

    def dense(value: Any) -> Any:
        return emit(OP.matmul(value, relax.const((rng.standard_normal((WIDTH, WIDTH)) * 0.2).astype("float32"))))

    def heads(value: Any) -> Any:
        return emit(OP.permute_dims(emit(OP.reshape(value, (1, n_new, HEADS, HEAD))), (0, 2, 1, 3)))

    for layer in range(LAYERS):
        q, k, v = heads(dense(y)), heads(dense(y)), heads(dense(y))
        keys, values = (
            emit(OP.concat([old, new], axis=2)) for old, new in zip(cache[2 * layer : 2 * layer + 2], (k, v))
        )
        scores = emit(NN.softmax(emit(OP.matmul(q, emit(OP.permute_dims(keys, (0, 1, 3, 2))))), -1))
        mixed = emit(OP.permute_dims(emit(OP.matmul(scores, values)), (0, 2, 1, 3)))
        y = emit(OP.add(y, dense(emit(OP.reshape(mixed, (1, n_new, WIDTH))))))
        grown += [keys, values]
    return y, grown


def inputs(past: int, n_new: int = 1, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(1, n_new, WIDTH), *[(1, HEADS, past, HEAD)] * (2 * LAYERS)]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.fixture(scope="module")
def module() -> IRModule:
    return decoder()


@pytest.fixture(scope="module")
def built(module: IRModule) -> DynamicExecutable:
    made = autosched.build(module)
    assert isinstance(made, DynamicExecutable)
    return made


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Program]]:
    """Programs that are made from a graph, and not from another program."""
    made: list[Program] = []
    init = Program.__init__

    def counted(self: Program, *args: Any, **named: Any) -> None:
        made.append(self)
        init(self, *args, **named)

    monkeypatch.setattr(Program, "__init__", counted)
    yield made


@pytest.mark.parametrize("past", [1, 2, 17, 63, 64, 65, 1001])
def test_results_are_the_static_builds(module: IRModule, built: DynamicExecutable, past: int) -> None:
    static = autosched.build(BindSymbolicVars({"past": past})(module))
    for seed in range(2):
        given = inputs(past, seed=seed)
        for found, wanted in zip(built(*given), static(*given), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_a_loop_makes_one_program_and_compiles_nothing(built: DynamicExecutable, programs: list[Program]) -> None:
    executor, before = built.create_executor(), counters.COMPILES.value
    x, *cache = inputs(1)
    want = [part.copy() for part in cache]
    for step in range(300):
        given = dict(zip(built.form.inputs, [x, *cache], strict=True))
        y, *grown = executor.run(given)
        for old, new, whole in zip(want, cache, grown, strict=True):
            np.testing.assert_array_equal(whole.view()[:, :, :-1], old)
            np.testing.assert_array_equal(new, old)  # what was given is as it was
        cache = [part.view() for part in grown]
        want = [part.copy() for part in cache]
        assert y.shape == (1, 1, WIDTH) and cache[0].shape == (1, HEADS, step + 2, HEAD)
    assert len(programs) == 1 and counters.COMPILES.value == before
    assert len(executor._programs) <= 32


def test_outputs_of_earlier_calls_never_change(built: DynamicExecutable) -> None:
    held: list[tuple[list[np.ndarray], list[Any]]] = []
    for n in range(30):
        outputs = built(*inputs(900 + n % 5, seed=n))
        if n % 4 == 0:
            held.append(([part.numpy() for part in outputs], [part.view() for part in outputs]))
    for copies, views in held:
        for copy, view in zip(copies, views, strict=True):
            np.testing.assert_array_equal(copy, view)


def test_memory_is_flat_once_arrays_are_dropped(built: DynamicExecutable) -> None:
    def loop(seed: int) -> int:
        x, *cache = inputs(1200, seed=seed)
        for _ in range(250):
            _, *cache = built(x, *cache)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    first = loop(0)
    assert max(loop(seed) for seed in range(1, 4)) - first < 8 << 10  # KiB: a call's outputs are 1 MB


def test_sizes_up_and_down_are_those_of_programs_made_for_them(module: IRModule) -> None:
    both = autosched.build(decoder(Var("n", "int64")))
    assert isinstance(both, DynamicExecutable)
    rng = np.random.default_rng(5)
    executor = both.create_executor()
    for _ in range(12):
        past, n_new = int(rng.integers(1, 300)), int(rng.integers(1, 20))
        given = dict(zip(both.form.inputs, inputs(past, n_new, seed=past), strict=True))
        fresh = both.create_executor()
        for found, wanted in zip(executor.run(given), fresh.run(given), strict=True):
            np.testing.assert_array_equal(found.view(), wanted.view())


def test_what_does_not_fit_is_said_as_before(built: DynamicExecutable) -> None:
    x, *cache = inputs(5)
    built(x, *cache)
    with pytest.raises(ShapeError, match="'past' is 5 for input 'past_0' and 6 for input 'past_1'"):
        built(x, cache[0], inputs(6)[2], *cache[2:])
    with pytest.raises(ShapeError, match="at least 1"):
        built(*inputs(0))
