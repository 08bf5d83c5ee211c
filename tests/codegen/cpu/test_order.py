from autosched.codegen.cpu.order import order_unrolled
from autosched.codegen.cpu.text import loop_lines
from autosched.codegen.cpu.types import Isa
from autosched.tir import BufferStore
from tests.codegen.programs import buffer, loop

AVX2 = Isa(256, True, 16)


def tile(place, outer, inner):
    acc, x, w = buffer("acc", 8, 8, 8), buffer("x", 8), buffer("w", 8, 8)

    def store(o, r, v):
        return BufferStore(acc, acc[place(o, r, v)] + x[r] * w[o, v], place(o, r, v))

    vectors = lambda o, r: loop("v", 8, lambda v: store(o, r, v), "vectorized")  # noqa: E731
    return loop("o", outer, lambda o: loop("r", inner, lambda r: vectors(o, r), "unrolled"), "unrolled")


def heads(stmt):
    return [line.split()[1] for line in loop_lines(stmt) if "for" in line]


def test_the_loop_over_many_broadcast_values_goes_outside():
    assert heads(order_unrolled(tile(lambda o, r, v: (o, r, v), 2, 6), AVX2)) == ["r", "o", "v"]
    assert heads(order_unrolled(tile(lambda o, r, v: (o, r, v), 6, 2), AVX2)) == ["o", "r", "v"]


def test_stores_that_may_meet_keep_their_order():
    assert heads(order_unrolled(tile(lambda o, r, v: (o + r, r, v), 2, 6), AVX2)) == ["o", "r", "v"]
    assert heads(order_unrolled(tile(lambda o, r, v: (o * 2 + r, 0, v), 2, 6), AVX2)) == ["o", "r", "v"]
