"""TVM's decorators of passes that users write over functions and dataflow blocks."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from autosched.errors import InvalidTypeError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassContext, PassDecorator, function_kind
from autosched.relax.expr import DataflowBlock, Function


def function_pass(
    pass_func: object = None, opt_level: int | None = None, name: str | None = None,
    required: Sequence[str] | None = None, traceable: bool | None = None,
) -> PassDecorator:  # fmt: skip
    """A function `(func, mod, ctx) -> func`, or a class with `transform_function`, becomes a pass over graph functions.

    A decorated class is called with its own arguments and gives a pass.
    """
    return function_kind(Function, "transform_function", pass_func, opt_level, name, required)


def dataflowblock_pass(
    pass_func: Callable[..., object] | None = None, opt_level: int | None = None, name: str | None = None,
    required: Sequence[str] | None = None, traceable: bool | None = None,
) -> PassDecorator:  # fmt: skip
    """A function `(block, mod, ctx) -> block`, or a class with `transform_dataflowblock`, becomes a pass.

    A decorated class is called with its own arguments and gives a pass.
    """

    def over_blocks(change: Callable[..., DataflowBlock]) -> Callable[..., Function]:
        def run(func: Function, mod: IRModule, ctx: PassContext) -> Function:
            blocks = []
            for block in func.body.blocks:
                new = change(block, mod, ctx) if isinstance(block, DataflowBlock) else block
                if not isinstance(new, type(block)):
                    raise InvalidTypeError(f"the pass made a {type(new).__name__} of a dataflow block")
                blocks.append(new)
            if all(a is b for a, b in zip(blocks, func.body.blocks, strict=True)):
                return func
            return dataclasses.replace(func, body=dataclasses.replace(func.body, blocks=tuple(blocks)))

        return run

    def decorate(subject: Any) -> Pass | Callable[..., Pass]:
        made_name = name or subject.__name__
        if not inspect.isclass(subject):
            whole: Pass = function_pass(over_blocks(subject), opt_level, made_name, required)
            return whole
        if not hasattr(subject, "transform_dataflowblock"):
            raise InvalidTypeError(f"class {subject.__name__} has no method transform_dataflowblock")

        def make(*args: object, **kwargs: object) -> Pass:
            instance: Any = subject(*args, **kwargs)
            change = over_blocks(instance.transform_dataflowblock)
            made: Pass = function_pass(change, opt_level, made_name, required)
            return made

        make.__name__, make.__doc__ = subject.__name__, subject.__doc__
        return make

    return decorate if pass_func is None else decorate(pass_func)
