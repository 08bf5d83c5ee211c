"""A graph function from text."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence

from autosched.ir.node import FrozenDict
from autosched.relax import expr as R
from autosched.relax.struct_info import Expr, StructInfo
from autosched.script.parser import values
from autosched.script.parser.relax_expr import RelaxExprReader
from autosched.script.parser.state import Meaning, State, arguments
from autosched.script.parser.tir_buffer import symbol
from autosched.tir.expr import Var as Symbol


def read_relax_function(state: State, node: ast.FunctionDef, *, private: bool = False, pure: bool = True) -> R.Function:
    """`def name(x: R.Tensor(…)): …`; without `private` it gets its name as `global_symbol`."""
    with state.scope():
        return _Reader(state).function(node, private, pure)


def read_signature(state: State, node: ast.FunctionDef) -> tuple[tuple[StructInfo | None, ...], StructInfo | None]:
    """What a function says of its parameters and of its result."""
    with state.scope():
        return _Reader(state).signature(node)


class _Reader:
    def __init__(self, state: State):
        self.state = state
        self.exprs = RelaxExprReader(state, self._bind_nested)
        self.attrs: dict[str, Meaning] = {}
        self.blocks: list[R.BindingBlock] = []
        self.bindings: list[R.Binding] = []
        self.outputs: set[str] | None = None  # of the dataflow block being read; None outside

    def signature(self, node: ast.FunctionDef) -> tuple[tuple[StructInfo | None, ...], StructInfo | None]:
        for line in node.body:
            self._declare_symbol(line)
        params = tuple(self._param(a).struct_info for a in node.args.args)
        return params, self.exprs.infos.info(node.returns) if node.returns is not None else None

    def function(self, node: ast.FunctionDef, private: bool, pure: bool) -> R.Function:
        if not private:
            self.attrs["global_symbol"] = node.name
        for line in node.body:
            self._declare_symbol(line)
        params = tuple(self._param(a) for a in node.args.args)
        returns = self.exprs.infos.info(node.returns) if node.returns is not None else None
        result = self._lines(node.body)
        if result is None:
            raise self.state.error(node, f"function '{node.name}' returns nothing")
        body = R.SeqExpr(tuple(self.blocks), result)
        attrs, span = FrozenDict(self.attrs), self.state.source.span(node)
        info = returns if returns is not None else body.struct_info
        return R.Function(params, body, info, pure, attrs, span)

    def _declare_symbol(self, line: ast.stmt) -> bool:
        """`n = T.int64()`; the signature may have used its name in quotes."""
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                var = symbol(self.state, call, name)
                if var is not None and not (self.state.knows(name) and self._is_symbol(line.targets[0])):
                    self.state.define(name, var)
                return var is not None
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=items)) if len(names) == len(items):
                pairs = zip(names, items, strict=True)
                lines = [ast.copy_location(ast.Assign([target], item), line) for target, item in pairs]
                return all([self._declare_symbol(line) for line in lines])
        return False

    def _is_symbol(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and isinstance(self.state.find(node), Symbol)

    def _param(self, node: ast.arg) -> R.Var:
        if node.annotation is None:
            raise self.state.error(node, f"parameter '{node.arg}' needs an annotation such as R.Tensor((1, 8))")
        var = R.Var(node.arg, self.exprs.infos.info(node.annotation), self.state.source.span(node))
        self.state.define(node.arg, var)
        return var

    # --- lines

    def _lines(self, nodes: Sequence[ast.stmt]) -> Expr | None:
        """Read bindings into blocks; what `return` gives, if there is one."""
        result: Expr | None = None
        for node in nodes:
            if result is not None:
                raise self.state.error(node, "nothing can follow a return")
            if isinstance(node, ast.Return):
                if node.value is None:
                    raise self.state.error(node, "return needs a value")
                result = self._result(node.value)
            else:
                with self.state.source.at(node):
                    self._line(node)
        self._end_block()
        return result

    def _result(self, node: ast.expr) -> Expr:
        with self.state.source.at(node):
            return R.as_expr(self.exprs.leaf(node))  # type: ignore[no-any-return]

    def _line(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                return
            case ast.Expr(value=ast.Call() as call) if self.state.called(call, "R") == "func_attr":
                args = arguments(self.state, call, "attrs", required=1)
                self.attrs |= values.function_attributes(self.state, args["attrs"])
            case ast.Expr(value=ast.Call() as call):
                self._bind("_", self.exprs.expr(call), None, node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=value)) if value in self.state.module_names:
                self.state.module_names.add(name)
            case ast.Assign() if self._declare_symbol(node):
                return
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=items)) if len(names) == len(items):
                for target, item in zip(names, items, strict=True):  # n, m = T.int64(), T.int64()
                    self._line(ast.copy_location(ast.Assign(targets=[target], value=item), node))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, value, None, node)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                self._assign(name, value, self.exprs.infos.info(annotation), node)
            case ast.With(items=[ast.withitem(context_expr=call)], body=body):
                self._dataflow(node, call, body)
            case ast.If(test=test, body=then, orelse=orelse):
                self._if(node, test, then, orelse)
            case ast.FunctionDef():
                self._inner_function(node)
            case _:
                raise self.state.error(node, "this statement is not part of the R dialect")

    def _assign(self, name: str, value: ast.expr, info: StructInfo | None, node: ast.AST) -> None:
        if isinstance(value, ast.Call) and self.state.called(value, "R") == "match_cast":
            args = arguments(self.state, value, "value", "struct_info", required=2)
            source, cast = self.exprs.leaf(args["value"]), self.exprs.infos.info(args["struct_info"])
            var = self._variable(name, info if info is not None else cast, node)
            self.bindings.append(R.MatchCast(var, R.as_expr(source), cast))
            self.state.define(name, var)
        else:
            self._bind(name, self.exprs.expr(value), info, node)

    def _bind(self, name: str, value: Expr, info: StructInfo | None, node: ast.AST | None) -> R.Var:
        """Bind a value to a new variable, annotated by `info` or by what the value says of itself."""
        if isinstance(value, R.Call) and value.struct_info is None and info is not None:
            value = dataclasses.replace(value, struct_info=info)
        var = self._variable(name, info if info is not None else value.struct_info, node)
        self.bindings.append(R.VarBinding(var, value, var.span))
        self.state.define(name, var)
        return var

    def _variable(self, name: str, info: StructInfo | None, node: ast.AST | None) -> R.Var:
        kind = R.Var if self.outputs is None or name in self.outputs else R.DataflowVar
        return kind(name, info, self.state.source.span(node) if node is not None else None)

    def _bind_nested(self, value: Expr) -> Expr:
        base = name = "gv" if self.outputs is None else "lv"
        n = 0
        while self.state.knows(name):
            n += 1
            name = f"{base}{n}"
        return self._bind(name, value, None, None)

    # --- blocks

    def _end_block(self) -> None:
        if self.bindings:
            kind = R.BindingBlock if self.outputs is None else R.DataflowBlock
            self.blocks.append(kind(tuple(self.bindings)))
            self.bindings = []

    def _dataflow(self, node: ast.With, call: ast.expr, body: Sequence[ast.stmt]) -> None:
        if self.state.called(call, "R") != "dataflow" or self.outputs is not None:
            raise self.state.error(node, "expected R.dataflow(), not inside another one")
        self._end_block()
        last = body[-1]
        if not (isinstance(last, ast.Expr) and self.state.called(last.value, "R") == "output"):
            raise self.state.error(last, "a dataflow block ends with R.output(…)")
        assert isinstance(last.value, ast.Call)
        self.outputs = {a.id for a in last.value.args if isinstance(a, ast.Name)}
        for line in body[:-1]:
            with self.state.source.at(line):
                self._line(line)
        for a in last.value.args:
            if not isinstance(a, ast.Name) or not any(b.var.name == a.id for b in self.bindings):
                raise self.state.error(a, "R.output takes variables of this dataflow block")
        if not self.bindings:
            self.blocks.append(R.DataflowBlock(()))
        self._end_block()
        self.outputs = None

    def _if(self, node: ast.If, test: ast.expr, then: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        """Both branches end by binding the same name."""
        names = {self._bound_name(branch, node) for branch in (then, orelse)}
        if len(names) != 1:
            raise self.state.error(node, f"the branches bind different names: {', '.join(sorted(names))}")
        condition = R.as_expr(self.exprs.leaf(test))
        infos: list[StructInfo | None] = []
        branches = [self._branch(b, suffix, infos) for b, suffix in ((then, "then"), (orelse, "else"))]
        info = infos[0] if infos[0] is not None else branches[0].struct_info
        self._bind(names.pop(), R.If(condition, branches[0], branches[1], info), info, node)

    def _bound_name(self, branch: Sequence[ast.stmt], node: ast.AST) -> str:
        match branch[-1] if branch else None:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                return name
        raise self.state.error(node, "each branch ends by binding a variable")

    def _branch(self, nodes: Sequence[ast.stmt], suffix: str, infos: list[StructInfo | None]) -> R.SeqExpr:
        outer, self.bindings, self.blocks = (self.bindings, self.blocks), [], []
        with self.state.scope():
            self._lines(nodes[:-1])
            last = nodes[-1]
            assert isinstance(last, ast.Assign | ast.AnnAssign) and last.value is not None
            info = self.exprs.infos.info(last.annotation) if isinstance(last, ast.AnnAssign) else None
            infos.append(info)
            value = self.exprs.expr(last.value)
            if isinstance(value, R.Call | R.TupleGetItem):
                name = last.target if isinstance(last, ast.AnnAssign) else last.targets[0]
                value = self._bind(f"{name.id}_{suffix}" if isinstance(name, ast.Name) else suffix, value, info, last)
            self._end_block()
        made = R.SeqExpr(_joined(self.blocks), value)
        self.bindings, self.blocks = outer
        return made

    def _inner_function(self, node: ast.FunctionDef) -> None:
        made = self.state.read_function(self.state, node)
        var = self._variable(node.name, None, node)
        self.bindings.append(R.VarBinding(var, made))
        self.state.define(node.name, var)


def _joined(blocks: Sequence[R.BindingBlock]) -> tuple[R.BindingBlock, ...]:
    """Neighbouring plain blocks as one, as the text of both is the same."""
    joined: list[R.BindingBlock] = []
    for block in blocks:
        if joined and type(block) is R.BindingBlock and type(joined[-1]) is R.BindingBlock:
            joined[-1] = R.BindingBlock((*joined[-1].bindings, *block.bindings))
        else:
            joined.append(block)
    return tuple(joined)
