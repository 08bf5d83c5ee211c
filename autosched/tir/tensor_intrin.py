"""TensorIntrin: a computation in two forms, one to recognise it by and one to replace it with."""

from __future__ import annotations

from typing import ClassVar

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.tir.function import PrimFunc
from autosched.tir.stmt import BlockRealize


class TensorIntrin:
    """desc says what is computed, by loops around a block; impl computes the same on the same buffers."""

    _known: ClassVar[dict[str, TensorIntrin]] = {}

    def __init__(self, desc: PrimFunc, impl: PrimFunc):
        for name, func in (("desc", desc), ("impl", impl)):
            if not isinstance(func, PrimFunc):
                raise InvalidTypeError(
                    f"TensorIntrin: argument '{name}' is a {type(func).__name__}, expected a PrimFunc"
                )
            if not isinstance(func.body, BlockRealize):
                raise InvalidValueError(f"TensorIntrin: {name} has no block around its body")
            if len(func.buffers) != len(func.params):
                raise InvalidValueError(f"TensorIntrin: every parameter of {name} must be a buffer")
        if len(desc.params) != len(impl.params):
            raise InvalidValueError(
                f"TensorIntrin: desc has {len(desc.params)} parameters, impl has {len(impl.params)}"
            )
        for a, b in zip(desc.buffers, impl.buffers, strict=True):
            if a.dtype != b.dtype or len(a.shape) != len(b.shape):
                raise InvalidValueError(f"TensorIntrin: '{a.name}' of desc and '{b.name}' of impl are not alike")
        self.desc, self.impl = desc, impl

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> None:
        """Give an intrinsic a name. Raises InvalidValueError for a name that is taken, unless `override`."""
        if not isinstance(name, str):
            raise InvalidTypeError(
                f"TensorIntrin.register: argument 'name' is a {type(name).__name__}, expected a string"
            )
        intrin = TensorIntrin(desc, impl)
        if name in TensorIntrin._known and not override:
            raise InvalidValueError(f"TensorIntrin '{name}' has been registered already", hint="use override=True")
        TensorIntrin._known[name] = intrin

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of a name. Raises InvalidValueError where there is none, unless `allow_missing`."""
        if name not in TensorIntrin._known:
            if allow_missing:
                return None
            known = ", ".join(TensorIntrin._known) or "none"
            raise InvalidValueError(f"no TensorIntrin '{name}' is registered", hint=f"there are {known}")
        return TensorIntrin._known[name]
