"""The dialect of the graph level: `from autosched.script import relax as R`."""

from __future__ import annotations

import collections.abc
from collections.abc import Sequence
from typing import Any, TypeAlias

from autosched.errors import AutoschedError, InvalidTypeError
from autosched.ir.global_info import VDevice
from autosched.relax import struct_info as info
from autosched.relax.struct_info import Dim
from autosched.script.decorate import function_decorator
from autosched.script.dialect import Inert, inert_name
from autosched.script.parser.module import ModuleOrFunction
from autosched.tir.expr import PrimExpr

DIALECT = "R"
Annotation: TypeAlias = Any  # a StructInfo; in a text that Python meets before the reader, an Inert


def function(
    func: collections.abc.Callable[..., object] | None = None,
    *,
    pure: bool = True,
    private: bool = False,
    check_well_formed: bool = True,
) -> ModuleOrFunction:
    """Make a relax Function of a Python function's text. Raises ScriptError showing the line with a caret."""
    return function_decorator(func, check_well_formed)


# The annotations mean the same outside of scripts, as in `relax.Var("x", R.Tensor((2, 3), "float32"))`. Inside of a
# script's text they are not evaluated; where Python meets them first, a symbol that it does not know leaves them inert.


def Tensor(  # noqa: N802
    shape: Sequence[Dim] | None = None, dtype: str | None = None, vdevice: object = None, *, ndim: int = -1
) -> Annotation:
    """A tensor's annotation; shape and dtype are unknown where none is given, as in a script's text.

    Raises TypeError for a shape that is a text or a number, and for a dtype that is no text.
    """
    if isinstance(vdevice, str):  # the name of a device of the module that is being read
        return Inert("R.Tensor(…)")
    if isinstance(shape, str) and dtype is None:  # R.Tensor("float32", ndim=2)
        shape, dtype = None, shape
    if isinstance(shape, str | int | float):
        raise InvalidTypeError(f"R.Tensor: argument 'shape' is {shape!r}", hint="a shape is a tuple of dimensions")
    if dtype is not None and not isinstance(dtype, str | Inert):
        raise InvalidTypeError(f"R.Tensor: argument 'dtype' is {dtype!r}, not the name of a dtype")
    try:
        made = info.TensorStructInfo(None if shape is None else tuple(shape), dtype or "", ndim)
        return info.placed(made, vdevice) if isinstance(vdevice, VDevice) else made
    except (AutoschedError, TypeError):
        return Inert("R.Tensor(…)")


def Shape(values: Sequence[object] | None = None, ndim: int = -1) -> Annotation:  # noqa: N802
    """A shape's annotation."""
    try:
        return info.ShapeStructInfo(None if values is None else tuple(values), ndim)
    except (AutoschedError, TypeError):
        return Inert("R.Shape(…)")


def Tuple(*fields: Any) -> Annotation:  # noqa: N802
    """A tuple's annotation."""
    if len(fields) == 1 and isinstance(fields[0], list | tuple):
        fields = tuple(fields[0])
    made = tuple(f() if f in (Object, Tensor, Shape) else f for f in fields)
    if all(isinstance(f, info.StructInfo) for f in made):
        return info.TupleStructInfo(made)
    return Inert("R.Tuple(…)")


def Prim(dtype: str | None = None, value: PrimExpr | None = None) -> Annotation:  # noqa: N802
    """A scalar's annotation."""
    try:
        return info.PrimStructInfo(dtype or "int64", value)
    except (AutoschedError, TypeError):
        return Inert("R.Prim(…)")


def Callable(  # noqa: N802
    params: Sequence[object] | None = None, ret: object = None, purity: bool = True
) -> Annotation:
    """The annotation of a function."""
    made = None if params is None else Tuple(*params)
    result = ret() if ret in (Object, Tensor, Shape) else Object() if ret is None else ret  # type: ignore[operator]
    if isinstance(made, Inert) or not isinstance(result, info.StructInfo):
        return Inert("R.Callable(…)")
    return info.FuncStructInfo(None if made is None else made.fields, result, purity)


def Object() -> Annotation:  # noqa: N802
    """The annotation of any value."""
    return info.ObjectStructInfo()


OUTSIDE = ("const", "call_tir", "call_tir_inplace", "call_dps_packed", "call_packed", "call_pure_packed")


def shape(values: Sequence[Dim]) -> info.ShapeExpr:
    """A shape as a value."""
    return info.ShapeExpr(tuple(values))


def __getattr__(name: str) -> object:
    """An operator: `R.add(x, y)` makes a call outside of scripts too; other names mean something in text only."""
    from autosched import relax

    found = getattr(relax, name, None) if name in OUTSIDE else getattr(relax.op, name, None)
    return inert_name(DIALECT, name) if found is None or name.startswith("_") else found
