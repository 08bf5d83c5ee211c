"""Python values in the text: numbers, strings, attributes."""

from __future__ import annotations

import ast

import numpy as np

from autosched.errors import TargetError
from autosched.ir.function import attribute_name
from autosched.ir.global_info import DummyGlobalInfo, VDevice
from autosched.ir.node import FrozenDict
from autosched.script.intrinsics import DTYPES
from autosched.script.parser.state import Meaning, State, arguments
from autosched.target import Target
from autosched.tir.expr import FloatImm, IntImm


def number(node: ast.AST) -> int | float | bool | None:
    """A number written out, with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inside = number(node.operand)
        return None if inside is None or isinstance(inside, bool) else -inside
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return node.value
    return None


def string(state: State, node: ast.AST) -> str:
    """A string written out. Raises ScriptError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    value = state.find(node) if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Attribute | ast.Subscript | ast.IfExp | ast.JoinedStr) and state.evaluate is not None:
        value = state.evaluate(node)
    if isinstance(value, str):
        return value
    raise state.error(node, "expected a string")


def dtype(state: State, node: ast.AST, *also: str) -> str:
    """A dtype's name in quotes. Raises ScriptError for an unknown one."""
    name = string(state, node)
    if name not in (*DTYPES, *also):
        raise state.error(node, f"unknown dtype '{name}'")
    return name


def integer(state: State, node: ast.AST) -> int:
    """An integer written out. Raises ScriptError for anything else."""
    value = attribute(state, node)
    if isinstance(value, IntImm):
        return value.value
    if isinstance(value, int):
        return value
    raise state.error(node, "expected an integer")


def truth(state: State, node: ast.AST) -> bool:
    """True or False. Raises ScriptError for anything else."""
    value = attribute(state, node)
    if isinstance(value, bool | int):
        return bool(value)
    raise state.error(node, "expected True or False")


def attribute(state: State, node: ast.AST) -> Meaning:
    """The value of an attribute: numbers, strings, lists (as tuples), dicts, T.bool, T.target, arrays."""
    if (found := number(node)) is not None:
        return found
    match node:
        case ast.Constant(value=None | str() as value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return tuple(attribute(state, item) for item in items)
        case ast.Dict():
            return _dict(state, node)
        case ast.Call():
            return _call(state, node)
        case ast.Subscript():
            return metadata_item(state, node)
        case ast.Name():
            return state.find(node)
        case ast.JoinedStr() | ast.Attribute() | ast.IfExp() if state.evaluate is not None:
            value = state.evaluate(node)
            if isinstance(value, bool | int | float | str | IntImm | FloatImm):
                return value
    raise state.error(node, "this cannot be the value of an attribute")


def attributes(state: State, node: ast.AST) -> FrozenDict:
    """A dict of attributes. Raises ScriptError for anything else."""
    if not isinstance(node, ast.Dict):
        raise state.error(node, "expected a dict of attributes")
    return _dict(state, node)


def function_attributes(state: State, node: ast.AST) -> FrozenDict:
    """The attributes of a function, by their names here."""
    return FrozenDict({attribute_name(k): v for k, v in attributes(state, node).items()})


def _dict(state: State, node: ast.Dict) -> FrozenDict:
    out: dict[str, Meaning] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise state.error(value, "** is not possible here")
        out[string(state, key)] = attribute(state, value)
    return FrozenDict(out)


def _call(state: State, node: ast.Call) -> Meaning:
    if isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1:
        return parse_float(state, node.args[0])
    name = state.called(node, "I")
    if name == "vdevice":
        args = arguments(state, node, "target", "vdevice_id", "memory_scope")
        try:
            return VDevice(**{k: _plain(attribute(state, v)) for k, v in args.items()})
        except TargetError as error:
            raise state.error(node, str(error)) from error
    if name == "dummy_global_info":
        return DummyGlobalInfo()
    name = state.called(node, "T")
    if name == "bool" and len(node.args) == 1:
        return truth(state, node.args[0])
    if name == "target" and len(node.args) == 1:
        try:
            return Target(_plain(attribute(state, node.args[0])))
        except TargetError as error:
            raise state.error(node, str(error)) from error
    constant = dtype_constant(state, node)
    if constant is None:
        raise state.error(node, "this cannot be the value of an attribute")
    return constant


def vdevice(state: State, node: ast.AST) -> VDevice:
    """A device by its name `kind:index:scope` in the module's `vdevice` infos, or one that a name stands for."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        found = state.evaluate(node) if state.evaluate is not None and not isinstance(node, ast.Name) else None
        found = state.find(node) if isinstance(node, ast.Name) else found
        if isinstance(found, VDevice):
            return found
        raise state.error(node, "expected a device: a VDevice or its name")
    kind, *rest = node.value.split(":")
    alike = [d for d in state.vdevices if d.target is not None and d.target.kind.name == kind]
    index = int(rest[0]) if rest and rest[0].isdigit() else 0
    if len(rest) > 1:
        scoped = [d for d in alike if d.memory_scope == rest[1]]
        alike = alike if index < len(alike) and alike[index] in scoped else scoped
    if index >= len(alike):
        raise state.error(node, f"the module has no device '{node.value}'; I.module_global_infos lists them")
    return alike[index]


def _plain(value: Meaning) -> Meaning:
    """Attributes as the dicts and lists that they were written as."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def parse_float(state: State, node: ast.AST) -> float:
    """A float from a number or from "inf", "-inf", "nan"."""
    value = number(node)
    if value is None:
        try:
            value = float(string(state, node))
        except ValueError:
            raise state.error(node, 'expected a number, "inf", "-inf" or "nan"') from None
    return float(value)


def dtype_constant(state: State, node: ast.AST) -> IntImm | FloatImm | None:
    """`T.int64(3)`, `T.float32("inf")`, `T.IntImm("bool", 1)`; None for anything else."""
    name = state.called(node, "T")
    if not name or not isinstance(node, ast.Call) or node.keywords:
        return None
    if name == "IntImm" and len(node.args) == 2:
        return IntImm(integer(state, node.args[1]), dtype(state, node.args[0]))
    if len(node.args) != 1 or name not in DTYPES:
        return None
    value = number(node.args[0])
    if name.startswith(("float", "bfloat")) and (value is not None or _is_string(node.args[0])):
        return FloatImm(parse_float(state, node.args[0]), name)
    if name.startswith(("int", "uint", "bool")) and isinstance(value, int):
        return IntImm(int(value), name)
    return None


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def metadata_item(state: State, node: ast.Subscript) -> np.ndarray:
    """`metadata["kind"][i]`. Raises ScriptError where the text came without its metadata."""
    match node:
        case ast.Subscript(
            value=ast.Subscript(value=ast.Name(id="metadata"), slice=ast.Constant(value=kind)),
            slice=ast.Constant(value=int(index)),
        ):
            arrays = state.metadata.get(str(kind), ())
            if index < len(arrays):
                return arrays[index]
            raise state.error(node, "the text lacks this constant; print it with show_meta=True")
    raise state.error(node, "this cannot be the value of an attribute")
