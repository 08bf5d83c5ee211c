"""Arguments with fewer dimensions: which of them are counted through together."""

from autosched.codegen.lower.merge_dimensions import merge_dimensions
from autosched.script import tir as T
from autosched.tir.functor import loads, stores


@T.prim_func
def digits(x: T.Buffer((3, 1, 4, 8), "float32"), w: T.Buffer((3, 1, 1), "float32"), y: T.Buffer((3, 32), "float32")):
    for n, p in T.grid(3, 32):
        with T.block("y"):
            vn, vp = T.axis.remap("SS", [n, p])
            y[vn, vp] = x[vn, 0, vp // 8, vp % 8] * w[vn, 0, 0]


@T.prim_func
def of_another_size(x: T.Buffer((4, 8), "float32"), y: T.Buffer((32,), "float32")):
    for p in range(32):
        with T.block("y"):
            vp = T.axis.spatial(32, p)
            y[vp] = x[vp // 8, vp % 4]


def test_digits_of_one_number_are_one_dimension():
    made = merge_dimensions(digits)
    assert [b.const_shape() for b in made.buffers] == [(3, 32), (3,), (3, 32)]
    (store,) = stores(made.body)
    x, w = loads(store.value)
    assert [str(i) for i in x.indices] == [str(i) for i in store.indices]
    assert [str(i) for i in w.indices] == [str(store.indices[0])]


def test_other_digits_stay():
    assert merge_dimensions(of_another_size) is of_another_size
