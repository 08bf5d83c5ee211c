"""Changes of a dataflow block, one binding at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.relax.copying import rename_variables
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Var,
    VarBinding,
)
from autosched.relax.names import UniqueNames
from autosched.relax.rewrite import bindings_of, used_vars
from autosched.relax.transform.dead_code import remove_unused_bindings


class DataflowBlockRewrite:
    """A dataflow block of a function that is being changed: bindings are added, replaced and removed.

    rewrite = DataflowBlockRewrite(block, function)
    rewrite.replace_all_uses(old, new)
    rewrite.remove_unused(old)
    function = rewrite.mutated_root_fn()
    """

    def __init__(self, dfb: DataflowBlock, root_fn: Function):
        places = [i for i, block in enumerate(root_fn.body.blocks) if block is dfb]
        if not places:
            raise InvalidValueError("DataflowBlockRewrite: the block is none of the function's")
        self._place, self._function, self._original = places[0], root_fn, root_fn
        self._names = UniqueNames(b.var.name for b in bindings_of(root_fn.body))

    def add(self, expr: Binding | Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Add a binding at the end of the block, or one of an expression to a new variable."""
        if not isinstance(expr, Binding):
            kind = DataflowVar if is_dfvar else Var
            expr = VarBinding(kind(self._names(name or ("lv" if is_dfvar else "gv")), expr.struct_info), expr)
        self._set((*self._block.bindings, expr))

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Let everything that reads `old_var` read `new_var`, which is bound in front of all that does."""
        old = self._block.bindings
        order = [b.var for b in old]
        renamed = rename_variables(self._function, {old_var: new_var})
        blocks = list(renamed.body.blocks)
        pairs = zip(old, blocks[self._place].bindings, strict=True)
        bindings = [b if b.var is old_var else new for b, new in pairs]  # rename_variables renames what is bound, too
        if new_var in order:  # a reader of the old variable may stand in front of the new one
            first = next((i for i, b in enumerate(bindings) if new_var in set(used_vars(b.value))), len(bindings))
            moved = order.index(new_var)
            if moved > first:
                bindings.insert(first, bindings.pop(moved))
        blocks[self._place] = dataclasses.replace(blocks[self._place], bindings=tuple(bindings))
        self._function = dataclasses.replace(renamed, body=SeqExpr(tuple(blocks), renamed.body.body))

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Remove the binding of a variable. Raises InvalidValueError where something reads it.

        allow_undef  the variable may have no binding here
        """
        found = [b for b in self._block.bindings if b.var is var]
        if not found and not allow_undef:
            raise InvalidValueError(f"remove_unused: '{var.name}' is not bound in the block")
        if any(v is var for b in bindings_of(self._function.body) for v in used_vars(b.value)) or any(
            v is var for v in used_vars(self._function.body.body)
        ):
            raise InvalidValueError(f"remove_unused: '{var.name}' is used")
        self._set(tuple(b for b in self._block.bindings if b.var is not var))

    def remove_all_unused(self) -> None:
        """Remove all bindings that nothing reads."""
        left = {b.var for b in bindings_of(remove_unused_bindings(self._function).body)}
        self._set(tuple(b for b in self._block.bindings if b.var in left))

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is now."""
        return self._block

    def mutated_root_fn(self) -> Function:
        """The function as it is now."""
        return self._function

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """The module with the function as it is now in the place of the one that the rewrite began with."""
        functions = {gv: self._function if f is self._original else f for gv, f in irmodule.functions.items()}
        return irmodule.with_functions(functions)

    @property
    def _block(self) -> DataflowBlock:
        block = self._function.body.blocks[self._place]
        assert isinstance(block, DataflowBlock), "the block stays what it is"
        return block

    def _set(self, bindings: Sequence[Binding]) -> None:
        blocks: list[BindingBlock] = list(self._function.body.blocks)
        blocks[self._place] = DataflowBlock(tuple(bindings))
        self._function = dataclasses.replace(self._function, body=SeqExpr(tuple(blocks), self._function.body.body))
