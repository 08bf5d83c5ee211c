"""Graph expressions as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autosched.ir.global_info import VDevice
from autosched.ir.module import GlobalVar
from autosched.ir.node import Node
from autosched.relax import expr as R
from autosched.relax.struct_info import Expr, ShapeExpr, StructInfo, TupleStructInfo
from autosched.script.printer.context import Context
from autosched.script.printer.literals import attribute, number, string, tuple_text
from autosched.script.printer.names import legal
from autosched.script.printer.relax_info import dims, struct_info, vdevice_name
from autosched.script.printer.tir_expr import expr as tir_expr

# calls that say themselves what they give: their bindings need no annotation
STATED = frozenset({"relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad", "relax.call_dps_packed"})


def var_name(ctx: Context, var: R.Var) -> str:
    """A variable's name; one that nothing has defined gets its name here."""
    found = ctx.names.find(var)
    return ctx.marked(var, found if found is not None else ctx.names.define(var, var.name, outermost=True))


def global_name(ctx: Context, name: str) -> str:
    """`cls.f`, a function of the module."""
    return f"{ctx.options.module_alias}.{ctx.functions.get(name, legal(name))}"


def relax_expr(ctx: Context, e: object) -> str:
    """The text of an expression, annotation or attribute value."""
    text = _text(ctx, e)
    return ctx.marked(e, text) if isinstance(e, Node) and not isinstance(e, R.Var) else text


def _text(ctx: Context, e: object) -> str:
    match e:
        case R.Var():
            return var_name(ctx, e)
        case R.Call():
            return _call(ctx, e)
        case R.Constant():
            return constant(ctx, e)
        case GlobalVar():
            return global_name(ctx, e.name)
        case R.Tuple():
            return tuple_text([relax_expr(ctx, f) for f in e.fields])
        case R.TupleGetItem():
            return f"{relax_expr(ctx, e.tuple_value)}[{e.index}]"
        case ShapeExpr():
            return f"{ctx.r('shape')}([{', '.join(dims(ctx, e.values))}])"
        case R.PrimValue():
            return f"{ctx.r('prim_value')}({dims(ctx, [e.value])[0]})"
        case R.StringImm():
            return f"{ctx.r('str')}({string(e.value)})"
        case R.ExternFunc():
            return f"{ctx.r('ExternFunc')}({string(e.global_symbol)})"
        case R.Op():
            return ctx.r(_short(e.name))
        case R.Function():
            return f"{ctx.r('unknown')}({string('a function in an expression')})"
        case StructInfo():
            return struct_info(ctx, e)
        case R.If():
            yes, no = relax_expr(ctx, e.true_branch), relax_expr(ctx, e.false_branch)
            return f"{yes} if {relax_expr(ctx, e.cond)} else {no}"
        case R.SeqExpr():
            return relax_expr(ctx, e.body)
    return relax_attribute(ctx, e)


def _short(name: str) -> str:
    return name.removeprefix("relax.")


def constant(ctx: Context, e: R.Constant) -> str:
    """Scalars as `R.const(1.0, "float32")`, larger ones as a reference to the metadata."""
    data = np.asarray(e.data)
    if data.ndim:
        return ctx.metadata_item("relax.expr.Constant", e.data)
    value = data.astype("float64").item() if data.dtype.kind not in "iub" else data.item()
    return f"{ctx.r('const')}({number(value)}, {string(str(data.dtype))})"


def relax_attribute(ctx: Context, value: object) -> str:
    """The value of an operator's or function's attribute; truths are Python's here."""
    if isinstance(value, VDevice):
        return string(vdevice_name(ctx, value))
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, tuple | list):
        return f"[{', '.join(relax_attribute(ctx, v) for v in value)}]"
    if isinstance(value, Mapping):
        return relax_attributes(ctx, value)
    if isinstance(value, Expr | R.Op | StructInfo | GlobalVar):
        return relax_expr(ctx, value)
    return attribute(ctx, value, tir_expr)


def relax_attributes(ctx: Context, values: Mapping[str, object]) -> str:
    """A mapping of attributes, sorted by key."""
    items = (f"{string(str(k))}: {relax_attribute(ctx, values[k])}" for k in sorted(values, key=str))
    return "{" + ", ".join(items) + "}"


def _keywords(ctx: Context, attrs: Mapping[str, object]) -> list[str]:
    """An operator's attributes, in the order in which it declares them; TVM's have no `keep_nan`."""
    shown = {k: v for k, v in attrs.items() if k != "keep_nan" or v}
    named = {k: "void" if k == "out_dtype" and v is None else v for k, v in shown.items()}  # TVM's "as the operands"
    return [f"{legal(str(k))}={relax_attribute(ctx, v)}" for k, v in named.items()]


def _call(ctx: Context, e: R.Call) -> str:
    match e.op:
        case R.Op(name=name) if name in STATED:
            return _stated_call(ctx, e)
        case R.ExternFunc(global_symbol=symbol):
            parts = [string(symbol), *(relax_expr(ctx, a) for a in e.args), *_keywords(ctx, e.attrs)]
            if e.sinfo_args:
                parts.append(f"sinfo_args={tuple_text([struct_info(ctx, s) for s in e.sinfo_args])}")
            return f"{ctx.r('call_packed')}({', '.join(parts)})"
    pure = isinstance(e.op, R.Op) and e.op.name == "relax.call_pure_packed"
    args = [string(a.global_symbol) if pure and isinstance(a, R.ExternFunc) else relax_expr(ctx, a) for a in e.args]
    parts = [*args, *_keywords(ctx, e.attrs)]
    if e.sinfo_args:
        parts.append(f"sinfo_args={tuple_text([struct_info(ctx, s) for s in e.sinfo_args])}")
    return f"{relax_expr(ctx, e.op)}({', '.join(parts)})"


def _stated_call(ctx: Context, e: R.Call) -> str:
    """`R.call_tir(cls.f, (a, b), out_sinfo=R.Tensor(…), tir_vars=R.shape([n]))`."""
    callee, *rest = e.args
    first = string(callee.global_symbol) if isinstance(callee, R.ExternFunc) else relax_expr(ctx, callee)
    parts = [first]
    if rest:
        parts.append(relax_expr(ctx, rest[0]))
    outs = [o for s in e.sinfo_args for o in (s.fields if isinstance(s, TupleStructInfo) else (s,))]
    several = len(outs) != 1
    out = f"[{', '.join(struct_info(ctx, o) for o in outs)}]" if several else struct_info(ctx, e.sinfo_args[0])
    parts.append(f"out_sinfo={out}")
    if len(rest) > 1:
        parts.append(f"tir_vars={relax_expr(ctx, rest[1])}")
    parts += [relax_expr(ctx, a) for a in rest[2:]]
    return f"{ctx.r(_short(e.op.name))}({', '.join([*parts, *_keywords(ctx, e.attrs)])})"
