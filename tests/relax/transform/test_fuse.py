"""fusion_groups, fuse_ops, fuse_tir."""

from autosched import relax, te, tir
from autosched.ir import IRModule, preorder
from autosched.relax import BlockBuilder, TensorStructInfo, Var, op
from autosched.relax.expr import Function
from autosched.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, legalize_ops
from autosched.tir import PrimFunc
from autosched.tir.functor import blocks
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph, small_network

W = Weights()


def _fused(module: IRModule) -> IRModule:
    grouped = FuseOps()(AnnotateTIROpPattern()(legalize_ops(module)))
    assert_same_results(module, grouped)
    fused = FuseTIR()(grouped)
    assert_same_results(module, fused)
    assert all(f.attrs.get("Primitive") is None for f in fused.functions.values())
    return fused


def _names(shapes, build) -> list[str]:
    return calls(_fused(graph(shapes, build)))


MATRIX = {"x": (4, 6)}


def test_dense_layer_with_bias_and_activation():
    assert _names(MATRIX, lambda bb, x: op.nn.gelu(op.add(op.matmul(x, W(6, 5)), W(5)))) == ["fused_matmul_add_gelu"]


def test_the_fused_function():
    fused = _fused(graph(MATRIX, lambda bb, x: op.nn.relu(op.add(op.matmul(x, W(6, 5)), W(5)))))
    func = fused["fused_matmul_add_relu"]
    assert [b.name for b in func.buffers] == ["x", "param_1", "param_2", "compute_intermediate"]
    assert [b.name for b in func.root.alloc_buffers] == ["matmul_intermediate", "T_add_intermediate"]
    assert [b.name_hint for b in blocks(func.body)] == ["root", "matmul", "T_add", "compute"]
    assert "op_pattern" not in func.attrs and sorted(g.name for g in fused.get_global_vars()) == [
        "fused_matmul_add_relu",
        "main",
    ]


def test_groups_are_functions_before_they_are_merged():
    grouped = FuseOps()(legalize_ops(graph(MATRIX, lambda bb, x: op.nn.relu(op.matmul(x, W(6, 5))))))
    group = grouped["fused_matmul_relu"]
    assert isinstance(group, Function) and group.attrs["Primitive"] is True
    assert calls(IRModule({**grouped.functions, grouped.get_global_var("main"): group})) == ["matmul", "relu"]
    assert FuseOps(0)(grouped) is grouped


def test_equal_groups_share_one_function():
    def build(bb, x):
        a = op.nn.relu(op.matmul(x, W(6, 6)))
        return op.nn.relu(op.matmul(a, W(6, 6)))

    fused = _fused(graph(MATRIX, build))
    assert calls(fused) == ["fused_matmul_relu"] * 2 and len(fused) == 2


def test_groups_that_differ_in_what_their_calls_read_share_nothing():
    def build(bb, x):
        a = bb.emit(op.subtract(op.matmul(x, W(6, 6)), x))
        return op.subtract(a, op.matmul(a, W(6, 6)))

    assert len(set(_names(MATRIX, build))) == 2


def test_groups_that_differ_in_what_they_call_share_nothing():
    def build(bb, x):
        first = bb.emit(op.nn.relu(op.matmul(x, W(6, 6))))
        return op.exp(op.matmul(first, W(6, 6)))

    assert _names(MATRIX, build) == ["fused_matmul_relu", "fused_matmul_exp"]


def test_one_kernel_twice_in_a_group_has_its_own_variables():
    fused = _fused(graph(MATRIX, lambda bb, x: op.exp(op.exp(op.matmul(x, W(6, 6))))))
    func: PrimFunc = fused["fused_matmul_exp_exp"]
    assert [b.name_hint for b in blocks(func.body)] == ["root", "matmul", "compute", "compute_1"]
    variables = [iv.var for b in blocks(func.body) for iv in b.iter_vars]
    assert len(set(variables)) == len(variables)


def test_a_sum_of_two_convolutions_joins_the_later_one():
    def build(bb, x):
        a = bb.emit(op.nn.conv2d(x, W(3, 3, 3, 3), padding=1))
        b = bb.emit(op.nn.conv2d(x, W(3, 3, 1, 1)))
        return op.nn.relu(op.add(a, b))

    assert sorted(_names({"x": (1, 3, 5, 5)}, build)) == ["conv2d", "fused_conv2d1_add_relu"]


def test_a_value_that_others_read_ends_the_group():
    def build(bb, x):
        a = bb.emit(op.add(op.matmul(x, W(6, 6)), W(6)))
        return op.nn.relu(a), op.nn.softmax(a)

    assert _names(MATRIX, build) == ["fused_matmul_add", "relu", "softmax"]


def test_a_value_read_twice_within_the_group():
    """x * sigmoid(x): the product is the only way out."""

    def build(bb, x):
        a = bb.emit(op.matmul(x, W(6, 6)))
        return op.multiply(a, op.sigmoid(a))

    assert _names(MATRIX, build) == ["fused_matmul_sigmoid_multiply"]


def test_two_ways_between_end_the_group_of_an_anchor():
    """A template follows one chain behind the anchor: exp and tanh side by side are none."""

    def build(bb, x):
        a = bb.emit(op.matmul(x, W(6, 6)))
        return op.multiply(op.exp(a), op.tanh(a))

    assert _names(MATRIX, build) == ["matmul", "fused_exp_tanh_multiply"]


def test_another_shape_ends_the_group_of_an_anchor():
    assert _names({"x": (1, 6)}, lambda bb, x: op.add(op.matmul(x, W(6, 5)), W(3, 5))) == ["matmul", "add"]
    assert _names(MATRIX, lambda bb, x: op.sum(op.matmul(x, W(6, 5)), axis=-1)) == ["matmul", "sum"]
    assert _names(MATRIX, lambda bb, x: op.permute_dims(op.matmul(x, W(6, 5)))) == ["matmul", "transpose"]
    pool = lambda bb, x: op.nn.max_pool2d(op.nn.conv2d(x, W(3, 3, 3, 3)), pool_size=2)  # noqa: E731
    assert _names({"x": (1, 3, 6, 6)}, pool) == ["conv2d", "max_pool2d"]


def test_two_anchors_are_two_kernels():
    assert _names(MATRIX, lambda bb, x: op.matmul(op.matmul(x, W(6, 6)), W(6, 6))) == ["matmul", "matmul"]


def test_producers_of_anchors_stay_outside():
    assert _names(MATRIX, lambda bb, x: op.matmul(op.exp(x), W(6, 6))) == ["exp", "matmul"]


def test_a_side_input_stays_outside_an_anchored_group():
    def build(bb, x):
        return op.add(op.matmul(x, W(6, 6)), op.exp(x))

    assert sorted(_names(MATRIX, build)) == ["exp", "fused_matmul_add"]


def test_reductions_take_what_has_their_shape():
    assert _names(MATRIX, lambda bb, x: op.exp(op.nn.softmax(x))) == ["fused_softmax_exp"]
    assert _names(MATRIX, lambda bb, x: op.exp(op.sum(x, axis=-1))) == ["fused_sum_exp"]
    assert _names(MATRIX, lambda bb, x: op.subtract(x, op.mean(x, axis=-1, keepdims=True))) == ["mean", "subtract"]
    assert _names({"x": (1, 2, 4, 4)}, lambda bb, x: op.nn.relu(op.nn.avg_pool2d(x, pool_size=2))) == [
        "fused_avg_pool2d_relu"
    ]


def test_element_wise_calls_join():
    def build(bb, x):
        a, b = op.exp(x), op.tanh(x)
        return op.nn.relu(op.multiply(a, b))

    assert _names(MATRIX, build) == ["fused_exp_tanh_multiply_relu"]


def test_moves_join_with_what_follows():
    assert _names(MATRIX, lambda bb, x: op.nn.relu(op.permute_dims(x))) == ["fused_transpose_relu"]
    assert _names(MATRIX, lambda bb, x: op.add(op.concat([op.exp(x), x], axis=1), W(12))) == [
        "fused_exp_concatenate_add"
    ]


def test_nothing_is_computed_twice():
    assert _names({"x": (1, 6)}, lambda bb, x: op.add(op.exp(x), W(4, 6))) == ["exp", "add"]
    assert _names(MATRIX, lambda bb, x: op.tile(op.exp(x), repeats=(2, 2))) == ["exp", "tile"]


def test_a_result_that_is_read_inside_as_well():
    def build(bb, x):
        a = bb.emit(op.exp(x))
        return a, op.tanh(a)

    assert _names(MATRIX, build) == ["exp", "tanh"]


def test_kernels_with_several_results_stay():
    def build(bb, x):
        parts = bb.emit(op.split(x, indices_or_sections=2, axis=1))
        return op.add(relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 1))

    assert _names(MATRIX, build) == ["split", "add"]


def test_whole_network():
    module = small_network()
    assert calls(_fused(module))[-1].startswith("fused_matmul_add")


def test_each_sum_joins_the_anchor_that_comes_just_before_it():
    """So that it runs while what it adds is in the cache, and may write over it."""

    def build(bb, x):
        a = bb.emit(op.matmul(x, W(6, 5)))
        b = bb.emit(op.add(op.matmul(op.exp(x), W(6, 5)), a))
        return op.nn.relu(op.add(op.matmul(op.tanh(x), W(6, 5)), b))

    anchors = [name for name in _names(MATRIX, build) if "matmul" in name]
    assert anchors == ["matmul", "fused_matmul_add", "fused_matmul_add_relu"]


def test_what_would_get_too_large_to_compile_is_several_kernels():
    """Inlined, x + x fourteen times is an expression of 32,767 nodes."""

    def build(bb, x):
        for _ in range(14):
            x = bb.emit(op.add(x, x))
        return x

    assert _names(MATRIX, build) == ["fused_" + "_".join(["add"] * 8), "fused_" + "_".join(["add"] * 6)]


def test_two_thousand_calls_in_a_row():
    def build(bb, x):
        for _ in range(2000):
            x = bb.emit(op.tanh(x))
        return x

    module = FuseTIR()(FuseOps()(AnnotateTIROpPattern()(legalize_ops(graph(MATRIX, build)))))
    assert len(calls(module)) == 32


def test_variables_bound_inside_of_expressions_are_renewed_for_each_call():
    own = tir.Var("own", "float32")
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: tir.Let(own, x[i] * 3.0, own + own), name="y")
    func = te.create_prim_func([x, y], index_dtype_override="int64").without_attr("global_symbol")
    bb, data = BlockBuilder(), Var("data", TensorStructInfo((8,), "float32"))
    kernel = bb.add_func(func, "twice")
    with bb.function("main", [data]):
        with bb.dataflow():
            once = bb.emit(relax.call_tir(kernel, [data], data.struct_info))
            gv = bb.emit_output(relax.call_tir(kernel, [once], data.struct_info))
        bb.emit_func_output(gv)
    module = bb.get()
    fused = FuseTIR()(FuseOps()(AnnotateTIROpPattern()(module)))
    assert_same_results(module, fused)
    (made,) = [f for f in fused.functions.values() if isinstance(f, PrimFunc)]
    lets = [x for x in preorder(made.body) if isinstance(x, tir.Let)]
    assert len({x.var for x in lets} | {own}) == 3
