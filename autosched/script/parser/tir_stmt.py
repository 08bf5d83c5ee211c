"""Statements of the loop level from text."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.ir.node import FrozenDict
from autosched.script.intrinsics import DTYPES
from autosched.script.parser import values
from autosched.script.parser.macro import Macro
from autosched.script.parser.state import State, arguments, keywords
from autosched.script.parser.tir_block import ALLOCATE, BLOCK, read_block
from autosched.script.parser.tir_buffer import buffer, dims, extent_between
from autosched.script.parser.tir_expr import BINARY, BITS, ExprReader
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.stmt import (
    THREADS,
    Allocate,
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
    seq,
)

LOOPS = {
    "serial": LoopKind.SERIAL, "parallel": LoopKind.PARALLEL, "vectorized": LoopKind.VECTORIZED,
    "unroll": LoopKind.UNROLLED, "thread_binding": LoopKind.THREAD_BINDING,
}  # fmt: skip


THREAD_NOTES = ("thread_extent", "virtual_thread")  # keys of T.attr


@dataclass(frozen=True, slots=True)
class EnvThread:
    """A thread axis that `T.env_thread` names, before `T.launch_thread` says how many threads there are."""

    thread: str
    dtype: str | None


class StmtReader:
    """Reads statements in a State; knows the domains of the loops around the place it is at."""

    def __init__(self, state: State):
        self.state = state
        self.exprs = ExprReader(state)
        self.domains: dict[Var, Range] = {}

    def body(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """Statements in order; a definition takes what follows it as its body."""
        out: list[Stmt] = []
        for i, node in enumerate(nodes):
            if (scoped := self._definition(node, nodes[i + 1 :])) is not None:
                return seq(*out, scoped)
            out.append(self.state.source.note(self.stmt(node), node))
        return seq(*out)

    def scoped_body(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """Statements whose names end with them."""
        with self.state.scope():
            return self.body(nodes)

    def stmt(self, node: ast.stmt) -> Stmt:
        """One statement. Raises ScriptError for what the dialect does not have."""
        with self.state.source.at(node):
            match node:
                case ast.For(target=target, iter=ast.Call() as call, body=body, orelse=[]):
                    return self._for(node, target, call, body)
                case ast.While(test=test, body=body, orelse=[]):
                    return While(self.exprs.expr(test, "bool"), self.scoped_body(body))
                case ast.If(test=test, body=body, orelse=orelse):
                    condition = self.exprs.expr(test, "bool")
                    else_case = self.scoped_body(orelse) if orelse else None
                    return IfThenElse(condition, self.scoped_body(body), else_case)
                case ast.Assign(targets=[ast.Subscript(value=base, slice=index)], value=value):
                    return self._store(base, index, value)
                case ast.AugAssign(target=ast.Subscript(value=base, slice=index), op=op, value=value):
                    return self._update(node, base, index, op, value)
                case ast.With(items=[item], body=body):
                    return self._with(node, item, body)
                case ast.Expr(value=value):
                    return self._evaluate(value)
                case ast.Pass():
                    return SeqStmt(())
        raise self.state.error(node, "this statement is not part of the T dialect")

    # --- what has the following statements as its body

    def _definition(self, node: ast.stmt, rest: Sequence[ast.stmt]) -> Stmt | None:
        with self.state.source.at(node):
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                    return self._let(name, value, rest, annotation)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    return self._assigned(name, value, rest)
                case ast.Assert(test=test, msg=message):
                    condition = self.exprs.expr(test, "bool")
                    text = values.string(self.state, message) if message is not None else ""
                    return AssertStmt(condition, text, self.body(rest))
                case ast.Expr(value=ast.Call() as call) if self.state.called(call, "T") == "launch_thread":
                    return self._thread("tx", call, rest)
                case ast.Expr(value=ast.Call() as call) if self.state.called(call, "T") == "attr":
                    self._note(call)
                    return self.body(rest)
        return None

    def _note(self, call: ast.Call) -> None:
        """A note for passes that are not run here is passed over; one that binds a thread is refused."""
        args = arguments(self.state, call, "node", "attr_key", "value", required=3)
        key = values.string(self.state, args["attr_key"])
        if key in THREAD_NOTES:
            raise self.state.error(call, f"T.attr(…, '{key}', …) binds a thread: use T.launch_thread(…)")

    def _assigned(self, name: str, value: ast.expr, rest: Sequence[ast.stmt]) -> Stmt:
        """`name = …` and the statements behind it."""
        called = self.state.called(value, "T")
        if isinstance(value, ast.Call) and called == "decl_buffer":
            return self._allocate(name, value, rest)
        if isinstance(value, ast.Call) and called in ALLOCATE and self.state.allocations:
            made = buffer(self.exprs, value, name)
            self.state.allocations[-1].append(made)
            self.state.define(name, made)
            return self.body(rest)
        if isinstance(value, ast.Call) and called == "allocate":
            return self._memory(name, value, rest)
        if isinstance(value, ast.Call) and called == "launch_thread":
            return self._thread(name, value, rest)
        if isinstance(value, ast.Call) and called == "env_thread":
            args = arguments(self.state, value, "thread_tag", "dtype", required=1)
            dtype = values.dtype(self.state, args["dtype"]) if "dtype" in args else None
            self.state.define(name, EnvThread(self._thread_name(args["thread_tag"]), dtype))
            return self.body(rest)
        if called != "meta_var" and not isinstance(value, ast.Tuple | ast.List):
            return self._let(name, value, rest)
        self.state.define(name, self.exprs.value(value))
        return self.body(rest)

    def _memory(self, name: str, call: ast.Call, rest: Sequence[ast.stmt]) -> Stmt:
        """`data = T.allocate([16], "float32", "global")` and, behind it, the buffer that lies in it."""
        args = arguments(self.state, call, "extents", "dtype", "scope", "condition", "annotations", required=2)
        dtype = values.dtype(self.state, args["dtype"])
        scope = values.string(self.state, args["scope"]) if "scope" in args else "global"
        made = Buffer(name, dims(self.exprs, args["extents"]), dtype, scope=scope)
        with self.state.scope():
            match rest:
                case [ast.Assign(targets=[ast.Name(id=second)], value=ast.Call() as declared), *after] if (
                    self.state.called(declared, "T") in ("Buffer", "decl_buffer")
                    and any(w.arg == "data" and isinstance(w.value, ast.Name) and w.value.id == name
                            for w in declared.keywords)
                ):  # fmt: skip
                    kept = [w for w in declared.keywords if w.arg != "data"]
                    plain = ast.copy_location(ast.Call(declared.func, declared.args, kept), declared)
                    made = replace(buffer(self.exprs, plain, second), scope=scope)
                    self.state.define(second, made)
                    rest = after
            self.state.define(name, made)
            return Allocate(made, self.body(rest))

    def _thread(self, name: str, call: ast.Call, rest: Sequence[ast.stmt]) -> Stmt:
        """`tx = T.launch_thread("threadIdx.x", 32)`, `T.launch_thread(tx, 32)` of an env_thread: a loop of threads."""
        args = arguments(self.state, call, "thread", "extent", required=2)
        extent, axis = self.exprs.expr(args["extent"]), args["thread"]
        named = self.state.find(axis) if isinstance(axis, ast.Name) and self.state.knows(axis.id) else None
        if isinstance(axis, ast.Name) and isinstance(named, EnvThread):
            name, thread = axis.id, named.thread
            extent = extent if named.dtype is None else E.cast(named.dtype, extent)
        else:
            thread = self._thread_name(axis)
        var = Var(name, extent.dtype)
        domain = Range(E.const(0, var.dtype), extent)
        with self.state.scope():
            self.state.define(name, var)
            self.domains[var] = domain
            body = self.body(rest)
        del self.domains[var]
        return For(var, domain.min, extent, LoopKind.THREAD_BINDING, body, thread)

    def _thread_name(self, node: ast.AST) -> str:
        """Which thread axis runs a loop. Raises ScriptError for one that does not exist."""
        thread = values.string(self.state, node)
        if thread not in THREADS:
            raise self.state.error(node, f"unknown thread axis '{thread}'; one of {', '.join(THREADS)}")
        return thread

    def _let(self, name: str, value: ast.AST, rest: Sequence[ast.stmt], annotation: ast.AST | None = None) -> Stmt:
        if isinstance(annotation, ast.Subscript) and self.state.dialect_name(annotation.value) == ("T", "let"):
            annotation = annotation.slice  # T.let[T.int32]
        elif annotation is not None and self.state.dialect_name(annotation) == ("T", "let"):
            annotation = None
        found = self.state.dialect_name(annotation) if annotation is not None else None
        if annotation is not None and (found is None or found[0] != "T" or found[1] not in DTYPES):
            raise self.state.error(annotation, "expected a dtype such as T.float32")
        bound = self.exprs.expr(value, found[1] if found else None)
        var = Var(name, found[1] if found else bound.dtype)
        with self.state.scope():
            self.state.define(name, var)
            return LetStmt(var, bound, self.body(rest))

    def _allocate(self, name: str, call: ast.Call, rest: Sequence[ast.stmt]) -> Stmt:
        made = buffer(self.exprs, call, name, more=("annotations",))
        words = {w.arg: w.value for w in call.keywords}
        notes = values.attributes(self.state, words["annotations"]) if "annotations" in words else FrozenDict()
        with self.state.scope():
            self.state.define(name, made)
            return Allocate(made, self.body(rest), notes)

    def _with(self, node: ast.With, item: ast.withitem, body: Sequence[ast.stmt]) -> Stmt:
        call, name = item.context_expr, item.optional_vars
        called = self.state.called(call, "T")
        if isinstance(call, ast.Call):
            if called in BLOCK:
                return read_block(self.exprs, node, self.domains, self.body)
            if called == "decl_buffer" and isinstance(name, ast.Name):
                return self._allocate(name.id, call, body)
            if called == "launch_thread":
                return self._thread(name.id if isinstance(name, ast.Name) else "tx", call, body)
            if called == "attr":
                self._note(call)
                return self.scoped_body(body)
            if called == "LetStmt" and isinstance(name, ast.Name):
                args = arguments(self.state, call, "value", required=1)
                return self._let(name.id, args["value"], body)
            if called == "Assert":
                args = arguments(self.state, call, "condition", "message", required=2)
                condition = self.exprs.expr(args["condition"], "bool")
                return AssertStmt(condition, values.string(self.state, args["message"]), self.scoped_body(body))
        raise self.state.error(node, "expected T.block, T.decl_buffer, T.LetStmt or T.Assert after 'with'")

    # --- loops

    def _for(self, node: ast.For, target: ast.expr, call: ast.Call, body: Sequence[ast.stmt]) -> Stmt:
        is_range = isinstance(call.func, ast.Name) and call.func.id == "range"
        called = "range" if is_range else self.state.called(call, "T")
        names = [t.id for t in (target.elts if isinstance(target, ast.Tuple) else [target]) if isinstance(t, ast.Name)]
        if called == "grid":
            return self._grid(node, names, call, body)
        kind = LoopKind.SERIAL if called == "range" else LOOPS.get(called)
        if kind is None or len(names) != 1:
            raise self.state.error(call, f"expected range(…), T.grid(…) or one of T.{', T.'.join(LOOPS)}")
        words = keywords(self.state, call, "thread", "annotations")
        notes = values.attributes(self.state, words["annotations"]) if "annotations" in words else FrozenDict()
        thread = self._thread_name(words["thread"]) if "thread" in words else ""
        domain = self._domain(call, 2 + (kind is LoopKind.THREAD_BINDING))
        if len(call.args) == 3:
            thread = self._thread_name(call.args[2])
        if kind is LoopKind.THREAD_BINDING and not thread:
            raise self.state.error(call, 'T.thread_binding needs its thread, such as thread="threadIdx.x"')
        return self._nest(node, [(names[0], domain)], body, kind, thread, notes)

    def _domain(self, call: ast.Call, most: int) -> Range:
        if not 1 <= len(call.args) <= most:
            raise self.state.error(call, "expected an extent, or a start and an end")
        if len(call.args) == 1:
            extent = self.exprs.expr(call.args[0])
            return Range(E.const(0, extent.dtype), extent)
        start, end = self.exprs.pair(call.args[0], call.args[1])
        return Range(start, extent_between(start, end))

    def _grid(self, node: ast.For, names: Sequence[str], call: ast.Call, body: Sequence[ast.stmt]) -> Stmt:
        extents = self.exprs.exprs(call.args)
        if len(names) != len(extents) or call.keywords:
            raise self.state.error(call, f"{len(names)} loop variables for {len(extents)} extents")
        domains = [(n, Range(E.const(0, e.dtype), e)) for n, e in zip(names, extents, strict=True)]
        return self._nest(node, domains, body, LoopKind.SERIAL, "", FrozenDict())

    def _nest(
        self, node: ast.For, domains: Sequence[tuple[str, Range]], body: Sequence[ast.stmt], kind: LoopKind,
        thread: str, annotations: FrozenDict,
    ) -> Stmt:  # fmt: skip
        loop_vars = [Var(name, domain.extent.dtype) for name, domain in domains]
        with self.state.scope():
            for var, (_, domain) in zip(loop_vars, domains, strict=True):
                self.state.define(var.name, var)
                self.domains[var] = domain
            result = self.body(body)
        span = self.state.source.span(node)
        for var in reversed(loop_vars):
            domain = self.domains.pop(var)
            result = For(var, domain.min, domain.extent, kind, result, thread, annotations, span)
        return result

    # --- simple statements

    def _store(self, base: ast.expr, index: ast.expr, value: ast.expr) -> Stmt:
        target = self.exprs.buffer(base)
        at = self.exprs.indices(target, index)
        return BufferStore(target, self._as(self.exprs.expr(value, target.dtype), target), at)

    def _expand(self, call: ast.Call, macro: Macro) -> Stmt:
        """The statements of a macro for the arguments of a call."""
        names = [a.arg for a in macro.node.args.args]
        given = [self._argument(a) for a in call.args]
        words = {str(w.arg): self._argument(w.value) for w in call.keywords}
        if len(given) + len(words) != len(names) or not words.keys() <= set(names[len(given) :]):
            raise self.state.error(call, f"macro '{macro.node.name}' takes {', '.join(names)}")
        source, self.state.source = self.state.source, macro.source
        try:
            with self.state.scope():
                if macro.hygienic:
                    for name, value in macro.names.items():
                        if not hasattr(value, "DIALECT"):
                            self.state.define(name, value)
                for name, value in {**dict(zip(names, given, strict=False)), **words}.items():
                    self.state.define(name, value)
                return self.body(macro.node.body)
        finally:
            self.state.source = source

    def _argument(self, node: ast.AST) -> object:
        return self.state.find(node) if isinstance(node, ast.Name) else self.exprs.value(node)

    def _as(self, value: PrimExpr, target: Buffer) -> PrimExpr:
        return value if value.dtype == target.dtype else E.cast(target.dtype, value)

    def _update(self, node: ast.AST, base: ast.expr, index: ast.expr, op: ast.operator, value: ast.expr) -> Stmt:
        """`A[i] += x`."""
        if type(op) not in BINARY and type(op) not in BITS:
            raise self.state.error(node, "this operator is not part of the T dialect")
        whole = ast.copy_location(ast.BinOp(ast.copy_location(ast.Subscript(base, index), base), op, value), node)
        return self._store(base, index, whole)

    def _evaluate(self, value: ast.expr) -> Stmt:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and self.state.knows(value.func.id):
            macro = self.state.find(value.func)
            if isinstance(macro, Macro):
                return self._expand(value, macro)
        if isinstance(value, ast.Call) and self.state.called(value, "T") == "evaluate":
            return Evaluate(self.exprs.expr(arguments(self.state, value, "value", required=1)["value"]))
        return Evaluate(self.exprs.expr(value))
