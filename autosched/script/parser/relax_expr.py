"""Graph expressions from text."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence

from autosched.errors import AutoschedError
from autosched.ir.module import GlobalVar
from autosched.ir.node import FrozenDict
from autosched.relax import expr as R
from autosched.relax import op
from autosched.relax.call_result import call_result
from autosched.relax.op.call import CALL_DPS_PACKED, assert_op, call_pure_packed, call_tir, call_tir_inplace, shape_of
from autosched.relax.op.call import print as print_values
from autosched.relax.op.registry import OPERATORS
from autosched.relax.struct_info import Expr, ObjectStructInfo, ShapeExpr, StructInfo, TupleStructInfo
from autosched.script.parser import values
from autosched.script.parser.relax_info import InfoReader
from autosched.script.parser.state import Meaning, State, arguments
from autosched.tir.expr import PrimExpr

INFIX: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power",
    ast.FloorDiv: "floor_divide",
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
Bind = Callable[[Expr], Expr]  # gives a nested call a name of its own


class RelaxExprReader:
    """Reads expressions; `bind` is called for a call inside of another expression."""

    def __init__(self, state: State, bind: Bind):
        self.state = state
        self.infos = InfoReader(state)
        self.bind = bind

    def expr(self, node: ast.AST) -> Expr:
        """An expression. Raises ScriptError for anything else."""
        value = self.value(node)
        with self.state.source.at(node):
            if isinstance(value, str):
                return R.StringImm(value)
            return R.as_expr(value)  # type: ignore[no-any-return]

    def leaf(self, node: ast.AST) -> Meaning:
        """What may stand inside another expression: calls and items of tuples are bound first."""
        value = self.value(node)
        return self.bind(value) if isinstance(value, R.Call | R.If | R.TupleGetItem) else value

    def value(self, node: ast.AST) -> Meaning:
        """An expression, or a Python value (numbers, strings, lists of numbers, None) that an operator may take."""
        with self.state.source.at(node):
            match node:
                case ast.Name():
                    return self.state.find(node)
                case ast.Call():
                    return self._call(node)
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self.state.module_names:
                    return self._global(node, attr)
                case ast.Attribute(value=ast.Name() as base):
                    self.state.find(base)
                case ast.Tuple(elts=items):
                    return self._tuple(items)
                case ast.Subscript(value=ast.Subscript(value=ast.Name(id="metadata"))):
                    return R.Constant(values.metadata_item(self.state, node))
                case ast.Subscript(value=base, slice=index):
                    return self._item(base, index)
                case ast.List(elts=items):
                    return tuple(self.leaf(i) for i in items)
                case ast.BinOp(left=left, op=op, right=right):
                    return self._binary(node, left, op, right)
                case ast.Dict():
                    return values.attributes(self.state, node)
                case ast.JoinedStr():
                    return self.infos.scalars.value(node)
                case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
                    return self._apply(node, COMPARE[type(op)], (self.leaf(left), self.leaf(right)), {})
                case ast.UnaryOp(op=ast.USub(), operand=operand) if values.number(node) is None:
                    return self._apply(node, "negative", (self.leaf(operand),), {})
        if (number := values.number(node)) is not None:
            return number
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            return node.value
        raise self.state.error(node, "this is not an expression of the R dialect")

    def _binary(self, node: ast.AST, left: ast.AST, op: ast.operator, right: ast.AST) -> Meaning:
        """`x + y` of tensors is R.add; of numbers and symbols it is a dimension."""
        if type(op) in INFIX:
            pair = self.leaf(left), self.leaf(right)
            if any(isinstance(v, Expr) for v in pair):
                return self._apply(node, INFIX[type(op)], pair, {})
        return self.infos.dim(node)

    def _tuple(self, items: Sequence[ast.AST]) -> Meaning:
        fields = [self.leaf(i) for i in items]
        if fields and all(isinstance(f, int | PrimExpr) and not isinstance(f, bool) for f in fields):
            return tuple(fields)  # dimensions
        return R.Tuple(tuple(R.as_expr(f) for f in fields))

    def _item(self, base: ast.AST, index: ast.AST) -> R.TupleGetItem:
        item = R.TupleGetItem(R.as_expr(self.leaf(base)), values.integer(self.state, index))
        assert item.struct_info is not None, "asking for the annotation refuses what is no item of a tuple"
        return item

    def _global(self, node: ast.AST, name: str) -> GlobalVar:
        if name not in self.state.functions:
            known = ", ".join(sorted(self.state.functions))
            raise self.state.error(node, f"the module has no function '{name}'; it has {known}")
        return self.state.functions[name]

    # --- calls

    def _call(self, node: ast.Call) -> Meaning:
        name = self.state.called(node, "R")
        if not name:
            return self._call_function(node)
        special = _SPECIAL.get(name)
        if name in OPERATORS and special is None:
            return self._operator(node, name)
        if special is None and (made := self._op_function(node, name)) is not None:
            return made
        if special is None:
            raise self.state.error(node.func, f"unknown operator R.{name}")
        return special(self, node)

    def _op_function(self, node: ast.Call, name: str) -> Meaning:
        """A call of a function of `relax.op` that makes calls of operators; None where there is none."""
        function: object = op
        for part in name.split("."):
            function = getattr(function, part, None)
        if not inspect.isfunction(function) or function.__name__.startswith(("is_", "tir_", "get_", "define")):
            return None
        return self._called(node, function, name)

    def _called(self, node: ast.Call, function: Callable[..., object], name: str) -> Meaning:
        args = [self.leaf(a) for a in node.args]
        words = {w.arg: self.leaf(w.value) for w in node.keywords if w.arg is not None}
        try:
            return function(*args, **words)
        except AutoschedError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise self.state.error(node, f"R.{name} cannot take these arguments: {error}") from error

    def _operator(self, node: ast.Call, name: str) -> R.Call:
        args = [self.leaf(a) for a in node.args]
        words = {w.arg: self.leaf(w.value) for w in node.keywords if w.arg is not None}
        return self._apply(node, name, args, words)

    def _apply(self, node: ast.AST, name: str, args: Sequence[object], words: Mapping[str, object]) -> R.Call:
        try:
            return OPERATORS[name](*args, **words)
        except AutoschedError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            # the operators' rules count on attributes of the right kind, a text may say anything
            raise self.state.error(node, f"R.{name} cannot take these arguments: {error}") from error

    def _call_function(self, node: ast.Call) -> Meaning:
        if (constant := values.dtype_constant(self.state, node)) is not None:
            return constant
        found = self.state.dialect_name(node.func)
        if found is not None and found[0] == "T":
            return self.infos.dim(node)
        callee = self.value(node.func)
        if not isinstance(callee, GlobalVar | R.Var):
            return self._captured(node, callee)
        args = tuple(R.as_expr(self.leaf(a)) for a in node.args)
        known = self.state.signatures.get(callee.name) if isinstance(callee, GlobalVar) else None
        info = None if known is None else call_result(*known, [a.struct_info for a in args])
        return R.Call(callee, args, struct_info=info)

    def _captured(self, node: ast.Call, callee: object) -> Meaning:
        """A call of an operator that the text knows under a name of Python's: `act = R.nn.relu`."""
        name = getattr(callee, "name", "")
        if isinstance(name, str) and name.removeprefix("relax.") in OPERATORS:
            return self._operator(node, name.removeprefix("relax."))
        if not (inspect.isfunction(callee) and callee.__module__.startswith("autosched.relax.op")):
            raise self.state.error(node.func, "expected an operator or a function")
        return self._called(node, callee, callee.__name__)

    def _const(self, node: ast.Call) -> R.Constant:
        args = arguments(self.state, node, "value", "dtype", required=1)
        value = values.attribute(self.state, args["value"])
        dtype = values.dtype(self.state, args["dtype"]) if "dtype" in args else None
        return R.const(value, dtype)

    def _shape(self, node: ast.Call) -> ShapeExpr:
        return ShapeExpr(self.infos.dims(arguments(self.state, node, "values", required=1)["values"]))

    def _prim_value(self, node: ast.Call) -> R.PrimValue:
        return R.PrimValue(self.infos.dim(arguments(self.state, node, "value", required=1)["value"]))

    def _string(self, node: ast.Call) -> R.StringImm:
        return R.StringImm(values.string(self.state, arguments(self.state, node, "value", required=1)["value"]))

    def _extern(self, node: ast.Call) -> R.ExternFunc:
        return R.ExternFunc(values.string(self.state, arguments(self.state, node, "name", required=1)["name"]))

    def _make_tuple(self, node: ast.Call) -> R.Tuple:
        return R.Tuple(tuple(R.as_expr(self.leaf(a)) for a in node.args))

    def _out_info(self, args: dict[str, ast.expr], node: ast.AST) -> StructInfo | list[StructInfo]:
        out = args.get("out_sinfo", args.get("out_ty"))
        if out is None:
            raise self.state.error(node, "out_sinfo is missing: the call must say what it gives")
        return list(self.infos.infos(out.elts)) if isinstance(out, ast.List | ast.Tuple) else self.infos.info(out)

    def _inputs(self, node: ast.AST | None) -> R.Tuple:
        if node is None:
            return R.Tuple(())
        items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        return R.Tuple(tuple(R.as_expr(self.leaf(i)) for i in items))

    def _call_tir(self, node: ast.Call) -> R.Call:
        args = arguments(self.state, node, "func", "args", "out_sinfo", "tir_vars", "out_ty", required=1)
        tir_vars = self.expr(args["tir_vars"]) if "tir_vars" in args else None
        return call_tir(self.value(args["func"]), self._inputs(args.get("args")), self._out_info(args, node), tir_vars)

    def _call_tir_inplace(self, node: ast.Call) -> R.Call:
        args = arguments(
            self.state, node, "func", "args", "inplace_indices", "out_sinfo", "tir_vars", "out_ty", required=1
        )
        tir_vars = self.expr(args["tir_vars"]) if "tir_vars" in args else None
        indices = values.attribute(self.state, args["inplace_indices"]) if "inplace_indices" in args else ()
        inputs, out = self._inputs(args.get("args")), self._out_info(args, node)
        return call_tir_inplace(self.value(args["func"]), inputs, indices, out, tir_vars)

    def _call_dps_packed(self, node: ast.Call) -> R.Call:
        args = arguments(self.state, node, "func", "args", "out_sinfo", "out_ty", required=1)
        out = self._out_info(args, node)
        info = TupleStructInfo(tuple(out)) if isinstance(out, list) else out
        callee = R.ExternFunc(values.string(self.state, args["func"]))
        return R.Call(CALL_DPS_PACKED, (callee, self._inputs(args.get("args"))), FrozenDict(), (info,), info)

    def _call_pure_packed(self, node: ast.Call) -> R.Call:
        call = self._call_packed(node)
        made = call_pure_packed(call.op, *call.args, sinfo_args=call.sinfo_args)
        return dataclasses.replace(made, attrs=call.attrs)

    def _call_inplace_packed(self, node: ast.Call) -> R.Call:
        places = [w.value for w in node.keywords if w.arg == "inplace_indices"]
        if not places:
            raise self.state.error(node, "inplace_indices is missing")
        found = values.attribute(self.state, places[0])
        plain = ast.copy_location(
            ast.Call(node.func, node.args, [w for w in node.keywords if w.arg != "inplace_indices"]), node
        )
        call = self._call_packed(plain)
        return op.call_inplace_packed(call.op, *call.args, inplace_indices=found, sinfo_args=call.sinfo_args)

    def _shape_of(self, node: ast.Call) -> Expr:
        return shape_of(self.leaf(arguments(self.state, node, "expr", required=1)["expr"]))

    def _call_packed(self, node: ast.Call) -> R.Call:
        words = {w.arg: w.value for w in node.keywords}
        given = words.pop("sinfo_args", words.pop("ty_args", None))
        if not node.args:
            raise self.state.error(node, "expected the name of a function")
        items = given.elts if isinstance(given, ast.Tuple | ast.List) else [given] if given is not None else []
        infos = self.infos.infos(items)
        attrs = FrozenDict({str(k): values.attribute(self.state, v) for k, v in words.items()})
        callee = R.ExternFunc(values.string(self.state, node.args[0]))
        args = tuple(R.as_expr(self.leaf(a)) for a in node.args[1:])
        info = infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos)) if infos else ObjectStructInfo()
        return R.Call(callee, args, attrs, tuple(infos), info)

    def _to_vdevice(self, node: ast.Call) -> R.Call:
        args = arguments(self.state, node, "x", "dst_vdevice", required=2)
        return self._apply(
            node, "to_vdevice", [self.leaf(args["x"])], {"dst_vdevice": values.vdevice(self.state, args["dst_vdevice"])}
        )

    def _format(self, node: ast.expr | None) -> Expr | str:
        return "" if node is None else R.StringImm(values.string(self.state, node))

    def _print(self, node: ast.Call) -> R.Call:
        words = {w.arg: w.value for w in node.keywords}
        if words.keys() - {"format"}:
            raise self.state.error(node, "R.print takes values and format")
        return print_values(*(self.leaf(a) for a in node.args), format=self._format(words.get("format")))

    def _assert(self, node: ast.Call) -> R.Call:
        args = arguments(self.state, node, "condition", "format_args", "format", required=1)
        given = args.get("format_args")
        shown = given.elts if isinstance(given, ast.List | ast.Tuple) else [given] if given is not None else []
        text = self._format(args.get("format"))
        return assert_op(self.leaf(args["condition"]), [self.leaf(v) for v in shown], text)


_SPECIAL: dict[str, Callable[[RelaxExprReader, ast.Call], Meaning]] = {
    "const": RelaxExprReader._const, "shape": RelaxExprReader._shape, "prim_value": RelaxExprReader._prim_value,
    "str": RelaxExprReader._string, "ExternFunc": RelaxExprReader._extern, "tuple": RelaxExprReader._make_tuple,
    "call_tir": RelaxExprReader._call_tir, "to_vdevice": RelaxExprReader._to_vdevice,
    "call_tir_inplace": RelaxExprReader._call_tir_inplace, "call_dps_packed": RelaxExprReader._call_dps_packed,
    "call_packed": RelaxExprReader._call_packed, "call_pure_packed": RelaxExprReader._call_pure_packed,
    "call_inplace_packed": RelaxExprReader._call_inplace_packed,
    "shape_of": RelaxExprReader._shape_of, "print": RelaxExprReader._print, "assert_op": RelaxExprReader._assert,
}  # fmt: skip
