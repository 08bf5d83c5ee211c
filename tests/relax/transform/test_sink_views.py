import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.transform import DeadCodeElimination, FlattenRows, RemoveIdentity, SinkViews
from autosched.relax.transform.sink_views import broadcast_under, matching_axes
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()


def _names(build, shapes, *passes):
    module = graph(shapes, build)
    result = module
    for p in (*(passes or (SinkViews(), RemoveIdentity())), DeadCodeElimination()):
        result = p(result)
    assert_same_results(module, result)
    return calls(result)


def test_axes_that_hold_the_same_elements():
    def runs(old, new):
        return [(old[a], new[b]) for a, b in matching_axes(old, new)]

    assert runs((8, 64, 333), (8, 64, 1, 333)) == [((8,), (8,)), ((64,), (64,)), ((333,), (1, 333))]
    assert runs((2, 3, 4), (6, 4)) == [((2, 3), (6,)), ((4,), (4,))]
    assert runs((6, 4), (4, 6)) == [((6, 4), (4, 6))]
    assert runs((5,), (1, 5, 1)) == [((5,), (1, 5)), ((), (1,))]
    assert runs((), (1, 1)) == [((), (1,)), ((), (1,))]


@pytest.mark.parametrize(
    ("shape", "under"),
    [((), ()), ((4,), (1, 4)), ((2, 3, 4), (6, 4)), ((1, 1, 4), (1, 4)), ((3, 1), None), ((2, 1, 4), None)],
)
def test_operands_of_a_broadcast(shape, under):
    assert broadcast_under(shape, (2, 3, 4), (6, 4)) == under


def test_bias_and_activation_join_the_convolution():
    """conv -> view -> add, relu -> view -> conv: no view is left between."""

    def build(bb, x):
        first = bb.emit(op.squeeze(bb.emit(op.nn.conv2d(x, W(6, 4, 1, 3))), axis=[2]))
        active = bb.emit(op.nn.relu(bb.emit(op.add(first, W(6, 1)))))
        return op.nn.conv2d(bb.emit(op.expand_dims(active, axis=[2])), W(5, 6, 1, 1))

    assert _names(build, {"x": (2, 4, 1, 9)}) == ["nn.conv2d", "add", "nn.relu", "nn.conv2d"]


def test_the_shape_of_the_later_operand_counts():
    def build(bb, x, y):
        early = bb.emit(op.reshape(bb.emit(op.nn.softmax(y)), (2, 3, 4)))
        late = bb.emit(op.reshape(bb.emit(op.matmul(x, W(5, 4))), (2, 3, 4)))
        return op.add(early, late)

    assert _names(build, {"x": (6, 5), "y": (3, 2, 4)}) == ["nn.softmax", "matmul", "reshape", "add", "reshape"]


@pytest.mark.parametrize("other", [(3, 1), (2, 1, 4)])
def test_views_stay_where_an_operand_is_broadcast_along_a_part_of_an_axis(other):
    def build(bb, x):
        return op.add(bb.emit(op.reshape(bb.emit(op.matmul(x, W(5, 4))), (2, 3, 4))), W(*other))

    assert _names(build, {"x": (6, 5)}) == ["matmul", "reshape", "add"]


def test_views_of_parameters_and_of_what_grows_stay():
    assert _names(lambda bb, x: op.nn.relu(bb.emit(op.reshape(x, (6, 4)))), {"x": (2, 3, 4)}) == ["reshape", "nn.relu"]

    def grows(bb, x):
        return op.add(bb.emit(op.reshape(bb.emit(op.matmul(x, W(5, 4))), (6, 1, 4))), W(6, 3, 4))

    assert _names(grows, {"x": (6, 5)}) == ["matmul", "reshape", "add"]


@pytest.mark.parametrize("is_polynomial", [True, False])
def test_views_of_symbolic_shapes_sink(is_polynomial: bool):
    from autosched import tir

    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n if is_polynomial else n // 2, 6), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            wide = bb.emit(op.expand_dims(bb.emit(op.exp(x)), axis=[0]))
            out = bb.emit_output(op.nn.relu(wide))
        bb.emit_func_output(out)
    assert calls(DeadCodeElimination()(SinkViews()(bb.get()))) == ["exp", "nn.relu", "reshape"]


def test_rows_of_several_axes_become_one():
    def build(bb, x):
        return op.nn.relu(bb.emit(op.add(bb.emit(op.matmul(x, W(5, 4))), W(4))))

    passes = (FlattenRows(), SinkViews(), RemoveIdentity())
    assert _names(build, {"x": (2, 3, 5)}, *passes) == ["reshape", "matmul", "add", "nn.relu", "reshape"]
    assert _names(build, {"x": (1, 3, 5)}, *passes) == ["matmul", "add", "nn.relu"]
    batched = {"x": (2, 3, 5), "y": (2, 5, 4)}
    assert _names(lambda bb, x, y: op.matmul(x, y), batched, *passes) == ["matmul"]


def test_views_move_behind_choices_between_two_values():
    def build(bb, x):
        flat = bb.emit(op.reshape(bb.emit(op.exp(x)), (2, 12)))
        return op.where(op.greater(flat, relax.const(2.0)), flat, op.multiply(flat, W(2, 1)))

    assert _names(build, {"x": (2, 3, 4)}, SinkViews()) == ["exp", "greater", "multiply", "where", "reshape"]


def test_views_of_views_move_behind_what_reads_the_last():
    def build(bb, x):
        wide = bb.emit(op.nn.relu(bb.emit(op.reshape(bb.emit(op.exp(x)), (4, 6)))))
        return op.sigmoid(bb.emit(op.reshape(wide, (2, 12))))

    assert _names(build, {"x": (2, 3, 4)}, SinkViews()) == ["exp", "nn.relu", "sigmoid", "reshape"]
