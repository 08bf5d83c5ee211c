import importlib

import numpy as np

import autosched
from autosched.ir import structural_equal
from autosched.relax import op
from autosched.relax.expr import Tuple, TupleGetItem
from autosched.relax.op.call import call_tir
from autosched.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeKernels, LegalizeOps
from autosched.tir import PrimFunc
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph, small_network

legalize_module = importlib.import_module("autosched.relax.transform.legalize_ops")
W = Weights()


def test_operators_become_kernels_with_tvm_names():
    module = graph(
        {"x": (2, 3), "y": (2, 3)}, lambda bb, x, y: op.permute_dims(op.add(op.add(x, y), op.add(x, W(1, 3))))
    )
    legal = LegalizeOps()(module)
    assert_same_results(module, legal)
    assert calls(legal) == ["add", "add1", "add", "transpose"]
    assert "global_symbol" not in legal["add"].attrs
    assert calls(module) == ["add", "add", "add", "permute_dims"]  # the input is as it was


def test_a_variable_that_holds_a_tuple_is_an_argument():
    def joined(bb, x):
        halves = bb.emit(op.split(op.exp(x), 2, axis=0))
        return op.concat(halves, axis=1)

    module = graph({"x": (8, 4)}, joined)
    assert_same_results(module, LegalizeOps()(module))
    assert_same_results(module, FuseTIR()(FuseOps()(AnnotateTIROpPattern()(LegalizeOps()(module)))))
    x = np.arange(32, dtype="float32").reshape(8, 4) / 8
    expected = np.concatenate(np.split(np.exp(x), 2), axis=1)
    np.testing.assert_allclose(autosched.build(module, threads=1)(x).numpy(), expected, rtol=1e-5)


def test_every_kernel_of_a_network():
    module = small_network()
    assert_same_results(module, LegalizeOps()(module))


def test_numbers_are_written_into_the_kernel():
    module = graph({"x": (2, 3)}, lambda bb, x: op.multiply(op.add(x, 2.0), 3.0))
    legal = LegalizeOps()(module)
    assert_same_results(module, legal)
    assert len(legal["add"].params) == 2 and "T.float32(2.0)" in legal["add"].script()
    assert [r.buffer.name for r in legal["add"].root.body.body.body.block.reads] == ["x"]


def test_rules_and_skipped_operators():
    module = graph({"x": (2, 3)}, lambda bb, x: op.tanh(op.exp(x)))
    assert calls(LegalizeOps(skip_ops=["relax.exp"])(module)) == ["exp", "tir_tanh"]
    double = lambda bb, call: bb.call_te(lambda a: _double(a), call.args[0], primfunc_name_hint="double")  # noqa: E731
    assert calls(LegalizeOps({"relax.exp": double})(module)) == ["double", "tir_tanh"]


def _double(a):
    from autosched import te

    return te.compute(a.shape, lambda *i: a(*i) * 2.0)


def test_a_kernel_that_is_there_already_is_used():
    module = LegalizeOps()(graph({"x": (2, 3)}, lambda bb, x: op.exp(x)))
    kernel = module.get_global_var("tir_exp")
    module["main"] = graph({"x": (2, 3)}, lambda bb, x: op.exp(op.exp(x)))["main"]
    legal = LegalizeOps()(module)
    assert calls(legal) == ["tir_exp", "tir_exp"] and structural_equal(legal["tir_exp"], module[kernel])
    assert call_tir(kernel, module["main"].params[0], module["main"].params[0].struct_info).args[0] is kernel


def test_views_need_no_kernel():
    module = graph({"x": (2, 6)}, lambda bb, x: op.nn.relu(op.reshape(op.exp(x), (3, 4))))
    legal = LegalizeKernels()(module)
    assert_same_results(module, legal)
    assert calls(legal) == ["exp", "reshape", "relu"]
    assert not any(isinstance(f, PrimFunc) and gv.name == "reshape" for gv, f in legal.functions_items())


def test_a_view_between_moves_is_a_kernel():
    def shuffle(bb, x):
        moved = op.permute_dims(op.reshape(op.permute_dims(x, axes=(1, 0)), (2, 3, 4)), axes=(1, 0, 2))
        return op.nn.relu(op.reshape(moved, (6, 4)))

    legal = LegalizeKernels()(graph({"x": (4, 6)}, shuffle))
    assert calls(legal) == ["transpose", "reshape", "transpose1", "reshape", "relu"]
    assert isinstance(legal["reshape"], PrimFunc)


def test_calls_of_one_form_share_a_function_that_is_written_once(monkeypatch):
    made = []
    plain = legalize_module.make_te_call
    monkeypatch.setattr(legalize_module, "make_te_call", lambda *a: made.append(a) or plain(*a))

    def build(bb, x, y, z):
        sums = [op.add(x, y), op.add(y, x), op.add(x, x), op.add(x, z), op.add(x, 2.0), op.add(y, 2.0), op.add(x, 3.0)]
        pieces = [op.split(x, 2, axis=1), op.split(y, 2, axis=1), op.split(x, 3, axis=1)]
        parts = [bb.emit(TupleGetItem(bb.emit(p), 1)) for p in pieces]
        return (*sums, *parts, op.concat(Tuple((x, y, x)), axis=0), op.concat(Tuple((y, x, y)), axis=0))

    module = graph({"x": (2, 6), "y": (2, 6), "z": (1, 6)}, build)
    legal = LegalizeOps()(module)
    assert_same_results(module, legal)
    names = calls(legal)
    assert [n for n in names if "add" in n] == ["add", "add", "add1", "add2", "add3", "add3", "add4"]
    assert len(made) == len(set(names)) == 8
