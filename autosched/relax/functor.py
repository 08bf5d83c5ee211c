"""TVM's visitors and mutators for user-written passes: `visit_call_`, `visit_var_binding_` … to override.

@relax.expr_functor.mutator
class ReluToGelu(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        return relax.op.nn.gelu(call.args[0]) if call.op.name == "relax.nn.relu" else call
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict, Node
from autosched.relax.block_builder import BlockBuilder, FunctionScope
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.op.registry import definition_of
from autosched.relax.struct_info import StructInfo, same_info

T = TypeVar("T")

_METHODS: Mapping[type, str] = {
    Constant: "visit_constant_", Tuple: "visit_tuple_", DataflowVar: "visit_dataflow_var_", Var: "visit_var_",
    ShapeExpr: "visit_shape_expr_", ExternFunc: "visit_extern_func_", GlobalVar: "visit_global_var_",
    Function: "visit_function_", Call: "visit_call_", SeqExpr: "visit_seq_expr_", If: "visit_if_", Op: "visit_op_",
    PrimValue: "visit_prim_value_", StringImm: "visit_string_imm_", TupleGetItem: "visit_tuple_getitem_",
}  # fmt: skip


def visitor(cls: type[T]) -> type[T]:
    """TVM's decorator of visitor classes: gives the class."""
    return cls


mutator = visitor


class _Dispatch:
    """Finds the method for an expression."""

    def visit_expr(self, expr: object) -> Any:
        """Visit any expression."""
        name = _METHODS.get(type(expr))
        return self._other(expr) if name is None else getattr(self, name)(expr)

    def _other(self, expr: object) -> object:
        return expr


class PyExprVisitor(_Dispatch):
    """Visits functions; override the methods of what is looked for, and call `super()` to go on below it."""

    def visit_binding(self, binding: Binding) -> None:
        """Visit `var = value`."""
        if isinstance(binding, MatchCast):
            self.visit_match_cast_(binding)
        else:
            self.visit_var_binding_(binding)  # type: ignore[arg-type]

    def visit_binding_block(self, block: BindingBlock) -> None:
        """Visit a block."""
        if isinstance(block, DataflowBlock):
            self.visit_dataflow_block_(block)
        else:
            self.visit_binding_block_(block)

    def visit_var_def(self, var: Var) -> None:
        """Visit a variable where it is bound."""
        if isinstance(var, DataflowVar):
            self.visit_dataflow_var_def_(var)
        else:
            self.visit_var_def_(var)

    def visit_span(self, span: object) -> None:
        """Visit a place in the user's code."""

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Visit a binding: the value, then the variable."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Visit a checked binding."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """Visit a plain block's bindings."""
        for b in block.bindings:
            self.visit_binding(b)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        """Visit a dataflow block's bindings."""
        for b in block.bindings:
            self.visit_binding(b)

    def visit_var_def_(self, var: Var) -> None:
        """Visit the definition of a variable."""

    def visit_dataflow_var_def_(self, var: DataflowVar) -> None:
        """Visit the definition of a dataflow variable."""

    def visit_constant_(self, op: Constant) -> None:
        """Visit a constant."""

    def visit_tuple_(self, op: Tuple) -> None:
        """Visit a tuple's fields."""
        for f in op.fields:
            self.visit_expr(f)

    def visit_var_(self, op: Var) -> None:
        """Visit a use of a variable."""

    def visit_dataflow_var_(self, op: DataflowVar) -> None:
        """Visit a use of a dataflow variable."""

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        """Visit a shape."""

    def visit_extern_func_(self, op: ExternFunc) -> None:
        """Visit the name of an external function."""

    def visit_global_var_(self, op: GlobalVar) -> None:
        """Visit the name of a function of the module."""

    def visit_function_(self, op: Function) -> None:
        """Visit parameters and body."""
        for p in op.params:
            self.visit_var_def(p)
        self.visit_expr(op.body)

    def visit_call_(self, op: Call) -> None:
        """Visit what is called, then the arguments."""
        self.visit_expr(op.op)
        for a in op.args:
            self.visit_expr(a)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        """Visit the blocks, then the result."""
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_if_(self, op: If) -> None:
        """Visit the condition and both branches."""
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_op_(self, op: Op) -> None:
        """Visit an operator."""

    def visit_prim_value_(self, op: PrimValue) -> None:
        """Visit a scalar."""

    def visit_string_imm_(self, op: StringImm) -> None:
        """Visit a string."""

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        """Visit the tuple of an item."""
        self.visit_expr(op.tuple_value)


class MutatorBuilder(BlockBuilder):
    """The builder that a mutator emits with."""

    @contextmanager
    def writing(self, function: Function) -> Iterator[FunctionScope]:
        """A function's scope, its names taken."""
        scope = FunctionScope("", function.params, FrozenDict(), True, True)
        self._scopes.append(scope)
        BlockBuilder._stack.append(self)
        try:
            yield scope
        finally:
            self._scopes.remove(scope)
            BlockBuilder._stack.pop()

    @contextmanager
    def sequence(self, scope: FunctionScope) -> Iterator[None]:
        """The blocks of a sequence, those around it kept aside."""
        saved = scope.blocks, scope.bindings, scope.in_dataflow
        scope.blocks, scope.bindings, scope.in_dataflow = [], [], False
        try:
            yield
        finally:
            scope.blocks, scope.bindings, scope.in_dataflow = saved

    def append(self, binding: Binding) -> None:
        """Put a binding behind the others."""
        self._scope.bindings.append(binding)
        if isinstance(binding, VarBinding):
            self._values[binding.var] = binding.value

    def end_block(self) -> None:
        """End the block being written."""
        self._end_block(self._scope)


class PyExprMutator(_Dispatch):
    """Rebuilds functions; a method gives what stands in the place of what it was given.

    mod  the module whose functions `builder_.add_func` joins; `self.builder_.get()` gives it afterwards
    """

    def __init__(self, mod: IRModule | None = None):
        self.builder_ = MutatorBuilder(mod)
        self._replaced: dict[Var, Expr] = {}

    # --- expressions ----------------------------------------------------------------------------------------------

    def visit_expr_post_order(self, expr: object) -> Any:
        """The expression with everything below it visited, by the rules of this class itself."""
        name = _METHODS.get(type(expr))
        return expr if name is None else getattr(PyExprMutator, name)(self, expr)

    def visit_constant_(self, op: Constant) -> Expr:
        """What a constant becomes."""
        return op

    def visit_var_(self, op: Var) -> Expr:
        """What a use of a variable becomes."""
        return self.get_var_remap(op)

    def visit_dataflow_var_(self, op: DataflowVar) -> Expr:
        """What a use of a dataflow variable becomes."""
        return self.get_var_remap(op)

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        """What a shape becomes."""
        return op

    def visit_extern_func_(self, op: ExternFunc) -> Expr:
        """What the name of an external function becomes."""
        return op

    def visit_global_var_(self, op: GlobalVar) -> Node:
        """What the name of a function becomes."""
        return op

    def visit_op_(self, op: Op) -> Node:
        """What an operator becomes."""
        return op

    def visit_prim_value_(self, op: PrimValue) -> Expr:
        """What a scalar becomes."""
        return op

    def visit_string_imm_(self, op: StringImm) -> Expr:
        """What a string becomes."""
        return op

    def visit_tuple_(self, op: Tuple) -> Expr:
        """What a tuple becomes."""
        fields = tuple(self.visit_expr(f) for f in op.fields)
        return op if _same(fields, op.fields) else Tuple(fields)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        """What an item of a tuple becomes."""
        source = self.visit_expr(op.tuple_value)
        if isinstance(source, Tuple):
            return source.fields[op.index]
        return op if source is op.tuple_value else TupleGetItem(source, op.index)

    def visit_call_(self, op: Call) -> Expr:
        """What a call becomes."""
        callee = self.visit_expr(op.op)
        args = tuple(self.visit_expr(a) for a in op.args)
        if callee is op.op and _same(args, op.args):
            return op
        new = dataclasses.replace(op, op=callee, args=args)
        definition = definition_of(new)
        if definition is None or callee is not op.op:
            return new
        bound: dict[int, Var] = {}  # `args` holds what it names
        return definition.make([self.builder_._argument(a, bound) for a in args], op.attrs)

    def visit_if_(self, op: If) -> Expr:
        """What a branch becomes."""
        cond = self.visit_expr(op.cond)
        branches = self.visit_expr(op.true_branch), self.visit_expr(op.false_branch)
        if cond is op.cond and _same(branches, (op.true_branch, op.false_branch)):
            return op
        return If(cond, branches[0], branches[1], branches[0].struct_info)

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        """What a sequence becomes."""
        scope = self.builder_._scope
        with self.builder_.sequence(scope):
            for block in op.blocks:
                self.visit_binding_block(block)
            body = self.builder_.normalize(self.visit_expr(op.body))
            if isinstance(body, Call | If | TupleGetItem):
                body = self.builder_.emit(body)
            self.builder_.end_block()
            blocks = tuple(scope.blocks)
        if body is op.body and len(blocks) == len(op.blocks) and all(
            _same(a.bindings, b.bindings) for a, b in zip(blocks, op.blocks, strict=True)
        ):  # fmt: skip
            return op
        return SeqExpr(blocks, body)

    def visit_function_(self, op: Function) -> Node:
        """What a function becomes."""
        with self.builder_.writing(op) as scope:
            params = tuple(self.visit_var_def(p) for p in op.params)
            for p, new in zip(op.params, params, strict=True):
                scope.names.taken.add(new.name)
                if new is not p:
                    self._replaced[p] = new
            body = self.visit_expr(op.body)
        if body is op.body and _same(params, op.params):
            return op
        info = body.struct_info if body is not op.body else op.ret_struct_info
        return dataclasses.replace(op, params=params, body=body, ret_struct_info=info)

    # --- bindings -------------------------------------------------------------------------------------------------

    def visit_binding(self, binding: Binding) -> None:
        """Emit what a binding becomes."""
        if isinstance(binding, MatchCast):
            self.visit_match_cast_(binding)
        else:
            self.visit_var_binding_(binding)  # type: ignore[arg-type]

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Emit `var = what the value becomes`."""
        value = self.visit_expr(binding.value)
        value = self.builder_.normalize(value)
        var = self.visit_var_def(binding.var)
        if value is not binding.value and not same_info(value.struct_info, var.struct_info):
            var = dataclasses.replace(var, struct_info=value.struct_info)
        if var is not binding.var:
            self._replaced[binding.var] = var
        same = var is binding.var and value is binding.value
        self.builder_.append(binding if same else VarBinding(var, value))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Emit what a checked binding becomes."""
        value = self.builder_.normalize(self.visit_expr(binding.value))
        same = value is binding.value
        self.builder_.append(binding if same else MatchCast(binding.var, value, binding.struct_info))

    def visit_binding_block(self, block: BindingBlock) -> None:
        """Emit a block."""
        if isinstance(block, DataflowBlock):
            self.visit_dataflow_block_(block)
        else:
            self.visit_binding_block_(block)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """Emit a plain block."""
        self._block(block, False)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        """Emit a dataflow block."""
        self._block(block, True)

    def _block(self, block: BindingBlock, dataflow: bool) -> None:
        scope = self.builder_._scope
        self.builder_.end_block()
        scope.in_dataflow = dataflow
        for b in block.bindings:
            scope.names.taken.add(b.var.name)
        for b in block.bindings:
            self.visit_binding(b)
        self.builder_.end_block()
        scope.in_dataflow = False

    def visit_var_def(self, var: Var) -> Var:
        """What a variable becomes where it is bound."""
        return self.visit_dataflow_var_def_(var) if isinstance(var, DataflowVar) else self.visit_var_def_(var)

    def visit_var_def_(self, var: Var) -> Var:
        """What a variable becomes where it is bound."""
        return var

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Var:
        """What a dataflow variable becomes where it is bound."""
        return var

    # --- help -----------------------------------------------------------------------------------------------------

    def set_var_remap(self, var: Var, new: Expr) -> None:
        """Let `new` stand for a variable from now on."""
        self._replaced[var] = new

    def get_var_remap(self, var: Var) -> Expr:
        """What stands for a variable."""
        return self._replaced.get(var, var)

    def lookup_binding(self, var: Var) -> Expr | None:
        """What a variable is bound to."""
        return self.builder_.lookup_binding(var)

    def with_struct_info(self, var: Var, struct_info: StructInfo | None) -> Var:
        """A variable of that name with another annotation."""
        return var if same_info(var.struct_info, struct_info) else dataclasses.replace(var, struct_info=struct_info)


def _same(a: Sequence[object], b: Sequence[object]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
