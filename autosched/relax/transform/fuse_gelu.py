"""GELU written as separate operators becomes one, which a product's kernel takes in.

x * 0.5 * (1 + erf(x / sqrt(2)))                                    in any order of the factors
x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x³)))            x³ as a power or a product
"""

from __future__ import annotations

import math

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import same_info
from autosched.relax.transform.scalar_constants import number_of

CLOSE = 1e-5  # relative: models write the numbers with six digits and more
CUBE, TANH_SCALE, ERF_SCALE = 0.044715, math.sqrt(2 / math.pi), math.sqrt(0.5)


class _Fuser(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Var, Call] = {}

    def call(self, call: Call, var: Var) -> Expr:
        self.calls[var] = call
        if call.op_name not in ("relax.multiply", "relax.divide"):
            return call
        for factor in self.product(var, depth=2)[1]:
            found = self.one_plus(factor)
            if found is None:
                continue
            x, is_tanh = found
            scale, factors = self.product(var, stop=x)
            is_product = len(factors) == 2 and {*factors} == {x, factor} and same_info(x.struct_info, call.struct_info)
            if is_product and math.isclose(scale, 0.5, rel_tol=CLOSE):
                return op.nn.gelu_tanh(x) if is_tanh else op.nn.gelu(x)
        return call

    def made_by(self, x: Expr | None, *names: str) -> Call | None:
        found = self.calls.get(x) if isinstance(x, Var) else None
        return found if found is not None and found.op_name.removeprefix("relax.") in names else None

    def product(self, x: Expr, stop: Expr | None = None, depth: int = 4) -> tuple[float, list[Expr]]:
        """The numbers and the other factors that a value is the product of; `stop` is not taken apart."""
        call = None if x is stop or depth == 0 else self.made_by(x, "multiply", "divide")
        if call is None:
            number = number_of(x)
            return (1.0, [x]) if number is None else (number, [])
        a, b = call.args
        scale, factors = self.product(a, stop, depth - 1)
        if call.op_name == "relax.divide":
            number = number_of(b)
            return (scale / number, factors) if number else (1.0, [x])
        other, more = self.product(b, stop, depth - 1)
        return scale * other, factors + more

    def one_plus(self, x: Expr) -> tuple[Var, bool] | None:
        """The x of 1 + erf(x / sqrt(2)), or of the approximation by tanh, and which it is."""
        function = self.made_by(self.beside_number(x, 1.0), "erf", "tanh")
        if function is None:
            return None
        if function.op_name == "relax.erf":
            scale, factors = self.product(function.args[0], depth=1)
            if len(factors) == 1 and isinstance(factors[0], Var) and math.isclose(scale, ERF_SCALE, rel_tol=CLOSE):
                return factors[0], False
            return None
        scale, factors = self.product(function.args[0], depth=1)
        sum_ = self.made_by(factors[0], "add") if len(factors) == 1 else None
        if sum_ is None or not math.isclose(scale, TANH_SCALE, rel_tol=CLOSE):
            return None
        for y, cube in (sum_.args, sum_.args[::-1]):
            if isinstance(y, Var) and self.is_cube(cube, y):
                return y, True
        return None

    def beside_number(self, x: Expr, number: float) -> Expr | None:
        """The other operand of a sum with a number."""
        sum_ = self.made_by(x, "add")
        sides = () if sum_ is None else (sum_.args, sum_.args[::-1])
        return next((a for a, b in sides if number_of(b) == number), None)

    def is_cube(self, x: Expr, y: Var) -> bool:
        """Whether a value is 0.044715 * y³."""
        scale, factors = self.product(x, stop=y)
        power = self.made_by(factors[0], "power") if len(factors) == 1 else None
        if power is not None and number_of(power.args[1]) == 3.0:
            factors = [power.args[0]] * 3
        return math.isclose(scale, CUBE, rel_tol=CLOSE) and len(factors) == 3 and all(f is y for f in factors)


def fuse_gelu(module: IRModule) -> IRModule:
    """Replace GELU's parts by `nn.gelu` or `nn.gelu_tanh`."""
    return map_functions(module, lambda function: _Fuser().rewrite(function))


def FuseGelu() -> Pass:  # noqa: N802
    """See `fuse_gelu`."""
    return graph_pass("FuseGelu")(fuse_gelu)
