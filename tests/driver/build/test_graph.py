"""What the build writes into nodes, and what is said of graphs that no machine holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched.driver.build import choose
from autosched.driver.build.graph import prepare
from autosched.driver.build.schedules import prim_funcs
from autosched.errors import OutOfMemoryError
from autosched.frontend.onnx import from_onnx
from autosched.ir.structural import function_texts
from autosched.records import FallbackContext
from autosched.relax import BlockBuilder, op
from autosched.relax.expr import Expr, ShapeExpr, Var
from autosched.runtime import Executable
from autosched.target import Target
from benchmarks.models import get_model
from tests.relax.transform.graphs import graph


def test_large_layers_are_split_and_small_ones_are_not(tmp_path) -> None:
    large = autosched.build(from_onnx(get_model("mlp", 128)), target="cpu", records=FallbackContext(), threads=2)
    small = autosched.build(from_onnx(get_model("mlp", 1)), target="cpu", records=FallbackContext(), threads=2)
    first, last = (node.threads for node in large.graph.nodes)
    assert first > last >= 1
    assert first > 8  # 128 x 784 x 256
    assert {node.threads for node in small.graph.nodes if "matmul" not in node.kernel} <= {1}
    assert small.graph.nodes[-1].threads == 1  # 1 x 256 x 10
    large.save(tmp_path / "m.asx")
    assert [node.threads for node in Executable.load(tmp_path / "m.asx").graph.nodes] == [first, last]


def test_results_of_kernels_share_no_memory_where_threads_do() -> None:
    def build(bb: BlockBuilder, x: Var) -> Expr:
        y: Expr = x
        for axis in (0, 1, 2, 0, 1, 2):
            y = op.cumsum(y, axis=axis)
        return op.cumsum(y, axis=0)

    module = graph({"x": (2, 4, 8)}, build)
    assert [autosched.build(module, records=[], threads=n).graph.arena_bytes for n in (1, 2)] == [2 * 256, 3 * 256]


HUGE: dict[str, Callable[[Var], Expr]] = {
    "pad": lambda x: op.nn.pad(x, pad_width=[0, 1 << 22, 0, 1 << 22]),
    "tile": lambda x: op.tile(x, (1 << 20, 1 << 20)),
    "broadcast_to": lambda x: op.broadcast_to(op.reshape(x, ShapeExpr((1, 16))), ShapeExpr((1 << 38, 16))),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_result_that_no_memory_holds_is_said_with_its_operator(name: str) -> None:
    executable = autosched.build(graph({"x": (4, 4)}, lambda bb, x: HUGE[name](x)), records=[], threads=1)
    with pytest.raises(OutOfMemoryError, match=rf"\d+ bytes of memory are needed.*kernel '\w*{name}"):
        executable(np.ones((4, 4), "float32"))


def test_each_choice_is_given_as_soon_as_it_is_made(monkeypatch) -> None:
    """Kernels are compiled while later ones are still being chosen."""
    module = graph({"x": (4, 64)}, lambda bb, x: op.nn.softmax(op.matmul(x, op.permute_dims(x))))
    prepared = prepare(module, Target("cpu"), {})
    events: list[str] = []
    facts = choose.Facts.of
    monkeypatch.setattr(choose.Facts, "of", lambda func, target: events.append("asked") or facts(func, target))
    choices = choose.choose_all(prepared, Target("cpu"), None, threads=1, chosen=lambda c: events.append(c.name))
    assert len(choices) > 1
    assert events == [event for name in choices for event in ("asked", name)]


@pytest.mark.parametrize("pool", [lambda x: op.nn.max_pool2d(x, (2, 2)), lambda x: op.mean(x, [2, 3])])
def test_a_kernel_is_the_same_wherever_in_the_model_it_stands(pool: Callable[[Expr], Expr]) -> None:
    """The deeper model of a family finds the kernels of the other one in the cache."""

    def behind(n: int) -> tuple[str, str]:
        def model(bb: BlockBuilder, x: Expr) -> Expr:
            for _ in range(n):
                x = bb.emit(op.nn.softmax(x))
            return bb.emit(pool(x))

        kernels = prim_funcs(prepare(graph({"x": (1, 16, 8, 8)}, model), Target("cpu"), {}))
        (func,) = (f for name, f in kernels.items() if "softmax" not in name)
        return function_texts(func)

    assert behind(2) == behind(5)
