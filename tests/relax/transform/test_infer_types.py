"""Calls of the module's functions get the types of what they return."""

from __future__ import annotations

from autosched import relay
from autosched.ir import IRModule
from autosched.relax import ObjectStructInfo
from autosched.relax.transform.infer_types import infer_types, is_known


def test_a_type_reaches_callers_of_callers() -> None:
    x, y, z = (relay.var(name, shape=(2,)) for name in "xyz")
    inner, middle = relay.GlobalVar("inner"), relay.GlobalVar("middle")
    mod = IRModule({middle: relay.Function([y], inner(y)), inner: relay.Function([x], x + x)})
    mod["main"] = relay.Function([z], middle(z) * relay.const(2.0))
    assert isinstance(mod["main"].ret_struct_info, ObjectStructInfo)
    typed = infer_types(mod)
    assert typed["main"].ret_struct_info.static_shape == (2,)
    assert all(is_known(b.var.struct_info) for b in typed["main"].bindings())
    assert isinstance(mod["main"].ret_struct_info, ObjectStructInfo)  # the given module is as it was


def test_a_recursive_function_has_the_type_of_its_end() -> None:
    again, n = relay.GlobalVar("again"), relay.var("n", shape=(), dtype="int32")
    body = relay.If(relay.equal(n, relay.const(0)), n, again(n - relay.const(1)))
    typed = infer_types(IRModule({again: relay.Function([n], body)}))
    assert typed["again"].ret_struct_info.dtype == "int32"
