"""Constants and attribute values as text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

import numpy as np

from autosched.ir.global_info import DummyGlobalInfo, VDevice
from autosched.ir.node import Node
from autosched.script.printer.context import Context
from autosched.target import Target
from autosched.tir.expr import IntImm


def string(value: str) -> str:
    """A string in double quotes, with escapes that Python and JSON share."""
    return json.dumps(value, ensure_ascii=not value.isprintable())


def number(value: float | int) -> str:
    """A Python number; infinities and NaN as a quoted name inside `float(…)`."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def int_constant(ctx: Context, value: int, dtype: str) -> str:
    """An integer constant: bare in the default dtype, else `T.int64(3)`."""
    if dtype == "bool":
        return f"{ctx.t('bool')}({bool(value)})"
    return str(value) if dtype == ctx.options.int_dtype else f"{ctx.t(dtype)}({value})"


def float_constant(ctx: Context, value: float, dtype: str) -> str:
    """A float constant: `T.float32(0.5)`, `T.float32("inf")`, bare in the default dtype."""
    if not math.isfinite(value):
        return f'{ctx.t(dtype)}("{value}")'
    return repr(value) if dtype == ctx.options.float_dtype else f"{ctx.t(dtype)}({value!r})"


def int_node(ctx: Context, value: IntImm) -> str:
    """An integer constant among Python values: `T.int32(3)`; bool ones apart from Python's truths."""
    if value.dtype == "bool":
        return f'{ctx.t("IntImm")}("bool", {value.value})'
    return f"{ctx.t(value.dtype)}({value.value})"


def attribute(ctx: Context, value: object, node_text: Callable[[Context, Node], str]) -> str:
    """The value of an attribute or annotation; `node_text` prints the nodes in it."""
    if value is None:
        return "None"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return f"{ctx.t('bool')}({value})"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(attribute(ctx, v, node_text) for v in value) + "]"
    if isinstance(value, Mapping):
        return attributes(ctx, value, node_text)
    if isinstance(value, Target):
        return f"{ctx.t('target')}({json.dumps(value.export())})"
    if isinstance(value, VDevice):
        target = "None" if value.target is None else json.dumps(value.target.export())
        return f"{ctx.i('vdevice')}({target}, {value.vdevice_id}, {string(value.memory_scope)})"
    if isinstance(value, DummyGlobalInfo):
        return f"{ctx.i('dummy_global_info')}()"
    if isinstance(value, IntImm):  # not bare, as that is a Python integer here
        return int_node(ctx, value)
    if isinstance(value, Node):
        with ctx.with_int_dtype("void"):
            return node_text(ctx, value)
    if isinstance(value, np.ndarray) or callable(getattr(value, "numpy", None)):
        return ctx.metadata_item("runtime.NDArray", value)
    return f"{ctx.t('opaque')}({string(repr(value))})"


def attributes(ctx: Context, values: Mapping[str, object], node_text: Callable[[Context, Node], str]) -> str:
    """A mapping of attributes, sorted by key."""
    items = (f"{string(str(k))}: {attribute(ctx, values[k], node_text)}" for k in sorted(values, key=str))
    return "{" + ", ".join(items) + "}"


def tuple_text(items: list[str]) -> str:
    """A Python tuple: `(a,)`, `(a, b)`, `()`."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
