"""Reverse-mode differentiation of a function."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidTypeError, InvalidValueError, UsageError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Constant, DataflowBlock, Expr, Function, ShapeExpr, Tuple, TupleGetItem, Var
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.relax.transform.gradient_rules import RULES


def _target(function: Function, index: int) -> Var:
    """The scalar that is differentiated. Raises ValueError where it is none."""
    result = function.body.body
    fields = result.fields if isinstance(result, Tuple) else (result,)
    if not 0 <= index < len(fields):
        raise InvalidValueError(f"target_index {index} of {len(fields)} results")
    target = fields[index]
    info = target.struct_info
    if not isinstance(target, Var) or not isinstance(info, TensorStructInfo) or info.ndim != 0:
        raise InvalidValueError(
            f"the differentiated result must be a scalar tensor, it is {info!r}", hint="end the function with a loss"
        )
    return target


def _check(function: Function) -> None:
    blocks = function.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], DataflowBlock):
        raise UsageError("Gradient takes a function of one dataflow block")


def fields_of(x: Expr) -> tuple[Expr, ...]:
    assert isinstance(x, Tuple), "the gradient of a tuple is a tuple"
    return x.fields


class _Adjoint:
    """Gradients by variable, while bindings are visited from the last to the first."""

    def __init__(self, builder: BlockBuilder):
        self.builder = builder
        self.gradients: dict[Var, Expr] = {}

    def emit(self, value: Expr) -> Expr:
        return value if isinstance(value, Var | Constant | Tuple) else self.builder.emit(value)

    def add(self, x: object, gradient: Expr | None) -> None:
        """Add to what is known of an operand; a tuple's fields one by one."""
        if gradient is None:
            return
        if isinstance(x, Tuple):
            for f, g in zip(x.fields, fields_of(gradient), strict=True):
                self.add(f, g)
        elif isinstance(x, Var):
            value = gradient if isinstance(gradient, Tuple) else self.emit(gradient)
            known = self.gradients.get(x)
            self.gradients[x] = value if known is None else self.sum(known, value)

    def sum(self, a: Expr, b: Expr) -> Expr:
        if isinstance(a, Tuple):
            return Tuple(tuple(self.sum(p, q) for p, q in zip(a.fields, fields_of(b), strict=True)))
        return self.emit(op.add(a, b))

    def visit(self, var: Var, value: Expr) -> None:
        """Hand the gradient of a variable on to what it was computed from."""
        gradient = self.gradients.get(var)
        if gradient is None:
            return
        match value:
            case Var():
                self.add(value, gradient)
            case Tuple():
                self.add(value, gradient)
            case TupleGetItem():
                fields = value.tuple_value.struct_info.fields  # type: ignore[union-attr]
                zeros = [
                    gradient if i == value.index else self.emit(op.zeros(ShapeExpr(f.static_shape), f.dtype))
                    for i, f in enumerate(fields)
                ]
                self.add(value.tuple_value, Tuple(tuple(zeros)))
            case Call():
                name = value.op_name
                if name not in RULES:
                    raise UsageError(f"no gradient is known for {name or 'a call of a function'}", where=var.name)
                for a, g in zip(value.args, RULES[name](value, var, gradient, self.emit), strict=False):
                    self.add(a, g)


def differentiate(function: Function, name: str, wanted: Sequence[Var], index: int) -> Function:
    """The function that returns (what `function` returns, the gradients of one of its scalars)."""
    _check(function)
    target = _target(function, index)
    builder = BlockBuilder()
    params = [Var(p.name, p.struct_info) for p in function.params]
    rewriter = Rewriter()
    rewriter.replaced = dict(zip(function.params, params, strict=True))
    with builder.function(name, params):
        with builder.dataflow():
            renamed: list[tuple[Var, Expr]] = []
            for b in function.bindings():
                value = rewriter.substitute(b.value)
                new = builder.emit(value, b.var.name)
                rewriter.replaced[b.var] = new
                renamed.append((new, value))
            adjoint = _Adjoint(builder)
            first = rewriter.substitute(target)
            adjoint.add(first, op.ones(ShapeExpr(()), target.struct_info.dtype))  # type: ignore[union-attr]
            for var, value in reversed(renamed):
                adjoint.visit(var, value)
            grads = []
            for w in wanted:
                own = rewriter.replaced[w]
                info = w.struct_info
                assert isinstance(info, TensorStructInfo), "require_grads are tensors"
                zero = op.zeros(ShapeExpr(info.static_shape), info.dtype)
                grads.append(builder.emit_output(adjoint.gradients.get(own, zero), f"{w.name}_adjoint_out"))  # type: ignore[call-overload]
            original = rewriter.substitute(function.body.body)
            fields = original.fields if isinstance(original, Tuple) else (original,)
            shown = [builder.emit_output(f) for f in fields]
        whole = Tuple(tuple(shown)) if isinstance(original, Tuple) else shown[0]
        builder.emit_func_output(Tuple((whole, Tuple(tuple(grads)))))
    return remove_unused_bindings(builder.get()[name])


def Gradient(  # noqa: N802
    func_name: str, require_grads: object = None, target_index: int = 0
) -> Pass:
    """Add `<func_name>_adjoint`, which returns (what the function returns, the gradients of one scalar result).

    require_grads  parameters, by name or Var; None for all of floating point
    target_index   which result is differentiated, where there are several
    Raises         ValueError for an unknown function or parameter, or a result that is no scalar; UsageError for an
                   operator without rule
    """

    def run(module: IRModule) -> IRModule:
        function = module[func_name]
        if not isinstance(function, Function):
            raise InvalidTypeError(f"'{func_name}' is no relax function")
        wanted = _wanted(function, require_grads)
        name = f"{func_name}_adjoint"
        result = module.clone()
        result[name] = differentiate(function, name, wanted, target_index)
        return result

    return graph_pass("Gradient")(run)


def _wanted(function: Function, require_grads: object) -> list[Var]:
    if require_grads is None:
        return [
            p for p in function.params
            if isinstance(p.struct_info, TensorStructInfo) and p.struct_info.dtype.startswith("float")
        ]  # fmt: skip
    keys = require_grads if isinstance(require_grads, list | tuple) else [require_grads]
    found = []
    for key in keys:
        match = [p for p in function.params if p is key or p.name == key]
        if not match:
            raise InvalidValueError(f"Gradient: no parameter '{getattr(key, 'name', key)}' to differentiate by")
        found.append(match[0])
    return found
