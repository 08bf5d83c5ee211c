"""What a method changes besides its result: states that it takes as inputs and gives back behind its results."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidTypeError, UsageError
from autosched.frontend.nn.core import Effect, Tensor, get_default_dtype
from autosched.relax import op as R
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Expr, PrimValue, StringImm, Var
from autosched.relax.struct_info import ObjectStructInfo, ShapeExpr, TensorStructInfo
from autosched.tir.expr import FloatImm, IntImm, PrimExpr

_writing: list[IOEffect] = []  # the effect that `print_` of the method being written uses, innermost last


class IOEffect(Effect):
    """The order of what is printed."""

    def __init__(self) -> None:
        self.effect: Any = None

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        return [builder.emit(R.null_value(), f"{name_hint}.io")]

    def create(self, name_hint: str) -> list[Var]:
        return [Var(f"{name_hint}.io", ObjectStructInfo())]

    def set_state(self, state_vars: list[Any]) -> None:
        (self.effect,) = state_vars

    def finalize(self) -> list[Any]:
        effect, self.effect = self.effect, None
        return [effect]


class KVCache(Effect):
    """Rows that decoding appends to.

    init_seq_len  rows that memory is reserved for at first
    unit_shape    the shape of a row: [heads, head_dim]
    """

    def __init__(self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None):
        self.init_seq_len, self.unit_shape = init_seq_len, [int(d) for d in unit_shape]
        self.dtype = dtype or get_default_dtype()
        self.cache: Any = None

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        shape = ShapeExpr((self.init_seq_len, *self.unit_shape))
        call = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_create", builder.emit(R.zeros(shape, self.dtype)), shape,
            PrimValue(IntImm(0, "int64")), sinfo_args=ObjectStructInfo(),
        )  # fmt: skip
        return [builder.emit(call, name_hint)]

    def create(self, name_hint: str) -> list[Var]:
        return [Var(name_hint, ObjectStructInfo())]

    def set_state(self, state_vars: list[Any]) -> None:
        (self.cache,) = state_vars

    def finalize(self) -> list[Any]:
        cache, self.cache = self.cache, None
        return [cache]

    def to(self, dtype: str | None = None) -> None:
        self.dtype = dtype or self.dtype

    def view(self, seq_len: int | PrimExpr) -> Tensor:
        """All rows, of which there are `seq_len`."""
        shape = ShapeExpr((seq_len, *self.unit_shape))
        info = TensorStructInfo(shape, self.dtype)
        call = R.call_pure_packed("vm.builtin.attention_kv_cache_view", self.cache, shape, sinfo_args=info)
        return Tensor(_expr=_builder().emit(call))

    def append(self, new_element: Tensor) -> None:
        """Put rows behind the last. Raises InvalidTypeError for another dtype."""
        if new_element.dtype != self.dtype:
            raise InvalidTypeError(f"a cache of {self.dtype} takes no rows of {new_element.dtype}")
        call = R.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append", self.cache, new_element._expr, inplace_indices=[0],
            sinfo_args=ObjectStructInfo(),
        )  # fmt: skip
        self.cache = _builder().emit(call)


def _builder() -> BlockBuilder:
    builder = BlockBuilder.current()
    if builder is None:
        raise UsageError("a state is used while a method is exported")
    return builder


class writing:  # noqa: N801
    """While a method is written, `print_` uses its effect."""

    def __init__(self, effect: IOEffect | None):
        self.effect = effect

    def __enter__(self) -> None:
        if self.effect is not None:
            _writing.append(self.effect)

    def __exit__(self, *error: object) -> None:
        if self.effect is not None:
            _writing.pop()


def debug_func(name: str, *args: Tensor | PrimExpr | float | str, _line_info: str | None = None) -> None:
    """Call a registered function, with the place in the source and these values, when the method runs.

    Raises UsageError unless the method is exported with debug=True.
    """
    if not _writing:
        raise UsageError("Debugging is only supported when debug mode is on", hint="export_tvm(spec, debug=True)")
    place = _line_info or _caller(2)
    effect = _writing[-1]
    call = R.call_pure_packed(
        "vm.builtin.invoke_debug_func", effect.effect, StringImm(name), StringImm(place), *map(_value, args),
        sinfo_args=ObjectStructInfo(),
    )  # fmt: skip
    effect.effect = _builder().emit(call, effect.effect.name)


def print_(tensor: Tensor) -> None:
    """Print a tensor when the method runs. Raises UsageError unless it is exported with debug=True."""
    debug_func("vm.builtin.debug_print", tensor, _line_info=_caller(2))


def _caller(depth: int) -> str:
    frame = inspect.stack()[depth]
    return f"{frame.filename}:{frame.lineno}"


def _value(value: object) -> Expr:
    if isinstance(value, Tensor):
        return value._expr
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, PrimExpr):
        return PrimValue(value)
    if isinstance(value, bool | int):
        return PrimValue(IntImm(int(value), "int64"))
    if isinstance(value, float):
        return PrimValue(FloatImm(value, "float32"))
    raise InvalidTypeError(f"debug_func takes tensors, numbers and texts, not a {type(value).__name__}")
