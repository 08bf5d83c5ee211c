"""Tiles lose the sizes that are not their own."""

from dataclasses import replace

from autosched.codegen.cpu.open_sizes import open_sizes
from autosched.ir.node import preorder
from autosched.ir.structural import structural_key
from autosched.tir import BufferLoad, BufferStore, Var, floordiv
from autosched.tir.expr import const, const_int
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import For, SeqStmt
from tests.codegen.programs import buffer, loop

PANEL, ROW = Var("panel"), Var("row")


def opened(stmt, *buffers):
    return open_sizes(stmt, buffers, Analyzer({PANEL: (0, 4), ROW: (0, 64)}))


def products(channels):
    w, x, c = buffer("W", 4, channels, 16), buffer("X", channels, 64, 16), buffer("C", 4, 64, 16)

    def add(k, v):
        return BufferStore(c, c[PANEL, ROW, v] + x[k, ROW, v] * w[PANEL, k, v], (PANEL, ROW, v))

    return opened(loop("k", channels, lambda k: loop("v", 16, lambda v: add(k, v), "vectorized")), w, x, c)


def test_buffers_begin_where_the_call_works():
    made = products(40)
    assert [str(start) for start in made.starts] == ["panel * 2560", "row * 64", "panel * 4096 + row * 64"]
    assert made.values == (40,)
    assert not {PANEL, ROW} & {x for x in preorder(made.stmt) if isinstance(x, Var)}


def test_what_differs_in_outer_sizes_has_one_form():
    keys = [structural_key((x.buffers, x.sizes, x.stmt)) for x in map(products, (40, 72))]
    assert keys[0] == keys[1]


def test_loops_of_a_window_and_over_the_channels_of_a_block_keep_their_sizes():
    x, c = buffer("X", 3, 16), buffer("C", 16)
    stmt = loop("k", 3, lambda k: loop("i", 16, lambda i: BufferStore(c, c[i] + x[k, i], (i,))))
    made = opened(stmt, x, c)
    assert made.values == ()
    assert [const_int(x.extent) for x in preorder(made.stmt) if isinstance(x, For)] == [3, 16]


def images(batch, channel):
    """Sums over an image of a batch, of which so many channels come with the call."""
    channels = Var("channels", "int64")
    x, c = (replace(b, shape=(b.shape[0], channels, *b.shape[2:])) for b in (buffer(n, batch, 1, 5, 16) for n in "XC"))

    def add(r, v):
        return BufferStore(c, c[channel, ROW, 0, v] + x[channel, ROW, r, v], (channel, ROW, const(0), v))

    return opened(loop("r", 5, lambda r: loop("v", 16, lambda v: add(r, v), "vectorized")), x, c)


def test_a_buffer_of_symbols_begins_where_no_stride_depends_on_them():
    made = images(1, const(0))
    assert [str(start) for start in made.starts] == ["row * 320", "row * 320"]
    assert ROW not in {x for x in preorder(made.stmt) if isinstance(x, Var)}


def test_a_buffer_of_symbols_stays_whole_where_a_stride_depends_on_them():
    made = images(4, PANEL)
    assert [str(start) for start in made.starts] == ["0", "0"]
    assert all(b.strides == () for b in made.buffers)


def test_a_buffer_stays_whole_where_a_place_is_not_a_sum():
    x, c = buffer("X", 64), buffer("C", 64, 40)
    stmt = loop("i", 40, lambda i: BufferStore(c, x[floordiv(ROW + i, 2)], (ROW, i)))
    made = opened(stmt, x, c)
    assert made.buffers[0] is x
    assert const_int(made.starts[0]) == 0
    assert str(made.starts[1]) == "row * 160"


def test_accesses_that_begin_elsewhere_keep_what_they_do_not_share():
    c = buffer("C", 64, 40)
    stmt = loop("i", 40, lambda i: BufferStore(c, c[ROW + PANEL, i] + 1.0, (ROW, i)))
    made = opened(stmt, c)
    assert str(made.starts[0]) == "row * 160" and made.buffers[0].strides[0].value == 40
    loaded = next(n for n in preorder(made.stmt) if isinstance(n, BufferLoad))
    stored = next(n for n in preorder(made.stmt) if isinstance(n, BufferStore))
    assert (str(loaded.indices[0]), str(stored.indices[0])) == ("panel", "0")


def test_a_buffer_stays_whole_whose_places_are_read():
    x, where, c = buffer("X", 64), buffer("where", 64, 40, dtype="int32"), buffer("C", 64, 40)
    stmt = loop("i", 40, lambda i: BufferStore(c, x[where[ROW, i]], (ROW, i)))
    made = opened(stmt, x, where, c)
    assert made.buffers[0] is x
    assert str(made.starts[1]) == "row * 160"


def test_lanes_of_a_partial_sum_keep_their_number():
    """A tree adds them up; a loop whose extent is an argument waits for each one in turn."""
    x, total, lanes = buffer("X", 64, 64), buffer("C", 64), buffer("lanes", 64)

    def first(v):
        return BufferStore(lanes, x[ROW, v], (v,))

    def add(k):
        return BufferStore(total, total[ROW] + lanes[k], (ROW,))

    stmt = SeqStmt((loop("v", 64, first, "vectorized"), loop("k", 64, add)))
    assert opened(stmt, x, total).values == ()
    assert opened(stmt, x, total, lanes).values == (64,)
