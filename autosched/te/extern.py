"""`te.extern`: tensors that a statement of the user's fills, or a function from outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import IGNORED, Attrs, FrozenDict
from autosched.te.build import Shape
from autosched.te.tensor import OpaqueOperation, Tensor
from autosched.tir.buffer import Buffer, decl_buffer, extents
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.tir.function import PrimFunc
from autosched.tir.stmt import BlockRealize, Evaluate, Stmt


@dataclass(frozen=True, eq=False)
class ExternOp(OpaqueOperation):
    """Tensors written by `body`, in which buffers stand for inputs and outputs."""

    inputs: tuple[Tensor, ...] = ()
    input_placeholders: tuple[Buffer, ...] = ()
    output_placeholders: tuple[Buffer, ...] = ()
    body: Stmt | None = None
    tag: str = ""
    attrs: Attrs = field(default_factory=FrozenDict)
    _cache: dict[int, tuple[Tensor, ...]] = field(default_factory=dict, repr=False, metadata=IGNORED)

    @property
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return self.inputs

    @property
    def _outputs(self) -> tuple[Tensor, ...]:
        if 0 not in self._cache:
            self._cache[0] = tuple(Tensor(b.shape, b.dtype, self, i) for i, b in enumerate(self.output_placeholders))
        return self._cache[0]

    def with_inputs(self, tensors: Mapping[Tensor, Tensor]) -> ExternOp:
        """The operation on other tensors in place of some."""
        return dataclasses.replace(self, inputs=tuple(tensors.get(t, t) for t in self.inputs), _cache={})


Buffers = Buffer | Sequence[Buffer] | None
Dtypes = str | list[str] | tuple[str, ...] | None


@overload
def extern(
    shape: Shape, inputs: Sequence[Tensor] | Tensor, fcompute: Callable[..., object], name: str = "extern",
    dtype: Dtypes = None, in_buffers: Buffers = None, out_buffers: Buffers = None, tag: str = "",
    attrs: Attrs | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def extern(
    shape: Sequence[Sequence[ExprLike]], inputs: Sequence[Tensor] | Tensor, fcompute: Callable[..., object],
    name: str = "extern", dtype: Dtypes = None, in_buffers: Buffers = None, out_buffers: Buffers = None,
    tag: str = "", attrs: Attrs | None = None,
) -> list[Tensor]: ...  # fmt: skip
def extern(
    shape: object, inputs: Sequence[Tensor] | Tensor, fcompute: Callable[..., object], name: str = "extern",
    dtype: Dtypes = None, in_buffers: Buffers = None, out_buffers: Buffers = None, tag: str = "",
    attrs: Attrs | None = None,
) -> Tensor | list[Tensor]:  # fmt: skip
    """Tensors that a statement fills, or a call of a registered function.

    shape     of the result; a list of shapes makes several results
    fcompute  (input buffers, output buffers) -> a statement (of `tir.ir_builder`) or a call (`tir.call_packed`)
    dtype     of the results; where it is not given, that of the inputs
    Raises    TypeError and ValueError for arguments of another kind
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise InvalidTypeError(f"extern '{name}': inputs[{i}] is a {type(t).__name__}, expected a te tensor")
    listed = shape if isinstance(shape, list | tuple) and shape and isinstance(shape[0], list | tuple) else None
    shapes = [extents(s, f"extern '{name}'") for s in ((shape,) if listed is None else listed)]
    known = {t.dtype for t in given}
    if dtype is None:
        if len(known) != 1:
            raise InvalidValueError(
                f"extern '{name}': dtype is needed, inputs have {', '.join(sorted(known)) or 'none'}"
            )
        dtype = given[0].dtype
    dtypes = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(shapes)
    if len(dtypes) != len(shapes):
        raise InvalidValueError(f"extern '{name}': {len(dtypes)} dtypes for {len(shapes)} outputs")
    ins = _buffers(in_buffers) or [decl_buffer(t.shape, t.dtype, t.op.name) for t in given]
    outs = _buffers(out_buffers) or [decl_buffer(s, d, name) for s, d in zip(shapes, dtypes, strict=True)]
    if len(ins) != len(given) or len(outs) != len(shapes):
        raise InvalidValueError(f"extern '{name}': as many buffers as tensors are needed")
    if not callable(fcompute):
        raise InvalidTypeError(f"extern '{name}': fcompute is a {type(fcompute).__name__}, expected a function")
    body = fcompute(ins, outs)
    if isinstance(body, PrimExpr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise InvalidTypeError(
            f"extern '{name}': fcompute gave a {type(body).__name__}, expected a statement or a call"
        )
    op = ExternOp(name, tuple(given), tuple(ins), tuple(outs), body, tag, FrozenDict(attrs or {}))
    results = [op.output(i) for i in range(op.num_outputs)]
    return results[0] if listed is None else results


def _buffers(given: Buffers) -> list[Buffer]:
    return [] if given is None else list(given) if isinstance(given, Sequence) else [given]


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: str) -> list[Tensor] | Tensor:
    """The outputs of a PrimFunc for these inputs: its first parameters, the rest are what it writes.

    Raises TypeError and ValueError where they do not fit
    """
    if not isinstance(primfunc, PrimFunc):
        raise InvalidTypeError(
            f"extern_primfunc: argument 'primfunc' is a {type(primfunc).__name__}, expected a PrimFunc"
        )
    buffers = primfunc.buffers
    ins, outs = buffers[: len(input_tensors)], buffers[len(input_tensors) :]
    if not outs:
        raise InvalidValueError(
            f"extern_primfunc: {len(input_tensors)} inputs, the function has {len(buffers)} buffers"
        )
    for t, b in zip(input_tensors, ins, strict=True):
        if t.dtype != b.dtype or len(t.shape) != b.ndim:
            raise InvalidValueError(f"extern_primfunc: tensor '{t.name}' does not fit buffer '{b.name}'")
    body: Stmt = primfunc.body
    if isinstance(body, BlockRealize) and not body.block.alloc_buffers:
        body = body.block.body
    op = ExternOp(
        kwargs.get("name", str(primfunc.attrs.get("global_symbol", "extern_primfunc"))), tuple(input_tensors), ins,
        outs, body, attrs=FrozenDict({}),
    )  # fmt: skip
    results = [op.output(i) for i in range(op.num_outputs)]
    return results if len(results) > 1 else results[0]
