"""A PrimFunc from text."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autosched.ir.node import FrozenDict, preorder
from autosched.script.parser import values
from autosched.script.parser.state import Meaning, State, arguments
from autosched.script.parser.tir_block import ALLOCATE
from autosched.script.parser.tir_buffer import buffer, symbol
from autosched.script.parser.tir_stmt import StmtReader
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, Var
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.stmt import Block, BlockRealize, Stmt


def read_prim_func(state: State, node: ast.FunctionDef, *, private: bool = False) -> PrimFunc:
    """`def name(A: T.Buffer(…), n: T.int32): …`; without `private` it gets its name as `global_symbol`."""
    with state.scope():
        return _Reader(state).read(node, private)


class _Reader:
    def __init__(self, state: State):
        self.state = state
        self.stmts = StmtReader(state)
        self.matched: dict[Var, Buffer] = {}
        self.sizes: dict[str, Var] = {}  # symbols that shapes name before they are declared
        self.allocated: list[Buffer] = []
        self.attrs: dict[str, Meaning] = {}

    def read(self, node: ast.FunctionDef, private: bool) -> PrimFunc:
        if not private:
            self.attrs["global_symbol"] = node.name
        spec = node.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs or spec.defaults:
            raise self.state.error(node, "a PrimFunc has plain parameters only")
        self._declare_sizes(node)
        params = tuple(self._param(a) for a in spec.args)
        n_header = 0
        while n_header < len(node.body) and self._header_line(node.body[n_header]):
            n_header += 1
        body = self._body(node, node.body[n_header:])
        buffers = FrozenDict({p: self.matched[p] for p in params if p in self.matched})
        span = self.state.source.span(node)
        func = PrimFunc(params, buffers, body, self._result(node.returns), FrozenDict(self.attrs), span)
        made: PrimFunc = self.state.source.note(func, node)
        return made

    def _result(self, node: ast.AST | None) -> str | None:
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return None
        found = self.state.dialect_name(node)
        if found is None or found[0] != "T":
            raise self.state.error(node, "expected a dtype of the T dialect")
        return found[1]

    def _param(self, node: ast.arg) -> Var:
        annotation = node.annotation
        if annotation is None:
            raise self.state.error(node, f"parameter '{node.arg}' needs an annotation such as T.Buffer((4, 8))")
        if isinstance(annotation, ast.Call) and self.state.called(annotation, "T") == "Buffer":
            with self.state.source.at(annotation):
                made = buffer(self.stmts.exprs, annotation, node.arg)
            handle = Var(f"var_{node.arg}", "handle")
            self.matched[handle] = made
            self.state.define(node.arg, made)
            return handle
        var = symbol(self.state, annotation, node.arg)
        if var is None:
            raise self.state.error(annotation, "expected T.Buffer(…), T.handle or a dtype such as T.int32")
        var = self.sizes.get(node.arg, var)
        self.state.define(node.arg, var)
        return var

    def _declare_sizes(self, node: ast.FunctionDef) -> None:
        """Read sizes in quotes, `T.Buffer(("n * 4",), …)`: their symbols are declared behind them, or nowhere."""
        quoted = [arg.annotation for arg in node.args.args if isinstance(arg.annotation, ast.Call)]
        shapes = [c.args[0] for c in quoted if c.args and isinstance(c.args[0], ast.Tuple | ast.List)]
        names: dict[str, Var | None] = {}
        for shape in shapes:
            for i, dim in enumerate(shape.elts):
                if isinstance(dim, ast.Constant) and isinstance(dim.value, str):
                    shape.elts[i] = self._unquoted(dim)
                    found = (x.id for x in ast.walk(shape.elts[i]) if isinstance(x, ast.Name))
                    names.update((name, None) for name in found if name not in self.state.prefixes)
        if not names:
            return
        pairs = [(a.arg, a.annotation) for a in node.args.args if a.annotation is not None]
        for line in node.body:
            if isinstance(line, ast.Assign) and isinstance(target := line.targets[0], ast.Tuple | ast.Name):
                many = isinstance(target, ast.Tuple) and isinstance(line.value, ast.Tuple)
                both = (target.elts, line.value.elts) if many else ([target], [line.value])  # type: ignore[union-attr, attr-defined]
                pairs += [(t.id, v) for t, v in zip(*both, strict=False) if isinstance(t, ast.Name)]
        for name, value in pairs:
            if name in names and names[name] is None:
                names[name] = symbol(self.state, value, name)
        for name, var in names.items():
            if var is not None or not self.state.knows(name):
                self.sizes[name] = var if var is not None else Var(name, "int64")
                self.state.define(name, self.sizes[name])

    def _unquoted(self, node: ast.Constant) -> ast.expr:
        try:
            inside = ast.parse(str(node.value), mode="eval").body
        except (SyntaxError, ValueError):
            raise self.state.error(node, f"{node.value!r} is no expression") from None
        for part in ast.walk(inside):
            ast.copy_location(part, node)
        return inside

    def _header_line(self, node: ast.stmt) -> bool:
        """Read attributes, matched buffers, symbols and allocations; whether the line was one of them."""
        with self.state.source.at(node):
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    return True  # a docstring
                case ast.Expr(value=ast.Call() as call) if self.state.called(call, "T") == "func_attr":
                    args = arguments(self.state, call, "attrs", required=1)
                    self.attrs |= values.function_attributes(self.state, args["attrs"])
                    return True
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    return self._definition(name, call)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=calls)):
                    return self._symbols(targets, calls)
        return False

    def _symbols(self, targets: Sequence[ast.expr], calls: Sequence[ast.expr]) -> bool:
        """`n, m = T.int32(), T.int32()`: whether the line declares symbols."""
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        made = [symbol(self.state, c, name) for c, name in zip(calls, names, strict=False) if isinstance(c, ast.Call)]
        if not len(targets) == len(calls) == len(made) or None in made:
            return False
        for name, var in zip(names, made, strict=True):
            self.state.define(name, self.sizes.get(name, var))
        return True

    def _definition(self, name: str, call: ast.Call) -> bool:
        called = self.state.called(call, "T")
        made: Buffer | Var | None
        if called == "match_buffer":
            made = buffer(self.stmts.exprs, call, name, "handle")
            handle = self.stmts.exprs.value(call.args[0]) if call.args else None
            if not isinstance(handle, Var) or handle.dtype != "handle":
                raise self.state.error(call, "T.match_buffer takes a parameter annotated as T.handle")
            self.matched[handle] = made
        elif called in ALLOCATE:
            made = buffer(self.stmts.exprs, call, name)
            self.allocated.append(made)
        else:
            made = symbol(self.state, call, name)
            made = made if made is None else self.sizes.get(name, made)
        if made is not None:
            self.state.define(name, made)
        return made is not None

    def _body(self, node: ast.FunctionDef, lines: Sequence[ast.stmt]) -> Stmt:
        if not lines:
            raise self.state.error(node, f"function '{node.name}' has no body")
        self.state.allocations.append(self.allocated)
        body = self.stmts.body(lines)
        self.state.allocations.pop()
        if not self.allocated and (_is_root(body) or not any(isinstance(x, Block) for x in preorder(body))):
            return body
        return make_root(body, tuple(self.allocated))


def _is_root(body: Stmt) -> bool:
    """A lone block without variables is the root itself."""
    if not isinstance(body, BlockRealize) or body.block.iter_vars:
        return False
    return isinstance(body.predicate, IntImm) and bool(body.predicate)
