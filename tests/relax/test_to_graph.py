from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.errors import InvalidTypeError
from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.to_graph import to_graph
from autosched.relax.transform import (
    AnnotateTIROpPattern,
    BindParams,
    CanonicalizeBindings,
    ChooseLayouts,
    CopyOutputs,
    FuseOps,
    FuseTIR,
    LegalizeKernels,
)
from autosched.runtime.graph import NOP, Graph
from autosched.tir.evaluate import evaluate
from tests.relax.transform.graphs import Weights, graph, run, small_network

W = Weights()


def _lower(module: IRModule) -> IRModule:
    for p in (CanonicalizeBindings(), LegalizeKernels(), AnnotateTIROpPattern(), FuseOps(), FuseTIR(), CopyOutputs()):
        module = p(module)
        relax.verify(module)
    return module


def _execute(graph: Graph, module: IRModule, constants, inputs) -> list[np.ndarray]:
    """Run a graph in real memory, so that values placed wrongly overwrite each other."""
    arena = np.full(graph.arena_bytes + 64, 0xFF, np.uint8)
    own = {i: np.full(graph.values[graph.root(n)].size_bytes, 0xFF, np.uint8) for i, n in enumerate(graph.outputs)}

    def memory(number: int) -> np.ndarray:
        value = graph.values[number]
        at = graph.values[graph.root(number)].storage
        raw = {
            "arena": lambda: arena[at.index :], "output": lambda: own[at.index],
            "input": lambda: inputs[at.index].reshape(-1).view(np.uint8),
            "const": lambda: np.ascontiguousarray(constants[at.index]).reshape(-1).view(np.uint8),
        }[at.kind]()  # fmt: skip
        return raw[: value.size_bytes].view(value.dtype).reshape(value.shape)

    for node in graph.nodes:
        if node.kernel != NOP:
            results = evaluate(module[node.kernel], [memory(n).copy() for n in node.inputs])
            for number, result in zip(node.outputs, results, strict=True):
                memory(number)[...] = result
    return [memory(n).copy() for n in graph.outputs]


def _check(module: IRModule, most_apart: int = 0) -> Graph:
    lowered = _lower(module)
    made, constants, _ = to_graph(lowered, most_apart=most_apart)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(p.struct_info.static_shape).astype(np.float32) for p in module["main"].params]
    for got, expected in zip(_execute(made, lowered, constants, inputs), run(module), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return made


def _storages(made: Graph) -> list[str]:
    return [made.values[n].storage.kind for n in made.outputs]


def test_a_network():
    made = _check(small_network())
    assert _storages(made) == ["output"]
    assert "fused_conv2d1_add_relu1" in [n.kernel for n in _check(ChooseLayouts(8)(small_network())).nodes]


def test_a_chain_alternates_between_two_places():
    def build(bb, x):
        for _ in range(5):
            x = op.matmul(x, W(8, 8))
        return x

    made = _check(graph({"x": (4, 8)}, build))
    assert made.arena_bytes == 2 * 4 * 8 * 4


def test_kernels_write_where_they_wrote_before():
    """Two threads then have the lines that they write; not where that takes more memory than is allowed."""

    def build(bb, x):
        for _ in range(3):
            x = op.matmul(op.multiply(op.matmul(x, W(8, 24)), op.sum(x)), W(24, 8))
        return x

    def kernels_of_places(made: Graph) -> list[set[str]]:
        places: dict[int, set[str]] = {}
        for node in made.nodes:
            for storage in (made.values[n].storage for n in node.outputs):
                if storage.kind == "arena":
                    places.setdefault(storage.index, set()).add(node.kernel)
        return list(places.values())

    made = _check(graph({"x": (4, 8)}, build), most_apart=1 << 20)
    assert set(map(len, kernels_of_places(made))) == {1}
    small = _check(graph({"x": (4, 8)}, build), most_apart=made.arena_bytes - 1)
    assert max(map(len, kernels_of_places(small))) > 1
    _check(small_network(), most_apart=1 << 20)


def _softmaxes(bb, x):
    for _ in range(4):
        x = op.nn.softmax(x)
    return x


def test_a_chain_stays_in_one_place_where_kernels_write_over_their_input():
    made = _check(graph({"x": (4, 16)}, _softmaxes))
    assert made.arena_bytes == 4 * 16 * 4
    assert [made.values[node.outputs[0]].storage.kind for node in made.nodes] == ["arena"] * 3 + ["output"]


def test_inputs_and_values_that_are_read_again_stay():
    def build(bb, x):
        first = bb.emit(op.nn.softmax(x))
        second = bb.emit(op.nn.softmax(first))
        third = bb.emit(op.nn.softmax(second))
        return op.add(op.nn.softmax(third), op.multiply(first, second))

    made = _check(graph({"x": (4, 16)}, build))  # `_check` runs in real memory: first and second are read at the end
    assert made.arena_bytes >= 3 * 4 * 16 * 4
    inputs = {made.values[n].storage for n in made.inputs}
    assert not any(made.values[n].storage in inputs for node in made.nodes for n in node.outputs)


def test_views_share_storage():
    made = _check(graph({"x": (4, 8)}, lambda bb, x: op.matmul(op.reshape(op.exp(x), (8, 4)), W(4, 3))))
    assert [n.kernel for n in made.nodes] == ["exp", NOP, "matmul"]
    assert made.values[made.nodes[1].outputs[0]].storage.kind == "alias"


def test_a_viewed_value_lives_as_long_as_the_view():
    def build(bb, x):
        first = bb.emit(op.nn.softmax(x))
        view = bb.emit(op.reshape(first, (8, 4)))
        other = x
        for _ in range(3):
            other = op.nn.softmax(other)
        return op.matmul(view, other)

    _check(graph({"x": (4, 8)}, build))


def test_outputs_of_every_kind():
    def build(bb, x):
        y = bb.emit(op.exp(x))
        return y, x, W(2), op.reshape(y, (8, 4)), y, op.reshape(op.tanh(x), (32,))

    made = _check(graph({"x": (4, 8)}, build))
    assert _storages(made) == ["output"] * 5 + ["alias"]
    assert sum(n.kernel.startswith("copy") for n in made.nodes) == 4


def test_several_results_of_one_kernel():
    def build(bb, x):
        parts = bb.emit(op.split(x, indices_or_sections=2, axis=1))
        return op.exp(relax.TupleGetItem(parts, 1)), relax.TupleGetItem(parts, 0)

    _check(graph({"x": (4, 8)}, build))


def test_concat_without_a_copy():
    def build(bb, x):
        left, right = bb.emit(op.nn.softmax(x)), bb.emit(op.exp(x))
        both = bb.emit(op.concat([left, right], axis=0))
        more = bb.emit(op.concat([both, bb.emit(op.nn.softmax(right))], axis=0))
        return op.matmul(more, W(16, 3)), op.matmul(right, W(16, 2)), op.matmul(both, W(16, 2))

    made = _check(graph({"x": (4, 16)}, build))
    assert not any("concat" in n.kernel for n in made.nodes)
    assert made.arena_bytes == 3 * 4 * 16 * 4


def test_scalars():
    _check(graph({"x": (), "y": (3,)}, lambda bb, x, y: (op.add(op.exp(x), 1.0), op.multiply(op.sum(y), x))))


def test_parameters_are_inputs_with_names():
    module = graph({"x": (2, 3), "w": (3, 4), "b": (4,)}, lambda bb, x, w, b: op.add(op.matmul(x, w), b))
    module["main"] = module["main"].with_attr("num_input", 1)
    made, constants, params = to_graph(_lower(module))
    assert params == ("w", "b") and constants == () and len(made.inputs) == 3
    bound = BindParams("main", {"w": np.ones((3, 4)), "b": np.ones(4)})(module)
    made, constants, params = to_graph(_lower(bound))
    assert params == () and [c.shape for c in constants] == [(3, 4), (4,)] and len(made.inputs) == 1


def test_a_constant_that_is_used_twice_is_stored_once():
    weight = W(4, 4)
    _, constants, _ = to_graph(_lower(graph({"x": (2, 4)}, lambda bb, x: op.matmul(op.matmul(x, weight), weight))))
    assert len(constants) == 1


def test_a_parameter_that_is_a_tuple_is_refused():
    pair = relax.Var("pair", relax.TupleStructInfo([relax.TensorStructInfo((4,))] * 2))
    bb = relax.BlockBuilder()
    with bb.function("main", [pair]):
        bb.emit_func_output(op.concat(pair, axis=0))
    with pytest.raises(InvalidTypeError, match="parameter 'pair' of 'main' is no tensor.*relax.build"):
        autosched.build(bb.get())


def test_operators_are_refused():
    with pytest.raises(InvalidTypeError, match="no kernel; run LegalizeOps first"):
        to_graph(graph({"x": (2, 4)}, lambda bb, x: op.exp(x)))


def test_branches_share_no_memory():
    """The second branch is the last reader of `a` in the order of the nodes, and the first may still read it."""

    def body(bb, x):
        a = bb.emit(op.nn.relu(x))
        return bb.emit(op.add(bb.emit(op.tanh(a)), bb.emit(op.sigmoid(a))))

    module = graph({"x": (4, 32)}, body)
    for p in (CanonicalizeBindings(), LegalizeKernels(), AnnotateTIROpPattern()):
        module = p(module)
    one_after_the_other, _, _ = to_graph(module)
    made, _, _ = to_graph(module, seconds=dict.fromkeys((n.kernel for n in one_after_the_other.nodes), 1.0), threads=2)
    assert [n.branch for n in one_after_the_other.nodes] == [0, 0, 0, 0]
    assert [n.branch for n in made.nodes] == [0, 1, 2, 0]

    def places(made: Graph) -> list[int]:
        return [made.values[n.outputs[0]].storage.index for n in made.nodes[:3]]

    assert len(set(places(one_after_the_other))) == 2 and len(set(places(made))) == 3
