"""Annotations of graph values from text: `R.Tensor((1, 8), dtype="float32")`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autosched.relax import struct_info as S
from autosched.script.parser import values
from autosched.script.parser.state import Meaning, State, arguments
from autosched.script.parser.tir_expr import ExprReader
from autosched.tir.expr import PrimExpr, Var


class InfoReader:
    """Reads annotations and dimensions in a State."""

    def __init__(self, state: State):
        self.state = state
        self.scalars = ExprReader(state)

    def dims(self, node: ast.AST) -> tuple[PrimExpr, ...]:
        """A shape, its bare numbers int64; text in quotes may name symbols that are new here."""
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self.dim(d) for d in node.elts)
        known = self._known_shape(node)
        if known is None:
            raise self.state.error(node, "expected a tuple of dimensions")
        with self.state.source.at(node):
            return S.ShapeExpr(tuple(known)).values

    def _known_shape(self, node: ast.AST) -> Meaning:
        """The dimensions that a name or a part of a Python object stands for: a captured shape, a shape's variable."""
        value = None
        if isinstance(node, ast.Name):
            value = self.state.find(node)
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.BinOp):
            value = self.scalars.value(node)
        if isinstance(value, Var):
            return None
        if isinstance(info := getattr(value, "struct_info", None), S.ShapeStructInfo):
            return info.values
        return value if isinstance(value, tuple | list) else None

    def dim(self, node: ast.AST) -> PrimExpr:
        """One dimension."""
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return self.scalars.expr(node, "int64")
        try:
            inside = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            raise self.state.error(node, f"'{node.value}' is no expression") from None
        for part in ast.walk(inside):
            ast.copy_location(part, node)
            if isinstance(part, ast.Name) and part.id not in self.state.prefixes and not self.state.knows(part.id):
                self.state.define(part.id, Var(part.id, "int64"))
        return self.scalars.expr(inside, "int64")

    def info(self, node: ast.expr) -> S.StructInfo:
        """An annotation. Raises ScriptError for anything else."""
        call = node if isinstance(node, ast.Call) else ast.copy_location(ast.Call(node, [], []), node)
        name = self.state.called(call, "R")
        with self.state.source.at(node):
            match name:
                case "Tensor":
                    return self._tensor(call)
                case "Shape":
                    args = arguments(self.state, call, "values", "ndim")
                    ndim = values.integer(self.state, args["ndim"]) if "ndim" in args else -1
                    listed = "values" in args and not _is_none(args["values"])
                    return S.ShapeStructInfo(self.dims(args["values"]) if listed else None, ndim)
                case "Prim":
                    args = arguments(self.state, call, "dtype", "value")
                    if "value" in args:
                        value = self.dim(args["value"])
                        return S.PrimStructInfo(value.dtype, value)
                    return S.PrimStructInfo(values.string(self.state, args["dtype"]) if "dtype" in args else "int64")
                case "Tuple":
                    return S.TupleStructInfo(self.infos(_items(call.args)))
                case "Callable":
                    return self._function(call)
                case "Object" | "Any":
                    return S.ObjectStructInfo()
        raise self.state.error(node, 'expected an annotation such as R.Tensor((1, 8), dtype="float32")')

    def infos(self, nodes: Sequence[ast.expr]) -> tuple[S.StructInfo, ...]:
        """Several annotations."""
        return tuple(self.info(n) for n in nodes)

    def _tensor(self, call: ast.Call) -> S.StructInfo:
        args = arguments(self.state, call, "shape", "dtype", "vdevice", "ndim")
        info = self._unplaced(args)
        if "vdevice" not in args or _is_none(args["vdevice"]):
            return info
        return S.placed(info, values.vdevice(self.state, args["vdevice"]))

    def _unplaced(self, args: dict[str, ast.expr]) -> S.TensorStructInfo:
        shape = args.get("shape")
        if isinstance(shape, ast.Constant) and isinstance(shape.value, str):
            if "dtype" in args:
                raise self.state.error(shape, f"'{shape.value}' is no shape; a shape is a tuple of dimensions")
            args["dtype"] = args.pop("shape")  # R.Tensor("float32", ndim=2)
        given = args.get("dtype")
        dtype = "" if given is None or _is_none(given) else values.string(self.state, given)
        ndim = values.integer(self.state, args["ndim"]) if "ndim" in args else -1
        shape = args.get("shape")
        if shape is None or _is_none(shape):
            return S.TensorStructInfo(None, dtype, ndim)
        if isinstance(shape, ast.Name) and isinstance(
            info := getattr(self.state.find(shape), "struct_info", None), S.ShapeStructInfo
        ):  # a variable of which the rank alone may be known
            return S.TensorStructInfo(None if info.values is None else S.ShapeExpr(info.values), dtype, info.ndim)
        return S.TensorStructInfo(S.ShapeExpr(self.dims(shape)), dtype)

    def _function(self, call: ast.Call) -> S.FuncStructInfo:
        args = arguments(self.state, call, "params", "ret", "purity")
        params = self.infos(_items([args["params"]])) if "params" in args else None
        purity = bool(values.attribute(self.state, args["purity"])) if "purity" in args else True
        return S.FuncStructInfo(params, self.info(args["ret"]) if "ret" in args else S.ObjectStructInfo(), purity)


def _items(nodes: Sequence[ast.expr]) -> Sequence[ast.expr]:
    """Annotations given one by one or as one tuple or list."""
    return nodes[0].elts if len(nodes) == 1 and isinstance(nodes[0], ast.Tuple | ast.List) else nodes


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
