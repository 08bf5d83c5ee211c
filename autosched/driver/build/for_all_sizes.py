"""PrimFuncs with symbolic sizes, compiled once for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from autosched.driver.build.outside_calls import calls_outside
from autosched.errors import CodegenError, ScheduleError
from autosched.ir import IRModule, preorder
from autosched.relax import BlockBuilder, TensorStructInfo
from autosched.relax import Var as RelaxVar
from autosched.relax.op.call import call_tir
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.sized_module import FUNCTION
from autosched.tir import Block, BlockRealize, BufferLoad, BufferStore, PrimFunc
from autosched.tir.buffer import Buffer
from autosched.tir.function import size_params
from autosched.tir.separable import NotSeparableError


def compile_for_all_sizes(
    name: str, func: PrimFunc, build: Callable[[IRModule], DynamicExecutable]
) -> DynamicExecutable:
    """A function as a model of one kernel, which `build` compiles. Raises NotSeparableError, which says why not."""
    inputs, outputs = _roles(func)
    if len({b.name for b in func.buffers}) < len(func.buffers):
        raise NotSeparableError("two of the function's buffers have one name")
    builder = BlockBuilder()
    variables = [RelaxVar(b.name, TensorStructInfo(b.shape, b.dtype)) for b in inputs]
    bare = _without_size_params(func)
    called = builder.add_func(bare, name if name != "main" else "main_kernel")
    with builder.function("main", variables):
        with builder.dataflow():
            result = call_tir(called, variables, [TensorStructInfo(b.shape, b.dtype) for b in outputs])
            made = builder.emit_output(result)
        builder.emit_func_output(made)
    try:
        executable = build(builder.get())
    except (CodegenError, ScheduleError) as error:
        raise NotSeparableError(error.message) from None
    form = executable.form
    places = dict(zip((b.name for b in (*inputs, *outputs)), (*form.inputs, *form.outputs), strict=True))
    args: list[object] = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        args.append(param.name if buffer is None else [places[buffer.name], buffer.name])
    executable.manifest[FUNCTION] = {"name": name, "args": args}
    return executable


def _roles(func: PrimFunc) -> tuple[list[Buffer], list[Buffer]]:
    """(what a function reads, what it writes). Raises NotSeparableError where its form is another one."""
    if not isinstance(func.body, BlockRealize) or calls_outside(func):
        raise NotSeparableError("the function is more than blocks of loops")
    if any(p not in func.buffer_map for p in set(func.params) - set(size_params(func))):
        raise NotSeparableError("the function takes numbers")
    written = {x.buffer for x in preorder(func.body) if isinstance(x, BufferStore)}
    inputs, outputs = ([b for b in func.buffers if (b in written) == is_output] for is_output in (False, True))
    if not inputs or not outputs or func.buffers != (*inputs, *outputs):
        raise NotSeparableError("the function's outputs are not its last arguments")
    begun: set[Buffer] = set()
    for block in (x for x in preorder(func.body) if isinstance(x, Block) and x is not func.body.block):
        own = {x.buffer for x in preorder(block.body) if isinstance(x, BufferStore)}
        reads = {x.buffer for x in preorder(block.body) if isinstance(x, BufferLoad)}
        if block.init is None and reads & set(outputs) - begun:
            raise NotSeparableError("the function changes an argument in place")
        begun |= own
    return inputs, outputs


def _without_size_params(func: PrimFunc) -> PrimFunc:
    given = set(size_params(func))
    return dataclasses.replace(func, params=tuple(p for p in func.params if p not in given)) if given else func
