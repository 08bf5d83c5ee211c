"""Functions that call registered Python functions between their loops (`te.extern` with `tir.call_packed`).

Kernels call no code from outside. Such a function is cut at its calls: what stands between them becomes kernels, and
calling the function runs kernels and Python functions in turn, on arrays that both see.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import CodegenError, InvalidTypeError
from autosched.ir.node import FrozenDict, preorder
from autosched.runtime import Module, NDArray
from autosched.runtime.ndarray import array as nd_array
from autosched.runtime.registry import get_global_func
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import Call, IntImm, StringImm, Var
from autosched.tir.function import make_root
from autosched.tir.stmt import Block, BlockRealize, BufferStore, Evaluate, SeqStmt, Stmt, seq

PACKED = "tvm_call_packed"


def calls_outside(func: PrimFunc) -> bool:
    """Whether a function calls registered Python functions."""
    return any(isinstance(x, Call) and x.op == PACKED for x in preorder(func.body))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A piece between two calls, and the buffers that it is called with."""

    name: str
    buffers: tuple[Buffer, ...]


Argument: TypeAlias = Buffer | BufferLoad | int | float | str


@dataclass(frozen=True, slots=True)
class Outside:
    """A call of a registered function: its name, and buffers or values."""

    name: str
    args: tuple[Argument, ...]


def cut(func: PrimFunc, name: str) -> tuple[dict[str, PrimFunc], list[Kernel | Outside]]:
    """(the kernels by name, the steps in order). Raises CodegenError for a call inside of a loop or condition."""
    body: Stmt = func.body
    if isinstance(body, BlockRealize) and not body.block.iter_vars and not _is_call(body):
        body = body.block.body
    kernels: dict[str, PrimFunc] = {}
    steps: list[Kernel | Outside] = []
    pending: list[Stmt] = []

    def finish() -> None:
        if pending:
            made = _piece(func, seq(*pending), f"{name}_part{len(kernels)}")
            kernels[f"{name}_part{len(kernels)}"] = made
            steps.append(Kernel(f"{name}_part{len(kernels) - 1}", made.buffers))
            pending.clear()

    for stmt in body.seq if isinstance(body, SeqStmt) else (body,):
        if _is_call(stmt):
            finish()
            steps.append(_outside(stmt, func))
        elif any(isinstance(x, Call) and x.op == PACKED for x in preorder(stmt)):
            raise CodegenError(
                f"'{name}' calls a registered function inside of a loop or condition",
                hint="give the call a te.extern of its own",
            )
        else:
            pending.append(stmt)
    finish()
    return kernels, steps


def _inside(stmt: Stmt) -> Stmt:
    while isinstance(stmt, BlockRealize) and not stmt.block.iter_vars and not stmt.block.alloc_buffers:
        stmt = stmt.block.body
    return stmt


def _is_call(stmt: Stmt) -> bool:
    inner = _inside(stmt)
    return isinstance(inner, Evaluate) and isinstance(inner.value, Call) and inner.value.op == PACKED


def _outside(stmt: Stmt, func: PrimFunc) -> Outside:
    inner = _inside(stmt)
    assert isinstance(inner, Evaluate) and isinstance(inner.value, Call)
    name, *args = inner.value.args
    assert isinstance(name, StringImm)
    return Outside(name.value, tuple(_argument(a) for a in args))


def _argument(a: E.PrimExpr) -> Argument:
    if isinstance(a, Call) and a.args and isinstance(a.args[0], BufferData):
        return a.args[0].buffer
    if isinstance(a, Call) and a.op == "tvm_access_ptr" and isinstance(a.args[1], BufferData):
        return a.args[1].buffer
    if isinstance(a, BufferData):
        return a.buffer
    if isinstance(a, IntImm | E.FloatImm | StringImm):
        return bool(a.value) if a.dtype == "bool" else a.value
    if isinstance(a, BufferLoad) and not a.indices:
        return a
    raise CodegenError(f"a registered function cannot be called with '{a}'", hint="buffers and constants can be passed")


def _piece(func: PrimFunc, body: Stmt, name: str) -> PrimFunc:
    """A PrimFunc of some of the statements; every buffer that they share with others is a parameter."""
    nodes = list(preorder(body))
    written = {x.buffer for x in nodes if isinstance(x, BufferStore)}
    used = {x.buffer for x in nodes if isinstance(x, BufferLoad)} | written
    own = {b for x in nodes if isinstance(x, Block) for b in x.alloc_buffers}
    known = [*func.buffers, *(b for x in preorder(func.body) if isinstance(x, Block) for b in x.alloc_buffers)]
    order = [b for b in dict.fromkeys(known) if b in used - own]
    order = [b for b in order if b not in written] + [b for b in order if b in written]
    params = tuple(Var(f"var_{b.name}", "handle") for b in order)
    mapped = FrozenDict(dict(zip(params, order, strict=True)))
    attrs = FrozenDict({**{k: v for k, v in func.attrs.items() if k != "global_symbol"}, "global_symbol": name})
    return dataclasses.replace(func, params=params, buffer_map=mapped, body=make_root(body), attrs=attrs)


class StepFunction:
    """Kernels and registered functions in turn; called like `runtime.Function`."""

    def __init__(self, name: str, func: PrimFunc, steps: Sequence[Kernel | Outside], module: Module | None):
        self.name, self.func, self._steps, self._module = name, func, tuple(steps), module
        self._own = {
            b for s in steps for b in (s.buffers if isinstance(s, Kernel) else s.args) if isinstance(b, Buffer)
        } - set(func.buffers)

    @property
    def source(self) -> str:
        """The function as text."""
        return self.func.script()

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        parts = [f"{b.name}: Tensor({list(b.const_shape())}, {b.dtype})" for b in self.func.buffers]
        return f"{self.name}({', '.join(parts)})"

    def __call__(self, *args: object) -> None:
        """Run on arrays in the order of the signature."""
        self.run(args, 1)

    def seconds(self, args: Sequence[object], number: int) -> float:
        """Run and give the seconds that all runs took, those of the Python functions included."""
        start = time.perf_counter()
        self.run(args, number)
        return time.perf_counter() - start

    def run(self, args: Sequence[object], number: int) -> None:
        """Run `number` times. Raises TypeError for a wrong number of arguments, ValueError for wrong shapes."""
        if len(args) != len(self.func.buffers):
            raise InvalidTypeError(f"{len(args)} arguments instead of {len(self.func.buffers)}", where=self.signature)
        arrays: dict[Buffer, NDArray | np.ndarray] = {}
        for index, (buffer, arg) in enumerate(zip(self.func.buffers, args, strict=True)):
            arrays[buffer] = self._array(index, buffer, arg)
        for buffer in self._own:
            arrays[buffer] = nd_array(np.zeros(buffer.const_shape(), buffer.dtype))
        for _ in range(number):
            for step in self._steps:
                self._step(step, arrays)

    def _array(self, index: int, buffer: Buffer, arg: Any) -> NDArray | np.ndarray:
        if not isinstance(arg, NDArray | np.ndarray) and not hasattr(arg, "__dlpack__"):
            raise InvalidTypeError(
                f"argument {index} '{buffer.name}' is a {type(arg).__name__}, no array", where=self.signature
            )
        if tuple(arg.shape) != buffer.const_shape() or str(arg.dtype).removeprefix("torch.") != buffer.dtype:
            raise InvalidTypeError(
                f"argument {index} '{buffer.name}' is {arg.dtype}{list(arg.shape)}", where=self.signature
            )
        array: NDArray | np.ndarray = arg
        return array

    def _step(self, step: Kernel | Outside, arrays: Mapping[Buffer, NDArray | np.ndarray]) -> None:
        if isinstance(step, Kernel):
            assert self._module is not None
            self._module.get_function(step.name)(*(arrays[b] for b in step.buffers))
            return
        function = get_global_func(step.name)
        assert function is not None
        function(*(self._value(a, arrays) for a in step.args))

    def _value(self, arg: Argument, arrays: Mapping[Buffer, NDArray | np.ndarray]) -> object:
        if isinstance(arg, BufferLoad):
            found = arrays[arg.buffer]
            return (found.numpy() if hasattr(found, "numpy") else found).item()
        return arrays[arg] if isinstance(arg, Buffer) else arg

    def __repr__(self) -> str:
        return f"<autosched.driver.StepFunction {self.signature}>"


def build_steps(name: str, func: PrimFunc, build: Callable[[dict[str, PrimFunc]], Module]) -> StepFunction:
    """The function that runs the pieces. Raises InvalidValueError where a registered function is missing."""
    kernels, steps = cut(func, name)
    for step in steps:
        if isinstance(step, Outside):
            get_global_func(step.name)
    return StepFunction(name, func, steps, build(kernels) if kernels else None)
