"""Blocks from text: the lines that may stand before a block's body."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.ir.node import FrozenDict
from autosched.script.parser import values
from autosched.script.parser.state import arguments
from autosched.script.parser.tir_buffer import buffer, extent_between, region, symbol
from autosched.script.parser.tir_expr import ExprReader
from autosched.tir import expr as E
from autosched.tir.access import infer_regions
from autosched.tir.axis import OPAQUE, REDUCE, SCAN, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, substitute
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, MatchBufferRegion, Stmt

ReadBody = Callable[[Sequence[ast.stmt]], Stmt]
Domains = Mapping[Var, Range]  # the loops around a block, by variable

AXES = {
    "axis.spatial": SPATIAL, "axis.S": SPATIAL, "axis.reduce": REDUCE, "axis.R": REDUCE,
    "axis.scan": SCAN, "axis.opaque": OPAQUE,
}  # fmt: skip
ALLOCATE = ("alloc_buffer", "sblock_alloc_buffer")
BLOCK = ("block", "sblock")
BLOCK_ATTR = ("block_attr", "sblock_attr")


@dataclass
class _Header:
    """What has been read of a block before its body."""

    iter_vars: list[IterVar] = field(default_factory=list)
    iter_values: list[PrimExpr] = field(default_factory=list)
    predicate: PrimExpr = IntImm(1, "bool")
    reads: list[ast.expr] | None = None  # read after everything else: a region may use what is defined further down
    writes: list[ast.expr] | None = None
    annotations: FrozenDict = field(default_factory=FrozenDict)
    alloc_buffers: list[Buffer] = field(default_factory=list)
    match_buffers: list[MatchBufferRegion] = field(default_factory=list)
    init: Stmt | None = None


def read_block(exprs: ExprReader, node: ast.With, domains: Domains, read_body: ReadBody) -> BlockRealize:
    """`with T.block("name"): …`."""
    state = exprs.state
    call = node.items[0].context_expr
    assert isinstance(call, ast.Call)
    args = arguments(state, call, "name")
    name = values.string(state, args["name"]) if "name" in args else ""
    header = _Header()
    with state.scope():
        n_header = 0
        while n_header < len(node.body) and _read_line(exprs, node.body[n_header], header, domains, read_body):
            n_header += 1
        if n_header == len(node.body):
            raise state.error(node, f"block '{name}' has no body")
        reads = _regions(exprs, header.reads)
        writes = _regions(exprs, header.writes)
        state.allocations.append(header.alloc_buffers)
        try:
            body = read_body(node.body[n_header:])
        finally:
            state.allocations.pop()
    if reads is None or writes is None:
        inferred = infer_regions(body, header.init, header.alloc_buffers)
        reads, writes = inferred[0] if reads is None else reads, inferred[1] if writes is None else writes
    block = Block(
        iter_vars=tuple(header.iter_vars), alloc_buffers=tuple(header.alloc_buffers),
        reads=reads, writes=writes, name_hint=name, body=body, init=header.init,
        match_buffers=tuple(header.match_buffers), annotations=header.annotations,
        span=state.source.span(node),
    )  # fmt: skip
    if not block.iter_vars:
        return _with_own_axes(block, header.predicate, domains)
    return BlockRealize(tuple(header.iter_values), header.predicate, block)


def _with_own_axes(block: Block, predicate: PrimExpr, domains: Domains) -> BlockRealize:
    """A block without axes, which may use the loops around: each that it uses becomes an axis that it binds."""
    used = free_vars(block)
    loops = [var for var in domains if var in used]
    axes = {var: IterVar(domains[var], Var(f"v_{var.name}", var.dtype), OPAQUE) for var in loops}
    new = substitute(block, {var: axis.var for var, axis in axes.items()})
    return BlockRealize(tuple(loops), predicate, replace(new, iter_vars=tuple(axes.values())))


def _regions(exprs: ExprReader, nodes: list[ast.expr] | None) -> tuple[BufferRegion, ...] | None:
    return None if nodes is None else tuple(region(exprs, n) for n in nodes)


def _read_line(exprs: ExprReader, node: ast.stmt, header: _Header, domains: Domains, read_body: ReadBody) -> bool:
    """Read one line of the header; whether it was one."""
    with exprs.state.source.at(node):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return _read_definition(exprs, name, value, header, domains)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                return _read_remap(exprs, targets, call, header, domains)
            case ast.Expr(value=ast.Call() as call):
                return _read_statement(exprs, call, header)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=body):
                if exprs.state.called(call, "T") != "init":
                    return False
                with exprs.state.scope():
                    header.init = read_body(body)
                return True
    return False


def _read_definition(exprs: ExprReader, name: str, value: ast.expr, header: _Header, domains: Domains) -> bool:
    state = exprs.state
    called = state.called(value, "T")
    if isinstance(value, ast.Call) and called in AXES:
        _add_axis(exprs, name, value, AXES[called], header)
    elif isinstance(value, ast.Call) and called == "axis.remap":
        return _read_remap(exprs, [ast.copy_location(ast.Name(name), value)], value, header, domains)
    elif isinstance(value, ast.Call) and called in ALLOCATE:
        made = buffer(exprs, value, name)
        header.alloc_buffers.append(made)
        state.define(name, made)
    elif isinstance(value, ast.Call) and called == "match_buffer":
        made = buffer(exprs, value, name, "source")
        header.match_buffers.append(MatchBufferRegion(made, region(exprs, value.args[0])))
        state.define(name, made)
    elif isinstance(value, ast.Call) and (var := symbol(state, value, name)) is not None:
        state.define(name, var)
    else:
        return False
    return True


def _add_axis(exprs: ExprReader, name: str, call: ast.Call, kind: str, header: _Header) -> None:
    args = arguments(exprs.state, call, "dom", "value", "dtype", required=2)
    dom = args["dom"]
    if isinstance(dom, ast.Tuple | ast.List) and len(dom.elts) == 2:
        start, end = exprs.pair(*dom.elts)
        domain = Range(start, extent_between(start, end))
    else:
        extent = exprs.expr(dom)
        domain = Range(E.const(0, extent.dtype), extent)
    _bind(exprs, name, IterVar(domain, Var(name, domain.extent.dtype), kind), exprs.expr(args["value"]), header)


def _bind(exprs: ExprReader, name: str, iter_var: IterVar, value: PrimExpr, header: _Header) -> None:
    header.iter_vars.append(iter_var)
    header.iter_values.append(value)
    exprs.state.define(name, iter_var.var)


def _read_remap(
    exprs: ExprReader, targets: Sequence[ast.expr], call: ast.Call, header: _Header, domains: Domains
) -> bool:
    """`v_i, v_k = T.axis.remap("SR", [i, k])`: the variables run over whole loops."""
    state = exprs.state
    if state.called(call, "T") != "axis.remap":
        return False
    args = arguments(state, call, "kinds", "bindings", "dtype", required=2)
    kinds, loops = values.string(state, args["kinds"]), args["bindings"]
    loop_nodes = loops.elts if isinstance(loops, ast.List | ast.Tuple) else []
    if not len(kinds) == len(loop_nodes) == len(targets):
        raise state.error(call, f"{len(targets)} names, {len(kinds)} kinds and {len(loop_nodes)} loops do not match")
    for target, kind, node in zip(targets, kinds, loop_nodes, strict=True):
        loop = exprs.expr(node)
        if not isinstance(loop, Var) or loop not in domains:
            raise state.error(node, "T.axis.remap takes loop variables")
        if kind not in (SPATIAL, REDUCE) or not isinstance(target, ast.Name):
            raise state.error(call, f"'{kind}' is no kind of axis: S is spatial, R is reduce")
        _bind(exprs, target.id, IterVar(domains[loop], Var(target.id, loop.dtype), kind), loop, header)
    return True


def _read_statement(exprs: ExprReader, call: ast.Call, header: _Header) -> bool:
    state = exprs.state
    name = state.called(call, "T")
    if name == "where":
        header.predicate = exprs.expr(arguments(state, call, "predicate", required=1)["predicate"], "bool")
    elif name == "reads":
        header.reads = _flat(call)
    elif name == "writes":
        header.writes = _flat(call)
    elif name in BLOCK_ATTR:
        header.annotations = values.attributes(state, arguments(state, call, "attrs", required=1)["attrs"])
    else:
        return False
    return True


def _flat(call: ast.Call) -> list[ast.expr]:
    """Regions as arguments or as one list."""
    return list(call.args[0].elts) if len(call.args) == 1 and isinstance(call.args[0], ast.List) else call.args
