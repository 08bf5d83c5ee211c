"""From tensor expressions to a PrimFunc: one block and loop nest per compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.errors import InvalidTypeError, InvalidValueError, refuse_too_deep
from autosched.ir.node import FrozenDict, preorder
from autosched.te.extern import ExternOp
from autosched.te.scan import ScanOp
from autosched.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from autosched.tir import expr as E
from autosched.tir.access import full_region, infer_regions
from autosched.tir.axis import IterVar, Range, Reduce
from autosched.tir.buffer import Buffer, BufferLoad, ProducerLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import replace_buffers, rewrite, substitute
from autosched.tir.share import bind_shared
from autosched.tir.simplify import Analyzer, fold
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, LetStmt, LoopKind, Stmt, seq


class UniqueNames:
    """Names that do not repeat: x, x_1, x_2 …"""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def __call__(self, name: str) -> str:
        unique, n = name, 0
        while unique in self.taken:
            n += 1
            unique = f"{name}_{n}"
        self.taken.add(unique)
        return unique


def topological(outputs: Sequence[Tensor]) -> list[Operation]:
    """What is computed below the outputs, producers first; inputs left out."""
    order: dict[Operation, None] = {}

    def visit(tensor: Tensor) -> None:
        if not isinstance(tensor.op, PlaceholderOp) and tensor.op not in order:
            for producer in tensor.op.input_tensors:
                visit(producer)
            order[tensor.op] = None

    for t in outputs:
        visit(t)
    return list(order)


def create_prim_func(tensors: Sequence[Tensor], index_dtype_override: str | None = None) -> PrimFunc:
    """The PrimFunc of tensor expressions; arguments in the given order, inputs that are only used come after.

    Each compute becomes a block named after it, with loops named after its axes. `index_dtype_override` ("int64")
    gives the dtype of all loops and shapes. Raises TypeError for anything but tensors, ValueError for a repeated one.
    """
    if isinstance(tensors, Tensor):
        tensors = [tensors]
    if not isinstance(tensors, Sequence):
        raise InvalidTypeError(f"create_prim_func takes a list of tensors, not {type(tensors).__name__}")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise InvalidTypeError(f"create_prim_func takes a list of tensors, item {i} is a {type(t).__name__}")
    if len({id(t) for t in tensors}) != len(tensors):
        raise InvalidValueError("create_prim_func: a tensor is listed twice")
    ops = topological(tensors)
    states = {t for op in ops if isinstance(op, ScanOp) for t in op.state_placeholder}
    inputs = {t for op in ops for t in op.input_tensors if isinstance(t.op, PlaceholderOp)} - states
    listed = set(tensors)
    params = list(tensors) + sorted(inputs - listed, key=lambda t: t.name)
    builder = _Builder(index_dtype_override)
    for t in params:
        builder.buffer_of(t)
    with refuse_too_deep("create_prim_func"):
        body = builder.nests(ops)
    handles = {
        Var(builder.handle_names(f"var_{builder.buffers[t].name}"), "handle"): builder.buffers[t] for t in params
    }
    local = tuple(b for t, b in builder.buffers.items() if t not in params)
    attrs = FrozenDict({"global_symbol": "main", "tir.noalias": True})
    return PrimFunc(tuple(handles), FrozenDict(handles), make_root(body, local), attrs=attrs)


class _Builder:
    def __init__(self, index_dtype: str | None):
        self.index_dtype = index_dtype
        self.buffers: dict[Tensor, Buffer] = {}
        self.aliases: dict[Tensor, Buffer] = {}  # the parts of a recurrence lie in its result
        self.buffer_names, self.block_names, self.handle_names = UniqueNames(), UniqueNames(), UniqueNames()

    def index(self, x: PrimExpr) -> PrimExpr:
        """`x` in the index dtype: constants directly, variables by a change of every index variable in `nest`."""
        if self.index_dtype and isinstance(x, IntImm) and x.dtype in ("int32", "int64"):
            return IntImm(x.value, self.index_dtype)
        return x

    def nests(self, ops: Sequence[Operation]) -> Stmt:
        """The nests of all operations in order; what a recurrence repeats stands inside of its loop."""
        scans = [op for op in ops if isinstance(op, ScanOp)]
        for scan in scans:
            for i, (state, init, update) in enumerate(zip(scan.state_placeholder, scan.init, scan.update, strict=True)):
                shared = self.buffer_of(scan.output(i))
                self.aliases |= {state: shared, init: shared, update: shared}
        inside = {op: scan for scan in scans for op in repeated(scan, ops)}
        done: list[Stmt] = []
        for op in ops:
            if isinstance(op, ScanOp):
                done.append(self.recurrence(op, [x for x in ops if inside.get(x) is op]))
            elif op not in inside:
                done.append(self.extern(op) if isinstance(op, ExternOp) else self.nest(_compute(op)))
        return seq(*done)

    def recurrence(self, scan: ScanOp, ops: Sequence[Operation]) -> Stmt:
        """The loop over a recurrence's rows, with the nests of what each row needs."""
        assert scan.scan_axis is not None
        dom = scan.scan_axis.dom
        start, extent = self.index(dom.min), self.index(dom.extent)
        row = Var(scan.scan_axis.var.name.replace(".", "_"), start.dtype)
        body = seq(*(self.nest(_compute(op), (row, Range(start, extent))) for op in ops))
        return For(row, E.const(0, row.dtype), extent, LoopKind.SERIAL, body)

    def extern(self, op: ExternOp) -> Stmt:
        """A statement of the user's, in a block without variables that reads and writes whole buffers."""
        ins = [self.buffer_of(t) for t in op.inputs]
        outs = [self.buffer_of(op.output(i)) for i in range(op.num_outputs)]
        known = dict(zip((*op.input_placeholders, *op.output_placeholders), (*ins, *outs), strict=True))
        assert op.body is not None
        body = replace_buffers(op.body, known)
        return BlockRealize((), IntImm(1, "bool"), Block(
            iter_vars=(), alloc_buffers=(), reads=tuple(full_region(b) for b in dict.fromkeys(ins)),
            writes=tuple(full_region(b) for b in outs), name_hint=self.block_names(op.name), body=body,
        ))  # fmt: skip

    def buffer_of(self, tensor: Tensor) -> Buffer:
        if tensor in self.aliases:
            return self.aliases[tensor]
        if tensor not in self.buffers:
            shape = tuple(self.index(s) for s in tensor.shape)
            name = self.buffer_names(tensor.name.replace(".", "_"))
            self.buffers[tensor] = Buffer(name, shape, tensor.dtype)
        return self.buffers[tensor]

    def loads(self, body: PrimExpr) -> PrimExpr:
        """The expression over buffers, index constants in the index dtype: both sides of every operation agree."""

        def step(x: object) -> object:
            if isinstance(x, ProducerLoad):
                return BufferLoad(self.buffer_of(x.producer), tuple(self.index(i) for i in x.indices))
            if not self.index_dtype:
                return x
            if isinstance(x, E.BinaryOp) and x.a.dtype != x.b.dtype:
                return type(x)(*E.match_types(x.a, x.b))
            return fold(x) if isinstance(x, E.Cast) else x

        return rewrite(body, step)

    def iter_var(self, axis: IterVar) -> IterVar:
        dtype = self.index_dtype or axis.var.dtype
        dom = Range(self.index(axis.dom.min), self.index(axis.dom.extent))
        return IterVar(dom, Var(f"v_{axis.var.name}", dtype), axis.kind)

    def nest(self, op: ComputeOp, row: tuple[Var, Range] | None = None) -> Stmt:
        """The loops and block of a compute; with `row` its first axis is that loop around it."""
        axes = op.axis + op.reduce_axis
        iter_vars = tuple(self.iter_var(a) for a in axes)
        if row is not None:
            iter_vars = (dataclasses.replace(iter_vars[0], dom=row[1]), *iter_vars[1:])
        values = {a.var: iv.var for a, iv in zip(axes, iter_vars, strict=True)}
        outputs = [self.buffer_of(op.output(i)) for i in range(op.num_outputs)]
        at = tuple(iv.var for iv in iter_vars[: len(op.axis)])
        bodies = [bind_shared(self.loads(substitute(b, values))) for b in op.body]
        first = bodies[0]
        if isinstance(first, Reduce):
            init, body = _reduction(first, outputs, at)
        else:
            stores = (BufferStore(o, E.cast(o.dtype, b), at) for o, b in zip(outputs, bodies, strict=True))
            init, body = None, seq(*stores)
        reads, writes = infer_regions(body, init)
        annotations = dict(op.attrs) | ({"tag": op.tag} if op.tag else {})
        block = Block(
            iter_vars=iter_vars, alloc_buffers=(), reads=reads, writes=writes, name_hint=self.block_names(op.name),
            body=body, init=init, annotations=FrozenDict(annotations),
        )  # fmt: skip
        return _loops(block, [a.var.name for a in axes], None if row is None else row[0])


def _reduction(reduce: Reduce, outputs: Sequence[Buffer], at: tuple[Var, ...]) -> tuple[Stmt, Stmt]:
    combiner = reduce.combiner
    start = reduce.init or combiner.identity_element
    init = seq(*(BufferStore(o, E.cast(o.dtype, s), at) for o, s in zip(outputs, start, strict=True)))
    source = tuple(
        E.if_then_else(reduce.condition, s, neutral)
        for s, neutral in zip(reduce.source, combiner.identity_element, strict=True)
    )
    values: dict[Var, PrimExpr] = {v: BufferLoad(o, at) for v, o in zip(combiner.lhs, outputs, strict=True)}
    values |= dict(zip(combiner.rhs, source, strict=True))
    results = [substitute(r, values) for r in combiner.result]
    if len(results) == 1:
        return init, BufferStore(outputs[0], E.cast(outputs[0].dtype, results[0]), at)
    # all results are computed before any is stored: an argmax reads both old values
    temps = [Var(f"v_{o.name}", o.dtype) for o in outputs]
    body: Stmt = seq(*(BufferStore(o, t, at) for o, t in zip(outputs, temps, strict=True)))
    for t, r in zip(reversed(temps), reversed(results), strict=True):
        body = LetStmt(t, E.cast(t.dtype, r), body)
    return init, body


def _compute(op: Operation) -> ComputeOp:
    if not isinstance(op, ComputeOp):
        raise InvalidTypeError(f"a {type(op).__name__} cannot be part of a recurrence")
    return op


def repeated(scan: ScanOp, ops: Sequence[Operation]) -> list[Operation]:
    """What is computed anew for each row of a recurrence: all that its state flows into."""
    tensors = set(scan.state_placeholder)
    found: list[Operation] = []
    for op in ops:
        if op is not scan and (any(t in tensors for t in op.input_tensors) or any(t.op is op for t in scan.update)):
            found.append(op)
            tensors |= {op.output(i) for i in range(op.num_outputs)}
            _require_rows(_compute(op), scan, tensors)
    return found


def _require_rows(op: ComputeOp, scan: ScanOp, tensors: set[Tensor]) -> None:
    """Row t reads earlier rows of the state, and row t of what else the recurrence repeats."""
    states, row = set(scan.state_placeholder), op.axis[0].var
    analyzer = Analyzer()
    loads = (x for body in op.body for x in preorder(body) if isinstance(x, ProducerLoad))
    for load in (x for x in loads if x.producer in tensors):
        if load.producer in states:
            good = analyzer.can_prove(E.compare(E.LT, load.indices[0], row))
        else:
            good = load.indices[0] is row or load.producer.op is op
        if not good:
            raise InvalidValueError(
                f"scan: row '{row.name}' of '{op.name}' reads row '{load.indices[0]}' of '{load.producer.name}'",
                hint="a recurrence reads earlier rows of its state, and this row of what is computed from it",
            )


def _loops(block: Block, names: Sequence[str], row: Var | None = None) -> Stmt:
    loop_vars = [Var(n, iv.var.dtype) for n, iv in zip(names, block.iter_vars, strict=True)]
    if row is not None:
        loop_vars[0] = row
    values = tuple(E.add(v, iv.dom.min) for v, iv in zip(loop_vars, block.iter_vars, strict=True))
    body: Stmt = BlockRealize(values, IntImm(1, "bool"), block)
    skip = 0 if row is None else 1
    for v, iv in zip(reversed(loop_vars[skip:]), reversed(block.iter_vars[skip:]), strict=True):
        body = For(v, E.const(0, v.dtype), iv.dom.extent, LoopKind.SERIAL, body)
    return body
