"""What is known of results where shapes or dtypes of arguments are not known."""

import pytest

from autosched import relax
from autosched.errors import AutoschedError
from autosched.ir import assert_structural_equal
from autosched.relax import TensorStructInfo as Tensor
from autosched.relax import TupleStructInfo, Var, op
from autosched.script import relax as R


def var(shape=None, dtype="float32", ndim=-1):
    return Var("x", Tensor(shape, dtype, ndim))


CASES = [
    (lambda: op.add(var((2, 3)), var(ndim=2)), Tensor(None, "float32", 2)),
    (lambda: op.add(var((2, 3)), var()), Tensor(None, "float32")),
    (lambda: op.add(var((2, 3)), var((1, 3), "")), Tensor((2, 3), "")),
    (lambda: op.less(var((2, 3)), var((2, 3), "")), Tensor((2, 3), "bool")),
    (lambda: op.matmul(var((2, 3), ""), var((3, 4), ""), out_dtype="float16"), Tensor((2, 4), "float16")),
    (lambda: op.reshape(var(ndim=2), (6,)), Tensor((6,), "float32")),
    (lambda: op.permute_dims(var(ndim=3), [2, 0, 1]), Tensor(None, "float32", 3)),
    (lambda: op.nn.conv2d(var(ndim=4), var((4, 3, 3, 3))), Tensor(None, "float32", 4)),
    (lambda: op.split(var(ndim=3), 2, axis=1), TupleStructInfo((Tensor(None, "float32", 3),) * 2)),
    (lambda: op.nonzero(var((2, 3))), Tensor(None, "int64", 2)),
    (lambda: op.unique(var((2, 3))), Tensor(None, "float32", 1)),
    (lambda: op.unique(var((2, 3)), axis=0, return_counts=True),
     TupleStructInfo((Tensor(None, "float32", 2), Tensor(None, "int64", 1)))),
    (lambda: op.layout_transform(var((3, 5)), lambda a, b: (b // 2, a, b % 2)), Tensor((3, 3, 2), "float32")),
    (lambda: var((2, 3)) % var((2, 3)), Tensor((2, 3), "float32")),
]  # fmt: skip


@pytest.mark.parametrize(("make", "wanted"), CASES)
def test_what_all_possible_arguments_share_is_known(make, wanted):
    assert_structural_equal(relax.BlockBuilder().normalize(make()).struct_info, wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda: op.permute_dims(var(ndim=3), [0, 1]),
        lambda: op.add(var((2, 3), "float32"), var(None, "float16", 2)),
        lambda: op.take(var((2, 3)), var((2,), "int64")),
        lambda: op.concat([var((2, 3)), var((2, 3))], axis=None),
        lambda: relax.call_tir_inplace(relax.GlobalVar("f"), [var((2,))], [1], R.Tensor((2,), "float32")),
        lambda: relax.call_tir_inplace(relax.GlobalVar("f"), [var((2,))], [0], R.Tensor((3,), "float32")),
    ],
)
def test_what_no_argument_makes_right_is_refused(make):
    with pytest.raises(AutoschedError):
        make()


def test_annotations_outside_of_scripts_leave_the_dtype_open():
    assert R.Tensor((2, 3)).dtype == ""
    assert_structural_equal(R.Callable((R.Object,), R.Tensor).ret, Tensor(None, ""))
