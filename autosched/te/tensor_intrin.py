"""`te.decl_tensor_intrin`: a computation and what replaces it, for `stage.tensorize`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import Attrs, FrozenDict
from autosched.te.prim_func import create_prim_func
from autosched.te.tensor import ComputeOp, Operation, Tensor
from autosched.tir.buffer import Buffer, decl_buffer
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import rewrite
from autosched.tir.stmt import Block, Evaluate, Stmt
from autosched.tir.tensor_intrin import TensorIntrin as LoopIntrin


class TensorIntrin:
    """`op` says what is computed; `body` computes it, or `reset` and `update` in two steps, on `buffers`."""

    def __init__(
        self, name: str, op: ComputeOp, buffers: tuple[Buffer, ...], body: Stmt | None, reset: Stmt | None,
        update: Stmt | None,
    ):  # fmt: skip
        self.name, self.op, self.buffers, self.body, self.reset, self.update = name, op, buffers, body, reset, update

    def loop_intrin(self, *, whole: bool) -> LoopIntrin:
        """The intrinsic of the loop level: with its start values, or one that continues a sum."""
        outputs = [self.op.output(i) for i in range(self.op.num_outputs)]
        desc = create_prim_func([*self.op.input_tensors, *outputs])
        stmt = self.body if whole else self.update
        if stmt is None:
            raise InvalidValueError(
                f"tensorize: intrinsic '{self.name}' " + ("computes no whole result" if whole else "continues no sum"),
                hint="let the intrinsic's function return (body, reset, update)",
            )
        if not whole:
            desc = desc.with_body(rewrite(desc.body, _without_init))
        params = tuple(Var(b.name, "handle") for b in self.buffers)
        mapped = FrozenDict(dict(zip(params, self.buffers, strict=True)))
        return LoopIntrin(desc, PrimFunc(params, mapped, make_root(stmt)))

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


def _without_init(x: object) -> object:
    return dataclasses.replace(x, init=None) if isinstance(x, Block) and x.init is not None else x


def decl_tensor_intrin(
    op: Operation, fcompute: Callable[..., object], name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None, scalar_params: object = None,
    default_buffer_params: Attrs | None = None,
) -> TensorIntrin:  # fmt: skip
    """Declare what `stage.tensorize` replaces and by what.

    op        the operation of the computation's output
    fcompute  (input buffers, output buffers) -> a statement, or (body, reset, update)
    binds     the buffers of tensors, with their strides; others get plain ones
    Raises    TypeError and ValueError for arguments of another kind
    """
    if isinstance(op, Tensor):
        op = op.op
    if not isinstance(op, ComputeOp):
        raise InvalidTypeError(
            f"decl_tensor_intrin: argument 'op' is a {type(op).__name__}, expected a compute's operation"
        )
    if scalar_params:
        raise InvalidValueError(
            "decl_tensor_intrin: scalar parameters are not available", hint="use a tensor of shape ()"
        )
    known = dict(binds or {})
    words = dict(default_buffer_params or {})

    def buffer(t: Tensor) -> Buffer:
        found = known.get(t) or decl_buffer(t.shape, t.dtype, t.op.name, **words)
        if not isinstance(found, Buffer):
            raise InvalidTypeError(
                f"decl_tensor_intrin: binds['{t.name}'] is a {type(found).__name__}, expected a Buffer"
            )
        if len(found.shape) != t.ndim or found.dtype != t.dtype:
            raise InvalidValueError(f"decl_tensor_intrin: buffer '{found.name}' does not fit tensor '{t.name}'")
        return found

    ins = [buffer(t) for t in op.input_tensors]
    outs = [buffer(op.output(i)) for i in range(op.num_outputs)]
    result = fcompute(ins, outs)
    parts = list(result) if isinstance(result, list | tuple) else [result]
    parts += [None] * (3 - len(parts))
    stmts = [_stmt(p) for p in parts[:3]]
    return TensorIntrin(name, op, (*ins, *outs), *stmts)


def _stmt(x: object) -> Stmt | None:
    if x is None or isinstance(x, Stmt):
        return x
    if isinstance(x, PrimExpr):
        return Evaluate(x)
    raise InvalidTypeError(f"decl_tensor_intrin: fcompute gave a {type(x).__name__}, expected statements")
