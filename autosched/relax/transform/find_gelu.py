"""GELU as files spell it becomes one operator: a third less arithmetic, and one step behind a product.

x * (1 + erf(x / sqrt(2))) / 2                               ->  nn.gelu(x)
x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2   ->  nn.gelu_tanh(x)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.rewrite import CallTracker, float_of, map_functions
from autosched.relax.struct_info import same_info

CLOSE, CLOSE_OF_HALVES = 1e-5, 1e-3  # of numbers as files write them, and of those that were rounded to 16 bits
# What a function makes GELU of, and the polynomial that it is of: coefficients by powers of the argument.
SPELLINGS: dict[str, tuple[Callable[[Expr], Call], dict[int, float]]] = {
    "relax.erf": (op.nn.gelu, {1: math.sqrt(0.5)}),
    "relax.tanh": (op.nn.gelu_tanh, {1: math.sqrt(2 / math.pi), 3: 0.044715 * math.sqrt(2 / math.pi)}),
}
ARITHMETIC = ("relax.add", "relax.multiply", "relax.divide", "relax.power")
MOST_STEPS = 6  # from such a function to its argument


class _Finder(CallTracker):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[float] = []  # of the polynomial at hand

    def call(self, call: Call, var: Var) -> Expr:
        self.calls[var] = call  # what it was
        found = self.gelu(call) if call.op_name == "relax.multiply" else None
        return call if found is None else found

    def gelu(self, product: Call) -> Call | None:
        """The GELU that a product is; None of others."""
        number, others = self.factors(product)
        if len(others) != 2 or not math.isclose(number, 0.5, rel_tol=CLOSE):
            return None
        for x, total in (others, others[::-1]):
            if isinstance(x, Var) and same_info(x.struct_info, product.struct_info):
                kind = self.kind_of(total, x)
                if kind is not None:
                    return kind(x)
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

    def kind_of(self, x: Expr, argument: Var) -> Callable[[Expr], Call] | None:
        """Which GELU an argument times a value is half of: the value is 1 + a function of `SPELLINGS`. None: none."""
        for one, call in self.pairs(x, "relax.add"):
            inner = self.call_of(call)
            if one == 1.0 and inner is not None and inner.op_name in SPELLINGS:
                gelu, wanted = SPELLINGS[inner.op_name]
                self.numbers.clear()
                found = self.polynomial(inner.args[0], argument)
                close = CLOSE_OF_HALVES if all(map(_is_half, self.numbers)) else CLOSE
                same = (math.isclose(found[n], wanted[n], rel_tol=close) for n in wanted if n in found)
                if found.keys() == wanted.keys() and all(same):
                    return gelu
        return None

    def polynomial(self, x: Expr, argument: Var, depth: int = MOST_STEPS) -> dict[int, float]:
        """A value's coefficients by powers of the argument; none where it is no polynomial of few steps."""
        if x is argument:
            return {1: 1.0}
        if (number := float_of(x)) is not None:
            self.numbers.append(number)
            return {0: number}
        call = self.call_of(x)
        if call is None or call.op_name not in ARITHMETIC or not depth:
            return {}
        left, right = (self.polynomial(a, argument, depth - 1) for a in call.args)
        if not left or not right:
            return {}
        if call.op_name == "relax.add":
            return {n: left.get(n, 0.0) + right.get(n, 0.0) for n in {*left, *right}}
        if call.op_name == "relax.multiply":
            product: dict[int, float] = {}
            for n, m in itertools.product(left, right):
                product[n + m] = product.get(n + m, 0.0) + left[n] * right[m]
            return product
        number = right.get(0) if len(right) == 1 else None
        if call.op_name == "relax.divide":
            return {n: c / number for n, c in left.items()} if number else {}
        return {3 * n: c * c * c for n, c in left.items()} if number == 3.0 and len(left) == 1 else {}

    def pairs(self, x: Expr, name: str) -> list[tuple[float, Var]]:
        """(number, other argument) of a call of that name, where one argument is a number."""
        call = self.call_of(x)
        if call is None or call.op_name != name:
            return []
        both = zip(call.args, reversed(call.args), strict=True)
        return [(n, v) for a, v in both if (n := float_of(a)) is not None and isinstance(v, Var)]


def _is_half(number: float) -> bool:
    """Whether float16 holds a number, as it does what bfloat16 has of those here."""
    with np.errstate(over="ignore"):
        return float(np.float16(number)) == number


def find_gelu(module: IRModule) -> IRModule:
    """Replace products that are GELU by that operator; what they were made of goes where nobody else reads it."""
    return map_functions(module, lambda function: _Finder().rewrite(function))


def FindGelu() -> Pass:  # noqa: N802
    """See `find_gelu`."""
    return graph_pass("FindGelu")(find_gelu)


__all__ = ["FindGelu", "find_gelu"]
