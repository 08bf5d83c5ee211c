from autosched import relax
from autosched.relax import op
from autosched.relax.transform import without_kernel
from autosched.relax.transform.views import part_offsets
from tests.relax.transform.graphs import graph


def _concat(*shapes, axis=1):
    return op.concat(
        [relax.Var(f"x{i}", relax.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)], axis=axis
    )


def test_offsets_of_parts():
    assert part_offsets(_concat((1, 2, 16), (1, 3, 16), (1, 1, 16))) == (0, 128, 320)
    assert part_offsets(_concat((1, 16), (1, 3), (1, 5))) is None  # the third part would begin at 76 bytes
    assert part_offsets(_concat((1, 16), (1, 3))) == (0, 64)
    assert part_offsets(_concat((2, 16), (2, 16))) is None  # parts lie row by row
    assert part_offsets(_concat((16, 3), (16, 3), axis=0)) == (0, 192)


def _free(build, shape=(1, 16)):
    module = graph({"x": shape}, build)
    found = without_kernel(module["main"])
    return [b.value.op_name for b in module["main"].bindings() if b.var in found]


def test_parts_that_kernels_write():
    assert _free(lambda bb, x: op.nn.relu(op.concat([op.exp(x), op.tanh(x)], axis=1))) == ["relax.concat"]


def test_parts_of_parts():
    def build(bb, x):
        a, b, c = bb.emit(op.exp(x)), bb.emit(op.tanh(x)), bb.emit(op.sqrt(x))
        return op.nn.relu(op.concat([bb.emit(op.concat([a, b], axis=1)), c], axis=1))

    assert _free(build) == ["relax.concat", "relax.concat"]


def test_a_part_lies_in_one_place_only():
    def build(bb, x):
        a, b, c = bb.emit(op.exp(x)), bb.emit(op.tanh(x)), bb.emit(op.sqrt(x))
        first = bb.emit(op.concat([a, b], axis=1))
        return op.add(op.nn.relu(first), op.concat([a, c], axis=1))

    assert _free(build) == ["relax.concat"]


def test_inputs_results_and_views_keep_their_place():
    exp = op.exp
    assert _free(lambda bb, x: op.nn.relu(op.concat([exp(x), x], axis=1))) == []  # an input
    assert _free(lambda bb, x: op.concat([exp(x), op.tanh(x)], axis=1)) == []  # a result
    twice = lambda bb, x: (lambda a: op.nn.relu(op.concat([a, a], axis=1)))(bb.emit(exp(x)))  # noqa: E731
    assert _free(twice) == []

    def seen_otherwise(bb, x):
        a = bb.emit(exp(x))
        return op.nn.relu(op.concat([a, op.tanh(x)], axis=1)), op.reshape(a, (16,))

    assert _free(seen_otherwise) == ["relax.reshape"]
