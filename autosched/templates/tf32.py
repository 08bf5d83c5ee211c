"""Products of float32 on tensor cores: an attribute of PrimFuncs that allows to round their factors to 11 bits.

Nothing rounds them without it. Sums stay float32 (torch calls the switch `allow_tf32`, off by default there too).
"""

from __future__ import annotations

from autosched.ir import IRModule
from autosched.templates.classify import find_contraction
from autosched.tir import PrimFunc

PRODUCTS = "autosched.products"  # the attribute's name; "tf32" is the only value that means something
TF32 = "tf32"
SHARE = 4 * 2.0**-10  # error of a sum of such products: of its largest value, each term having its own of 2^-10


def allows_tf32(func: PrimFunc) -> bool:
    """Whether the factors of the function's products may be rounded to tf32."""
    return bool(func.attrs.get(PRODUCTS) == TF32)


def with_tf32(func: PrimFunc) -> PrimFunc:
    """The function with the permission, where it has a product of float32; any other as it is."""
    c = find_contraction(func)
    is_wide = c is not None and c.a.dtype == c.b.dtype == "float32"
    return func.with_attr(PRODUCTS, TF32) if is_wide else func


def allow_tf32(module: IRModule) -> IRModule:
    """The module whose PrimFuncs have the permission."""
    functions = {gv: with_tf32(f) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()}
    return module.with_functions(functions)
