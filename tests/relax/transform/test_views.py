from autosched import relax
from autosched.relax import op
from autosched.relax.transform import without_kernel
from autosched.relax.transform.views import part_offsets, slice_offset
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


def _slice(shape, axes, begin, end, strides=None):
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    return op.strided_slice(x, axes=axes, begin=begin, end=end, strides=strides)


def test_offsets_of_slices():
    assert slice_offset(_slice((4, 3, 16), [0], [2], [3])) == 2 * 3 * 64
    assert slice_offset(_slice((1, 3, 16), [1], [-1], [3])) == 128
    assert slice_offset(_slice((4, 3, 16), [0, 2], [1, 0], [3, 16])) == 192  # the other axis is whole
    assert slice_offset(_slice((2, 3, 16), [1], [1], [2])) is None  # gaps
    assert slice_offset(_slice((6, 16), [0], [0], [6], [2])) is None
    assert slice_offset(_slice((6, 16), [0], [5], [-7], [-1])) is None
    assert slice_offset(_slice((4, 3), [0], [1], [2])) is None  # not aligned
    assert slice_offset(_slice((4, 16), [0, 1], [0, 0], [2, 8])) is None


def _row(x, n):
    return op.strided_slice(x, axes=[0], begin=[n], end=[n + 1])


def test_slices_of_what_a_kernel_writes():
    def build(bb, x):
        wide = bb.emit(op.reshape(bb.emit(op.exp(x)), (4, 16)))
        first, second = bb.emit(_row(wide, 0)), bb.emit(op.squeeze(bb.emit(_row(wide, 1)), axis=[0]))
        return op.add(first, second)

    found = ["relax.reshape", "relax.strided_slice", "relax.strided_slice", "relax.squeeze"]
    assert _free(build, (2, 32)) == found


def test_slices_that_need_a_kernel():
    def two(x, bb):
        return op.add(bb.emit(_row(x, 0)), bb.emit(_row(x, 1)))

    assert _free(lambda bb, x: two(x, bb), (2, 16)) == []  # of an input
    assert _free(lambda bb, x: op.nn.relu(bb.emit(_row(bb.emit(op.exp(x)), 1))), (2, 16)) == []  # nobody reads the rest

    def of_a_result(bb, x):
        a = bb.emit(op.exp(x))
        return two(a, bb), op.reshape(a, (32,))

    assert _free(of_a_result, (2, 16)) == ["relax.reshape"]

    def rolled(bb, x):  # slices and what moves their elements on are one kernel
        a = bb.emit(op.exp(x))
        return op.nn.relu(bb.emit(op.concat([bb.emit(_row(a, 1)), a, bb.emit(_row(a, 0))], axis=0)))

    assert _free(rolled, (2, 17)) == []

    def part(bb, x):  # a part of a concatenation is written there
        a = bb.emit(op.exp(x))
        return op.nn.relu(bb.emit(op.concat([bb.emit(_row(a, 1)), bb.emit(_row(a, 0))], axis=0)))

    assert _free(part, (2, 16)) == ["relax.concat"]
