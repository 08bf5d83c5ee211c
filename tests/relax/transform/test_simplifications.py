"""fold_constant, remove_identity, canonicalize_bindings, dead_code, common_subexpr."""

import numpy as np
import pytest

from autosched import relax
from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.expr import Constant
from autosched.relax.transform import (
    CanonicalizeBindings,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FoldConstant,
    LegalizeOps,
    RemoveIdentity,
)
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()


def _apply(module: IRModule, *passes) -> IRModule:
    result = module
    for p in passes:
        result = p(result)
    assert_same_results(module, result)
    return result


def test_constants_are_folded():
    module = graph({"x": (2, 3)}, lambda bb, x: op.matmul(x, op.permute_dims(op.add(W(4, 3), W(3)))))
    folded = _apply(module, FoldConstant())
    assert calls(folded) == ["matmul"]
    assert calls(_apply(module, LegalizeOps(), FoldConstant())) == ["matmul"]


def test_equal_calls_give_one_constant():
    weight, other = W(16, 8), W(16, 8)

    def build(bb, x):
        for data, axes in ((weight, (1, 0)), (weight, (1, 0)), (other, (1, 0))):
            x = bb.emit(op.matmul(x, op.matmul(bb.emit(op.permute_dims(data, axes=axes)), weight)))
        return x

    folded = _apply(graph({"x": (2, 8)}, build), FoldConstant())
    first, second, third = (b.value.args[1] for b in folded["main"].bindings() if isinstance(b.value, relax.Call))
    assert first.data is second.data
    assert third.data is not first.data


def test_large_results_are_not_folded():
    module = graph({"x": (1,)}, lambda bb, x: op.add(x, op.broadcast_to(W(1), (100_000,))))
    assert calls(FoldConstant()(module)) == ["broadcast_to", "add"]


@pytest.mark.parametrize("rows, kept", [(64, False), (600, True)])
def test_gathered_elements_are_folded_up_to_a_megabyte(rows, kept):
    """As the bias of each pair of positions in an attention, which is larger than what it is read from."""
    where = relax.const(np.random.default_rng(0).integers(0, 9, (rows, rows, 1)))
    module = graph({"x": (1,)}, lambda bb, x: op.add(x, op.gather_nd(W(9, 8), where)))
    folded = _apply(module, FoldConstant())
    assert calls(folded) == ["gather_nd"] * kept + ["add"]


def _split_constant(bb, x):
    pieces = bb.emit(op.split(W(4), indices_or_sections=2))
    return op.add(x, relax.TupleGetItem(pieces, 1))


def test_tuples_of_constants_are_folded():
    folded = _apply(graph({"x": (2,)}, _split_constant), FoldConstant())
    assert calls(folded) == ["add"]


ONE, ZERO = relax.const(np.ones((1, 3), np.float32)), relax.const(0.0)
REMOVED = {
    "identity": lambda bb, x: op.nn.relu(op.identity(x)),
    "dropout": lambda bb, x: op.nn.relu(relax.TupleGetItem(bb.emit(op.nn.dropout(x)), 0)),
    "add zero": lambda bb, x: op.nn.relu(op.add(x, ZERO)),
    "times one": lambda bb, x: op.nn.relu(op.multiply(ONE, x)),
    "cast": lambda bb, x: op.nn.relu(op.astype(x, "float32")),
    "reshape": lambda bb, x: op.nn.relu(op.reshape(x, (2, 3))),
    "views": lambda bb, x: op.nn.relu(op.squeeze(op.expand_dims(x, axis=1), axis=1)),
    "orders": lambda bb, x: op.nn.relu(op.permute_dims(op.permute_dims(x))),
    "slice": lambda bb, x: op.nn.relu(op.strided_slice(x, axes=(0,), begin=(0,), end=(2,))),
    "concat": lambda bb, x: op.nn.relu(op.concat((x,), axis=0)),
    "relu": lambda bb, x: op.nn.relu(op.nn.relu(x)),
    "pad": lambda bb, x: op.nn.relu(op.nn.pad(x, pad_width=(0, 0, 0, 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", REMOVED)
def test_what_computes_nothing_goes(name):
    module = graph({"x": (2, 3)}, REMOVED[name])
    assert calls(_apply(module, RemoveIdentity(), DeadCodeElimination())) == ["nn.relu"]


@pytest.mark.parametrize(
    "build",
    [
        lambda bb, x: op.add(x, W(4, 2, 3)),  # the shape grows
        lambda bb, x: op.add(x, relax.const(np.zeros((4, 2, 3), np.float32))),
        lambda bb, x: op.strided_slice(x, axes=(0,), begin=(-1,), end=(-9,), strides=(-1,)),  # turned round
        lambda bb, x: op.divide(relax.const(1.0), x),
    ],
)
def test_what_computes_something_stays(build):
    module = graph({"x": (2, 3)}, build)
    assert calls(RemoveIdentity()(module)) == calls(module)


def test_views_and_orders_become_one():
    module = graph({"x": (2, 3, 4)}, lambda bb, x: op.reshape(op.expand_dims(op.reshape(x, (6, 4)), axis=0), (4, 6)))
    assert calls(_apply(module, RemoveIdentity(), DeadCodeElimination())) == ["reshape"]
    module = graph({"x": (2, 3, 4)}, lambda bb, x: op.permute_dims(op.permute_dims(x, axes=(1, 0, 2)), axes=(2, 1, 0)))
    assert calls(_apply(module, RemoveIdentity(), DeadCodeElimination())) == ["permute_dims"]
    module = graph({"x": (1, 3, 1, 4)}, lambda bb, x: op.permute_dims(x, axes=(1, 0, 3, 2)))
    assert calls(_apply(module, RemoveIdentity())) == ["reshape"]


def test_renaming_bindings_go():
    def build(bb, x):
        y = bb.emit(op.nn.relu(x))
        z = bb.emit(y)
        return bb.emit(z), op.add(z, x)

    clean = _apply(graph({"x": (2, 3)}, build), CanonicalizeBindings())
    assert [b.var.name for b in clean["main"].bindings()] == ["gv", "gv1"]
    assert calls(clean) == ["nn.relu", "add"]


def test_an_input_or_one_value_twice_as_outputs():
    def build(bb, x):
        y = bb.emit(op.nn.relu(x))
        return y, x, y

    clean = _apply(graph({"x": (2, 3)}, build), CanonicalizeBindings())
    assert calls(clean) == ["nn.relu"]
    first, second, third = clean["main"].body.body.fields
    assert first is third and second is clean["main"].params[0]


def test_dead_bindings_and_functions_go():
    def build(bb, x):
        bb.emit(op.exp(x))
        return op.nn.relu(x)

    module = LegalizeOps()(graph({"x": (2, 3)}, build))
    clean = _apply(module, DeadCodeElimination())
    assert sorted(gv.name for gv in clean.get_global_vars()) == ["main", "relu"]


def test_public_functions_are_kept():
    module = LegalizeOps()(graph({"x": (2, 3)}, lambda bb, x: op.nn.relu(x)))
    module["kept"] = module["relu"].with_attr("global_symbol", "kept")
    assert "kept" in DeadCodeElimination()(module)
    assert "kept" not in DeadCodeElimination(["main"])(module)


def test_equal_calls_are_made_once():
    def build(bb, x):
        a, b = bb.emit(op.exp(x)), bb.emit(op.exp(x))
        c = bb.emit(op.nn.leakyrelu(b, alpha=0.1))
        d = bb.emit(op.nn.leakyrelu(a, alpha=0.1))
        e = bb.emit(op.nn.leakyrelu(a, alpha=0.2))
        return op.add(op.add(c, d), e)

    clean = _apply(graph({"x": (2, 3)}, build), EliminateCommonSubexpr())
    assert calls(clean) == ["exp", "nn.leakyrelu", "nn.leakyrelu", "add", "add"]


def test_equal_small_constants_count_as_one_argument():
    module = graph({"x": (2,)}, lambda bb, x: op.add(op.add(x, relax.const(2.0)), op.add(x, relax.const(2.0))))
    assert calls(_apply(module, EliminateCommonSubexpr())) == ["add", "add"]
    module = graph({"x": (2,)}, lambda bb, x: op.add(op.add(x, relax.const(2.0)), op.add(x, relax.const(3.0))))
    assert calls(_apply(module, EliminateCommonSubexpr())) == ["add", "add", "add"]


def test_outputs_that_are_constants():
    clean = _apply(graph({"x": (2,)}, lambda bb, x: (op.add(W(2), W(2)), x)), FoldConstant(), CanonicalizeBindings())
    assert isinstance(clean["main"].body.body.fields[0], Constant)


@pytest.mark.parametrize(
    "layout, width, attributes, folded",
    [
        ("NCHW", (0, 0, 0, 0, 0, 1, 2, 0), {}, True),
        ("NHWC", (0, 0, 0, 1, 1, 1, 0, 0), {}, True),
        ("NCHW", (0, 0, 1, 0, 0, 1, 2, 0), {}, False),  # a channel
        ("NCHW", (0, 0, 0, 0, 0, 1, 2, 0), {"pad_value": 0.5}, False),
        ("NCHW", (0, 0, 0, 0, 0, 1, 2, 0), {"pad_mode": "reflect"}, False),
    ],
)
def test_zeros_in_front_of_a_convolution_are_its_padding(layout, width, attributes, folded):
    shape = {"NCHW": (1, 3, 6, 5), "NHWC": (1, 6, 5, 3)}[layout]
    kernel = W(4, 3 + sum(width[2:4]) * (layout == "NCHW"), 3, 3)

    def build(bb, x):
        padded = bb.emit(op.nn.pad(x, pad_width=width, **attributes))
        return op.nn.conv2d(padded, kernel, strides=2, padding=(0, 1, 1, 0), data_layout=layout)

    result = _apply(graph({"x": shape}, build), RemoveIdentity(), DeadCodeElimination())
    assert calls(result) == ([] if folded else ["nn.pad"]) + ["nn.conv2d"]
