"""A loss behind a function's results."""

from __future__ import annotations

from autosched.errors import InvalidTypeError, InvalidValueError, UsageError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import DataflowBlock, Expr, Function, Tuple, Var
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import same_info


def _of_one_block(function: object, what: str) -> Function:
    if not isinstance(function, Function):
        raise InvalidTypeError(f"AppendLoss: the {what} is a {type(function).__name__}, expected a relax function")
    blocks = function.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], DataflowBlock):
        raise UsageError(f"AppendLoss: the {what} must have exactly one dataflow block")
    return function


def _appended(backbone: Function, loss: Function, count: int, name: str) -> Function:
    result = backbone.body.body
    results = result.fields if isinstance(result, Tuple) else (result,)
    if len(results) < count:
        raise InvalidValueError(f"AppendLoss: num_backbone_outputs is {count}; the function has {len(results)} results")
    if len(loss.params) < count:
        raise InvalidValueError(f"AppendLoss: the loss takes {len(loss.params)} values, of {count} results")
    for i, (given, taken) in enumerate(zip(results[:count], loss.params[:count], strict=True)):
        if not same_info(given.struct_info, taken.struct_info):
            raise InvalidValueError(
                f"AppendLoss: result {i} is {given.struct_info!r}; the loss takes {taken.struct_info!r}"
            )
    builder, rewriter = BlockBuilder(), Rewriter()
    params = [Var(p.name, p.struct_info) for p in (*backbone.params, *loss.params[count:])]
    rewriter.replaced = dict(zip((*backbone.params, *loss.params[count:]), params, strict=True))

    def inlined(function: Function, shown: Expr) -> None:
        """All bindings; the variables of `shown` are seen outside of the block."""
        for b in function.bindings():
            value = rewriter.substitute(b.value)
            is_shown = any(b.var is v for v in (shown.fields if isinstance(shown, Tuple) else (shown,)))
            rewriter.replaced[b.var] = (builder.emit_output if is_shown else builder.emit)(value, b.var.name)

    with builder.function(name, params):
        with builder.dataflow():
            inlined(backbone, Tuple(results[count:]))
            for p, r in zip(loss.params[:count], results[:count], strict=True):
                rewriter.replaced[p] = rewriter.substitute(r)
            inlined(loss, loss.body.body)
            states = [rewriter.substitute(r) for r in results[count:]]
            value = rewriter.substitute(loss.body.body)
        builder.emit_func_output(Tuple((value, *states)) if states else value)
    made = builder.get()[name]
    assert isinstance(made, Function), "the builder made a function"
    return made


def AppendLoss(  # noqa: N802
    func_name: str, loss_function: Function, num_backbone_outputs: int = 1, new_func_name: str | None = None
) -> Pass:
    """Add `<func_name>_loss`, which returns the loss and the results behind the first `num_backbone_outputs`.

    loss_function  takes those results and then the targets, which become parameters behind the function's own
    Raises         ValueError where its parameters have other types than the results; UsageError unless both functions
                   are of one dataflow block
    """

    def run(module: IRModule) -> IRModule:
        backbone = _of_one_block(module[func_name], f"function '{func_name}'")
        name = new_func_name or f"{func_name}_loss"
        result = module.clone()
        result[name] = _appended(backbone, _of_one_block(loss_function, "loss"), num_backbone_outputs, name)
        return result

    return graph_pass("AppendLoss")(run)
