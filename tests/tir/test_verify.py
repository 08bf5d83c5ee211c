"""Each rule of verify sees the wrong function that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autosched import tir
from autosched.errors import VerifyError
from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.axis import IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, Var, const
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite
from autosched.tir.stmt import Allocate, Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, LoopKind, seq
from autosched.tir.verify import RULES, verify
from tests.tir.programs import PROGRAMS, matmul


@pytest.mark.parametrize("name", PROGRAMS)
def test_accepts_every_program(name: str) -> None:
    verify(PROGRAMS[name](), inputs=["A"])


def change(kind: type, f: Callable[[Any], Any], func: PrimFunc | None = None) -> PrimFunc:
    """A matmul with every node of one kind changed."""
    func = func or matmul()

    def step(x: Any) -> Any:
        return f(x) if type(x) is kind else x

    return func.with_body(rewrite(func.body, step))


def block_of(f: Callable[[Block], Block]) -> PrimFunc:
    return change(Block, lambda b: f(b) if b.name_hint == "C" else b)


def params() -> PrimFunc:
    func = matmul()
    return replace(func, params=(*func.params, func.params[0]))


def variables() -> PrimFunc:
    stray = Var("stray")
    return change(BufferStore, lambda s: replace(s, indices=(stray, s.indices[1])))


def single_definition() -> PrimFunc:
    v = Var("i")
    store = For(v, const(0), const(2), LoopKind.SERIAL, Evaluate(const(0)))
    return PrimFunc((), FrozenDict(), seq(store, For(v, const(0), const(2), LoopKind.SERIAL, Evaluate(const(1)))))


def buffers() -> PrimFunc:
    other = Buffer("other", (const(7), const(9)))
    return change(BufferStore, lambda s: replace(s, buffer=other))


def index_count() -> PrimFunc:
    return change(BufferStore, lambda s: replace(s, indices=s.indices[:1]))


def index_dtype() -> PrimFunc:
    return change(BufferStore, lambda s: replace(s, indices=(const(0.0), s.indices[1])))


def store_dtype() -> PrimFunc:
    return change(BufferStore, lambda s: replace(s, value=const(1, "int32")))


def operand_dtype() -> PrimFunc:
    return change(BufferStore, lambda s: replace(s, value=E.Add(s.value, const(1, "int32"))))


def condition_dtype() -> PrimFunc:
    return change(BlockRealize, lambda r: replace(r, predicate=const(1, "int32")))


def loops() -> PrimFunc:
    return change(For, lambda x: replace(x, thread="threadIdx.x"))


def iterators() -> PrimFunc:
    return block_of(lambda b: replace(b, iter_vars=tuple(IterVar(iv.dom, iv.var, "strange") for iv in b.iter_vars)))


def block_isolation() -> PrimFunc:
    func = matmul()
    loop = next(x for x in tir.functor.preorder(func.body) if isinstance(x, For))
    return change(BufferStore, lambda s: replace(s, indices=(loop.loop_var, s.indices[1])), func)


def bindings() -> PrimFunc:
    return change(BlockRealize, lambda r: replace(r, iter_values=tuple(v + 1 for v in r.iter_values)))


def regions() -> PrimFunc:
    return block_of(lambda b: replace(b, reads=b.reads[:1]))


def inputs() -> PrimFunc:
    return matmul()


def shapes() -> PrimFunc:
    return PrimFunc((), FrozenDict(), Allocate(Buffer("b", (const(-3),)), Evaluate(const(0))))


WRONG = {
    f.__name__.replace("_", "-"): f
    for f in (params, variables, single_definition, buffers, index_count, index_dtype, store_dtype, operand_dtype,
              condition_dtype, loops, iterators, block_isolation, bindings, regions, inputs, shapes)
}  # fmt: skip


def test_every_rule_has_its_wrong_function() -> None:
    assert set(WRONG) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_enforced(rule: str) -> None:
    with pytest.raises(VerifyError, match=f"^{rule}: "):
        verify(WRONG[rule](), inputs=["C"] if rule == "inputs" else [])


def test_binding_that_does_not_reach_all_of_an_output() -> None:
    func = change(For, lambda x: replace(x, extent=const(3)))
    with pytest.raises(VerifyError, match="reaches only"):
        verify(func)


def test_binding_out_of_the_domain_is_fine_under_a_predicate() -> None:
    sch = tir.Schedule(matmul())
    sch.split(sch.get_loops("C")[0], [None, 4])
    verify(sch.func)
    without = change(BlockRealize, lambda r: replace(r, predicate=IntImm(1, "bool")), sch.func)
    with pytest.raises(VerifyError, match="outside"):
        verify(without)


def test_access_outside_of_its_region() -> None:
    def shift(b: Block) -> Block:
        writes = tuple(BufferRegion(w.buffer, tuple(Range(r.min + 1, r.extent) for r in w.region)) for w in b.writes)
        return replace(b, writes=writes)

    with pytest.raises(VerifyError, match="outside of the declared region"):
        verify(block_of(shift))


def test_use_after_the_allocation_ends() -> None:
    b = Buffer("b", (const(3),))
    body = seq(Allocate(b, Evaluate(const(0))), BufferStore(b, const(1.0), (const(0),)))
    with pytest.raises(VerifyError, match="^buffers: "):
        verify(PrimFunc((), FrozenDict(), body))
    verify(PrimFunc((), FrozenDict(), Allocate(b, BufferStore(b, BufferLoad(b, (const(1),)), (const(0),)))))
