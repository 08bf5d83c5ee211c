"""compute_inline and reverse_compute_inline."""

from __future__ import annotations

import pytest

import autosched
from autosched import te
from autosched.errors import CodegenError, ScheduleError
from autosched.ir import preorder
from autosched.script import from_source
from autosched.tir import Schedule
from autosched.tir.verify import verify
from tests.tir.programs import assert_same_result, chain, conv, conv_nchwc, dense, softmax


@pytest.mark.parametrize("make", [conv, conv_nchwc])
def test_padding_goes_into_the_convolution(make) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(make())
    sch.compute_inline("pad")
    assert "pad" not in sch.func.script()
    assert sch.get(sch.get_block("conv")).reads[0].buffer.name == "A"
    assert_same_result(make(), sch.func)
    verify(sch.func)


def test_chain_becomes_one_block() -> None:
    sch = Schedule(chain())
    sch.compute_inline("B")
    sch.compute_inline("C")
    assert not sch.func.root.alloc_buffers
    assert "T.exp(A[v_j, v_i] * T.float32(2.0) + V[v_i])" in sch.func.script()
    assert_same_result(chain(), sch.func)


def test_into_several_consumers() -> None:
    sch = Schedule(softmax())
    sch.compute_inline("e")
    assert [sch.get(b).name for b in sch.get_consumers("top")] == ["total", "out"]
    assert_same_result(softmax(), sch.func)


def test_after_a_split_with_a_tail() -> None:
    sch = Schedule(chain())
    sch.split(sch.get_loops("B")[0], [None, 3])
    sch.compute_inline("B")
    assert_same_result(chain(), sch.func)


@pytest.mark.parametrize(("block", "reason"), [("C", "reduces"), ("E", "output")])
def test_compute_inline_refuses(block: str, reason: str) -> None:
    sch = Schedule(dense())
    before = sch.func
    with pytest.raises(ScheduleError, match=reason):
        sch.compute_inline(block)
    assert sch.func is before


def test_compute_inline_refuses_writes_that_are_not_element_by_element() -> None:
    sch = Schedule(chain(4, 6))
    sch.transform_layout("B", ("write", 0), lambda i, j: (j, i // 2, i % 2))
    sch.compute_inline("B")  # each element once, at places that tell i and j
    assert_same_result(chain(4, 6), sch.func)
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((12,), "float32"), C: T.Buffer((12,), "float32")):
    B = T.alloc_buffer((12,), "float32")
    for i in range(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            B[vi // 2] = A[vi] * 2.0
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = B[vi] + 1.0
""")
    with pytest.raises(ScheduleError, match="each element once"):
        Schedule(func).compute_inline("B")


def test_reverse() -> None:
    sch = Schedule(chain())
    sch.reverse_compute_inline("D")  # a transposition
    sch.reverse_compute_inline("C")
    assert [sch.get(b).name for b in sch.get_child_blocks("root")] == ["B"]
    assert_same_result(chain(), sch.func)
    verify(sch.func)


def test_reverse_refuses_a_reduction_and_a_shared_producer() -> None:
    sch = Schedule(dense())
    with pytest.raises(ScheduleError, match="reduces"):
        sch.reverse_compute_inline("D")
    sch = Schedule(softmax())
    with pytest.raises(ScheduleError, match="needs one producer"):
        sch.reverse_compute_inline("out")


def test_reverse_refuses_a_broadcast_and_a_part() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    wide = te.create_prim_func([a, te.compute((4, 3), lambda i, j: b[i], name="C")])
    with pytest.raises(ScheduleError, match="more than once"):
        Schedule(wide).reverse_compute_inline("C")
    part = te.create_prim_func([a, te.compute((3,), lambda i: b[i], name="C")])
    with pytest.raises(ScheduleError, match="all of"):
        Schedule(part).reverse_compute_inline("C")
    moved = te.create_prim_func([a, te.compute((3,), lambda i: b[i + 1], name="C")])
    with pytest.raises(ScheduleError, match="own place"):
        Schedule(moved).reverse_compute_inline("C")


MATCHED = """
@T.prim_func
def f(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            T.reads(B[vi])
            T.writes(C[vi])
            part = T.match_buffer(B[vi], (), offset_factor=1)
            C[vi] = part[()] + T.float32(1)
"""


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.compute_inline("B"),
        lambda s: s.reverse_compute_inline("C"),
        lambda s: s.transform_layout("B", ("write", 0), lambda i: (i // 4, i % 4)),
        lambda s: s.unsafe_set_dtype("B", 0, "float64"),
    ],
)
def test_a_matched_buffer_s_accesses_stay_where_they_are(act) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScheduleError, match="through a match_buffer"):
        act(Schedule(from_source(MATCHED)))


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.transform_block_layout("C", lambda i: (i // 4, i % 4)),
        lambda s: s.blockize(s.get_loops("C")[0]),
        lambda s: s.cache_read("C", 0, "local"),
    ],
)
def test_around_a_matched_buffer_blocks_may_change(act) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(from_source(MATCHED))
    act(sch)
    verify(sch.func)
    assert_same_result(from_source(MATCHED), sch.func)


AFFINE = """
@T.prim_func
def f(A: T.Buffer((24,), "float32"), C: T.Buffer(({shape}), "float32")):
    B = T.alloc_buffer((24,))
    for i in range(24):
        with T.block("B"):
            vi = T.axis.spatial(24, i)
            B[vi] = A[vi] * T.float32(2)
    for i, j in T.grid({shape}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[{index}] + T.float32(1)
"""


@pytest.mark.parametrize(
    ("shape", "index"), [("6, 4", "vi * 4 + vj"), ("4, 6", "vj * 4 + vi"), ("3, 8", "vi + vj * 3")]
)
def test_reverse_of_an_affine_read(shape: str, index: str) -> None:
    func = from_source(AFFINE.format(shape=shape, index=index))
    sch = Schedule(func)
    sch.reverse_compute_inline("C")
    assert [sch.get(b).name for b in sch.get_child_blocks("root")] == ["B"]
    verify(sch.func)
    assert_same_result(func, sch.func)


@pytest.mark.parametrize(("shape", "index"), [("6, 3", "vi * 4 + vj"), ("6, 4", "vi * 3 + vj"), ("6, 4", "vi + vj")])
def test_reverse_refuses_what_has_no_inverse(shape: str, index: str) -> None:
    with pytest.raises(ScheduleError, match="does not read"):
        Schedule(from_source(AFFINE.format(shape=shape, index=index))).reverse_compute_inline("C")


@pytest.mark.parametrize("read", [8, 4])
def test_what_leaves_its_buffer_is_not_inlined(read: int) -> None:
    text = f"""
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer(({read},), "float32")):
    C = T.alloc_buffer((4,), "float32")
    for i in range(8):
        with T.block("c"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi]
    for i in range({read}):
        with T.block("b"):
            vi = T.axis.spatial({read}, i)
            B[vi] = C[vi]
"""
    with pytest.raises(ScheduleError, match="block 'c' writes 'C' from 0 to 7 along dimension 0, which has 4 elements"):
        Schedule(from_source(text)).compute_inline("c")
    with pytest.raises(CodegenError, match=r"store to C\[.*out of range \[0, 4\)"):
        autosched.build(from_source(text), target="llvm")


@pytest.mark.parametrize("last_first", [False, True])
def test_a_value_that_is_read_twice_stays_one_expression(last_first: bool) -> None:
    stages = [te.placeholder((8,), name="A")]
    for k in range(12):
        stages.append(_doubled(stages[-1], f"v{k}"))
    sch = Schedule(te.create_prim_func([stages[0], stages[-1]]))
    names = [f"v{k}" for k in range(11)]
    for name in reversed(names) if last_first else names:
        sch.compute_inline(name)
    assert len({id(node) for node in preorder(sch.func)}) < 200  # there are 4096 sums


def _doubled(x: te.Tensor, name: str) -> te.Tensor:
    return te.compute(x.shape, lambda i: x[i] + x[i], name=name)
