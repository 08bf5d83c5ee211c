"""Which integers a model's inputs may hold, where its graph says so: positions must lie within what they index."""

from __future__ import annotations

from autosched.ir import IRModule
from autosched.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from autosched.relax.struct_info import TensorStructInfo

# What hands integers on unchanged, in another shape, order or type.
_SAME_VALUES = frozenset(
    {
        *("astype", "reshape", "flatten", "expand_dims", "squeeze", "permute_dims", "identity", "copy"),
        *("broadcast_to", "tile", "split", "strided_slice", "concat", "take", "gather_elements"),
    }
)
# Operators that index their first argument with their second one, and the attribute that names the dimension.
_INDEXING = ("take", "gather_elements", "gather_nd")


def input_ranges(module: IRModule) -> dict[str, int]:
    """For each integer input of `main` that selects elements: the number of those that it selects from.

    Valid positions lie in [0, that number); of several uses the smallest counts. Inputs used otherwise are left out.
    """
    main = module["main"]
    if not isinstance(main, Function):
        return {}
    origins: dict[Var, frozenset[str]] = {p: frozenset({p.name}) for p in main.params if _is_integer(p)}
    ranges: dict[str, int] = {}
    for binding in main.bindings():
        found, bound = _follow(binding.value, origins)
        if found:
            origins[binding.var] = found
        for name, size in bound:
            ranges[name] = min(size, ranges.get(name, size))
    return ranges


def _follow(value: Expr, origins: dict[Var, frozenset[str]]) -> tuple[frozenset[str], list[tuple[str, int]]]:
    """(inputs whose values the expression hands on, bounds that it sets)."""
    if not isinstance(value, Call):
        return _sources(value, origins), []
    name = (value.op_name or "").removeprefix("relax.")
    bounds: list[tuple[str, int]] = []
    if name in _INDEXING:
        size = _indexed_size(name, value)
        bounds = [(source, size) for source in _sources(value.args[1], origins)] if size else []
    passed = _sources(value.args[0], origins) if name in _SAME_VALUES and value.args else frozenset()
    return passed, bounds


def _sources(x: object, origins: dict[Var, frozenset[str]]) -> frozenset[str]:
    match x:
        case Var():
            return origins.get(x, frozenset())
        case TupleGetItem():
            return _sources(x.tuple_value, origins)
        case Tuple():
            return frozenset().union(*(_sources(f, origins) for f in x.fields))
    return frozenset()


def _indexed_size(name: str, call: Call) -> int:
    info = call.args[0].struct_info
    if not isinstance(info, TensorStructInfo) or not info.is_static or not info.static_shape:
        return 0
    if name == "gather_nd":
        return min(info.static_shape)
    return int(info.static_shape[int(call.attrs.get("axis") or 0)])


def _is_integer(p: Var) -> bool:
    info = p.struct_info
    return isinstance(info, TensorStructInfo) and str(info.dtype).startswith(("int", "uint"))
