"""The rules of the loop level, checked: what every pass and schedule must leave behind.

`RULES` names each rule; a violation raises VerifyError with the rule's name and the place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autosched.errors import VerifyError
from autosched.ir.node import Node, children, preorder
from autosched.tir import expr as E
from autosched.tir.axis import OPAQUE, REDUCE, SCAN, SPATIAL, IterVar, Reduce
from autosched.tir.buffer import Buffer, BufferData, BufferLoad, ProducerLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip

RULES = (
    "params", "variables", "single-definition", "buffers", "index-count", "index-dtype", "store-dtype", "operand-dtype",
    "condition-dtype", "loops", "iterators", "block-isolation", "bindings", "regions", "inputs", "shapes",
)  # fmt: skip


def verify(func: PrimFunc, *, inputs: Iterable[str] = ()) -> None:
    """Check a PrimFunc, scheduled or not, lowered or not.

    inputs  names of interface buffers that must not be written
    Raises  VerifyError naming the rule that is broken and where.
    """
    _Verifier(func, frozenset(inputs)).function()


class _Verifier:
    def __init__(self, func: PrimFunc, inputs: frozenset[str]):
        self.func, self.inputs = func, inputs
        self.vars: set[Var] = set()
        self.defined: set[Var] = set()  # every variable seen so far: none may be introduced twice
        self.loops: set[Var] = set()
        self.together = _written_together(func.body)  # buffers that several blocks fill, each a part
        self.hidden: set[Var] = set()  # loop variables that the block at hand must not use
        self.buffers: set[Buffer] = set()
        self.analyzer = Analyzer()
        self.where = f"function '{func.attrs.get('global_symbol', '?')}'"
        self.lowered = not isinstance(func.body, BlockRealize)
        self.at: Stmt | PrimFunc = func  # the statement at hand, which errors point at

    def fail(self, rule: str, message: str) -> None:
        assert rule in RULES
        error = VerifyError(f"{rule}: {message}", where=self.where)
        error.node = self.at
        raise error

    def function(self) -> None:
        if len({id(p) for p in self.func.params}) != len(self.func.params):
            self.fail("params", "a parameter is listed twice")
        for key in self.func.buffer_map:
            if not any(key is p for p in self.func.params):
                self.fail("params", f"buffer '{self.func.buffer_map[key].name}' belongs to no parameter")
        for p in self.func.params:
            if p not in self.func.buffer_map:
                self.define(p)
        symbols = {n for b in self.func.buffers for n in b.shape if isinstance(n, Var)}
        self.vars |= symbols
        for b in self.func.buffers:
            self.add_buffer(b)
        self.stmt(self.func.body)

    # --- scopes -----------------------------------------------------------------------------------------------------

    def define(self, v: Var) -> None:
        if v in self.defined:
            self.fail("single-definition", f"variable '{v.name}' is introduced twice")
        self.defined.add(v)
        self.vars.add(v)

    def add_buffer(self, b: Buffer) -> None:
        for n in b.shape:
            self.expr(n)
            if E.const_int(n) is not None and E.as_int(n) < 0:
                self.fail("shapes", f"buffer '{b.name}' has the negative dimension {E.as_int(n)}")
        try:
            np.dtype(b.dtype)
        except TypeError:
            if not b.dtype.startswith("bfloat"):
                self.fail("shapes", f"buffer '{b.name}' has the unknown dtype '{b.dtype}'")
        self.buffers.add(b)

    # --- expressions ------------------------------------------------------------------------------------------------

    def expr(self, x: Node) -> None:
        match x:
            case Var():
                if x in self.hidden:
                    self.fail(
                        "block-isolation", f"a block uses the loop variable '{x.name}' other than through its bindings"
                    )
                if x not in self.vars:
                    self.fail("variables", f"'{x.name}' is used where it is not defined")
            case BufferLoad():
                self.access(x.buffer, x.indices)
            case BufferData():
                if x.buffer not in self.buffers:
                    self.fail("buffers", f"the memory of '{x.buffer.name}' is used where it is not defined")
            case E.BinaryOp():
                self.operands(x)
            case E.Let():
                self.expr(x.value)
                self.define(x.var)
                self.expr(x.body)
                self.vars.discard(x.var)
            case E.Select():
                self.condition(x.condition)
                self.expr(x.true_value)
                self.expr(x.false_value)
            case Reduce() | ProducerLoad():
                self.fail("variables", f"{type(x).__name__} belongs to tensor expressions, not to functions")
            case E.Call(op="if_then_else"):
                self.condition(x.args[0])
                for a in x.args[1:]:
                    self.expr(a)
            case _:
                for child in children(x):
                    self.expr(child)

    def operands(self, x: E.BinaryOp) -> None:
        if isinstance(x, E.And | E.Or):
            self.condition(x.a)
            self.condition(x.b)
            return
        if x.a.dtype != x.b.dtype:
            self.fail("operand-dtype", f"{type(x).__name__} of {x.a.dtype} and {x.b.dtype}")
        self.expr(x.a)
        self.expr(x.b)

    def condition(self, x: PrimExpr) -> None:
        if x.dtype != "bool":
            self.fail("condition-dtype", f"a condition is {x.dtype}, not bool")
        self.expr(x)

    def access(self, b: Buffer, indices: tuple[PrimExpr, ...]) -> None:
        if b not in self.buffers:
            self.fail("buffers", f"buffer '{b.name}' is used where it is not defined")
        if len(indices) != b.ndim:
            self.fail("index-count", f"'{b.name}' has {b.ndim} dimensions and is used with {len(indices)} indices")
        for i in indices:
            if not is_int(i.dtype) or i.dtype == "bool":
                self.fail("index-dtype", f"'{b.name}' is indexed by a {i.dtype}")
            self.expr(i)

    # --- statements -------------------------------------------------------------------------------------------------

    def stmt(self, x: Stmt) -> None:
        self.at = x
        match x:
            case SeqStmt():
                for s in x.seq:
                    self.stmt(s)
            case For():
                self.loop(x)
            case BlockRealize():
                self.realize(x)
            case BufferStore():
                self.store(x)
            case IfThenElse():
                self.condition(x.condition)
                self.stmt(x.then_case)
                if x.else_case is not None:
                    self.stmt(x.else_case)
            case LetStmt():
                self.expr(x.value)
                if x.value.dtype != x.var.dtype:
                    self.fail("store-dtype", f"'{x.var.name}' is {x.var.dtype} and gets a {x.value.dtype}")
                self.define(x.var)
                self.stmt(x.body)
                self.vars.discard(x.var)
            case While():
                self.condition(x.condition)
                self.stmt(x.body)
            case Allocate():
                self.add_buffer(x.buffer)
                self.stmt(x.body)
                self.buffers.discard(x.buffer)
            case AssertStmt():
                self.condition(x.condition)
                self.stmt(x.body)
            case Evaluate():
                self.expr(x.value)

    def store(self, x: BufferStore) -> None:
        self.access(x.buffer, x.indices)
        if x.value.dtype != x.buffer.dtype:
            self.fail("store-dtype", f"'{x.buffer.name}' is {x.buffer.dtype} and gets a {x.value.dtype}")
        if x.buffer.name in self.inputs and any(x.buffer is b for b in self.func.buffers):
            self.fail("inputs", f"the input '{x.buffer.name}' is written")
        self.expr(x.value)

    def loop(self, x: For) -> None:
        self.expr(x.start)
        self.expr(x.extent)
        if not isinstance(x.kind, LoopKind):
            self.fail("loops", f"loop '{x.loop_var.name}' is of the unknown kind {x.kind!r}")
        if bool(x.thread) != (x.kind is LoopKind.THREAD_BINDING):
            self.fail("loops", f"loop '{x.loop_var.name}' is {x.kind} with thread axis {x.thread!r}")
        if not is_int(x.loop_var.dtype) or x.start.dtype != x.loop_var.dtype or x.extent.dtype != x.loop_var.dtype:
            self.fail(
                "loops",
                f"loop '{x.loop_var.name}' runs from {x.start.dtype} over {x.extent.dtype} in {x.loop_var.dtype}",
            )
        extent = E.const_int(x.extent)
        if extent is not None and extent < 0:
            self.fail("loops", f"loop '{x.loop_var.name}' has the negative extent {extent}")
        if x.kind is LoopKind.VECTORIZED and extent is None:
            self.fail("loops", f"vectorized loop '{x.loop_var.name}' needs a constant extent")
        self.define(x.loop_var)
        self.loops.add(x.loop_var)
        low, (_, high) = self.analyzer.bound(x.start), self.analyzer.bound(x.extent)
        self.analyzer.bounds[x.loop_var] = (low[0], None if low[1] is None or high is None else low[1] + high - 1)
        self.stmt(x.body)
        self.vars.discard(x.loop_var)

    def realize(self, x: BlockRealize) -> None:
        block, outer = x.block, self.where
        self.where = f"block '{block.name_hint}', {outer}"
        if len(x.iter_values) != len(block.iter_vars):
            self.fail("bindings", f"{len(block.iter_vars)} variables, {len(x.iter_values)} bindings")
        self.condition(x.predicate)
        for iv, value in zip(block.iter_vars, x.iter_values, strict=True):
            self.expr(value)
            self.binding(x, iv, value)
        saved = (set(self.vars), set(self.hidden), set(self.buffers), self.analyzer.copy())
        loop_vars = self.vars & self.loops
        self.hidden |= loop_vars
        self.vars -= loop_vars
        for iv in block.iter_vars:
            if iv.kind not in (SPATIAL, REDUCE, SCAN, OPAQUE):
                self.fail("iterators", f"variable '{iv.var.name}' is of the unknown kind {iv.kind!r}")
            self.define(iv.var)
            self.analyzer.bind(iv.var, iv.dom)
        self.hidden -= {iv.var for iv in block.iter_vars}
        self.block(block)
        self.vars, self.hidden, self.buffers, self.analyzer = saved
        self.where = outer

    def binding(self, x: BlockRealize, iv: IterVar, value: PrimExpr) -> None:
        if value.dtype != iv.var.dtype:
            self.fail("bindings", f"'{iv.var.name}' is {iv.var.dtype} and bound to a {value.dtype}")
        start, extent = E.const_int(iv.dom.min), E.const_int(iv.dom.extent)
        low, high = self.analyzer.bound(value)
        if start is None or extent is None or low is None or high is None:
            return
        guarded = not (isinstance(x.predicate, E.IntImm) and x.predicate.value)
        if not guarded and (low < start or high >= start + extent):
            self.fail("bindings", f"'{iv.var.name}' reaches [{low}, {high}], outside of [{start}, {start + extent})")
        whole = iv.kind == REDUCE or any(b is w.buffer for w in x.block.writes for b in self.func.buffers)
        whole = whole and not any(w.buffer in self.together for w in x.block.writes)
        if whole and not self.conditional() and (low > start or high < start + extent - 1):
            self.fail("bindings", f"'{iv.var.name}' reaches only [{low}, {high}] of [{start}, {start + extent})")

    def conditional(self) -> bool:
        """Whether loops of unknown extent are around: then nothing can be said about reaching all of a domain."""
        return any(b == (None, None) for b in self.analyzer.bounds.values())

    def block(self, block: Block) -> None:
        for b in block.alloc_buffers:
            self.add_buffer(b)
        for m in block.match_buffers:
            self.region(m.source)
            self.add_buffer(m.buffer)
        for r in (*block.reads, *block.writes):
            self.region(r)
        if block.init is not None:
            if not any(iv.kind == REDUCE for iv in block.iter_vars):
                self.fail("iterators", "an initialisation without a variable to reduce over")
            self.stmt(block.init)
        self.stmt(block.body)
        if block.iter_vars:
            self.declared(block)

    def region(self, r: BufferRegion) -> None:
        if r.buffer not in self.buffers:
            self.fail("buffers", f"a region names buffer '{r.buffer.name}', which is not defined")
        if len(r.region) != r.buffer.ndim:
            self.fail("regions", f"the region of '{r.buffer.name}' has {len(r.region)} of {r.buffer.ndim} dimensions")
        for part in r.region:
            self.expr(part.min)
            self.expr(part.extent)

    def declared(self, block: Block) -> None:
        """Every access of the block's own statements lies in a declared region, where that can be determined."""
        own = {m.buffer for m in block.match_buffers} | set(block.alloc_buffers)
        loads, stores = _accesses(block)
        written = {w.buffer for w in block.writes}
        for kind, accesses, regions in (("read", loads, block.reads), ("written", stores, block.writes)):
            for b, indices in accesses:
                if b in own or (kind == "read" and block.init is not None and b in written):
                    continue
                boxes = [r for r in regions if r.buffer is b]
                if not boxes:
                    self.fail("regions", f"'{b.name}' is {kind} and not declared")
                if all(self.outside(indices, r) for r in boxes):
                    self.fail("regions", f"'{b.name}' is {kind} outside of the declared region")

    def outside(self, indices: tuple[PrimExpr, ...], r: BufferRegion) -> bool:
        """Whether an access is proven to leave a region."""
        for i, part in zip(indices, r.region, strict=True):
            below = self.analyzer.can_prove(E.compare(E.LT, i, part.min))
            if below or self.analyzer.can_prove(E.compare(E.GE, i, E.add(part.min, part.extent))):
                return True
        return False


def _written_together(body: Stmt) -> set[Buffer]:
    """The buffers that more than one block without blocks in it writes."""
    count: dict[Buffer, int] = {}
    stack: list[Node] = [body]
    while stack:
        x = stack.pop()
        if isinstance(x, Block) and not any(isinstance(y, BlockRealize) for y in preorder(x.body)):
            for b in {w.buffer for w in x.writes}:
                count[b] = count.get(b, 0) + 1
            continue
        stack.extend(c for c in children(x) if isinstance(c, Stmt))
    return {b for b, n in count.items() if n > 1}


Access = tuple[Buffer, tuple[PrimExpr, ...]]


def _accesses(block: Block) -> tuple[list[Access], list[Access]]:
    """Loads and stores of a block, those of blocks inside of it left out."""
    loads: list[Access] = []
    stores: list[Access] = []
    stack: list[Node] = [block.body] if block.init is None else [block.body, block.init]
    while stack:
        x = stack.pop()
        if isinstance(x, BlockRealize):
            continue
        if isinstance(x, BufferLoad):
            loads.append((x.buffer, x.indices))
        elif isinstance(x, BufferStore):
            stores.append((x.buffer, x.indices))
        stack.extend(children(x))
    return loads, stores
