"""x * (1 + erf(x / sqrt(2))) / 2, as files of PyTorch spell GELU, becomes that operator: a third less arithmetic."""

from __future__ import annotations

import math

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.rewrite import CallTracker, float_of, map_functions
from autosched.relax.struct_info import same_info

CLOSE = 1e-3  # of the numbers as they were rounded, to 16 bits at most


class _Finder(CallTracker):
    def call(self, call: Call, var: Var) -> Expr:
        self.calls[var] = call  # what it was
        x = self.argument(call) if call.op_name == "relax.multiply" else None
        return call if x is None else op.nn.gelu(x)

    def argument(self, product: Call) -> Var | None:
        """The x of which a product is GELU; None of others."""
        number, others = self.factors(product)
        if len(others) != 2 or not math.isclose(number, 0.5, rel_tol=CLOSE):
            return None
        for x, total in (others, others[::-1]):
            if isinstance(x, Var) and same_info(x.struct_info, product.struct_info) and self.is_sum_of(total, x):
                return x
        return None

    def factors(self, x: Expr) -> tuple[float, list[Expr]]:
        """The product of the numbers of a product, and its other factors, two of which are told apart."""
        call = self.call_of(x) if isinstance(x, Var) else x
        if isinstance(call, Call) and call.op_name == "relax.multiply":
            parts = [(n, []) if (n := float_of(a)) is not None else self.factors(a) for a in call.args]
            others = [factor for _, found in parts for factor in found]
            if len(others) <= 2:
                return math.prod(n for n, _ in parts), others
        return 1.0, [x]

    def is_sum_of(self, x: Expr, argument: Var) -> bool:
        """Whether a value is 1 + erf(argument / sqrt(2))."""
        for one, call in self.pairs(x, "relax.add"):
            inner = self.call_of(call)
            if one == 1.0 and inner is not None and inner.op_name == "relax.erf":
                return self.is_scaled(inner.args[0], argument)
        return False

    def is_scaled(self, x: Expr, argument: Var) -> bool:
        """Whether a value is argument / sqrt(2)."""
        call = self.call_of(x)
        if call is not None and call.op_name == "relax.divide":
            by = float_of(call.args[1])
            return call.args[0] is argument and by is not None and math.isclose(by, math.sqrt(2), rel_tol=CLOSE)
        scales = (n for n, v in self.pairs(x, "relax.multiply") if v is argument)
        return any(math.isclose(n, math.sqrt(0.5), rel_tol=CLOSE) for n in scales)

    def pairs(self, x: Expr, name: str) -> list[tuple[float, Var]]:
        """(number, other argument) of a call of that name, where one argument is a number."""
        call = self.call_of(x)
        if call is None or call.op_name != name:
            return []
        both = zip(call.args, reversed(call.args), strict=True)
        return [(n, v) for a, v in both if (n := float_of(a)) is not None and isinstance(v, Var)]


def find_gelu(module: IRModule) -> IRModule:
    """Replace products that are GELU by `nn.gelu`; what they were made of goes where nobody else reads it."""
    return map_functions(module, lambda function: _Finder().rewrite(function))


def FindGelu() -> Pass:  # noqa: N802
    """See `find_gelu`."""
    return graph_pass("FindGelu")(find_gelu)


__all__ = ["FindGelu", "find_gelu"]
