"""An LLVM builder that keeps to NVVM IR: libnvvm reads the language of LLVM 7 for all but the newest architectures."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from autosched.codegen.cpu.types import I32, constant, lanes_of


class NvvmBuilder(ir.IRBuilder):  # type: ignore[misc]
    """llvmlite's builder without instructions that came after LLVM 7.

    Integers are divided lane by lane. A multiprocessor has no other division, and of x / a % b * a + x % a libnvvm
    makes one remainder: where x is a vector it gives that a scalar divisor, which its own verifier then refuses.
    """

    def fneg(self, arg: ir.Value, name: str = "", flags: tuple[str, ...] = ()) -> ir.Value:
        """-arg; LLVM 7 writes it as -0.0 - arg."""
        return self.fsub(constant(arg.type, -0.0), arg, name=name)

    def sdiv(self, lhs: ir.Value, rhs: ir.Value, *given: Any, **named: Any) -> ir.Value:
        return self._by_lane(super().sdiv, lhs, rhs, *given, **named)

    def srem(self, lhs: ir.Value, rhs: ir.Value, *given: Any, **named: Any) -> ir.Value:
        return self._by_lane(super().srem, lhs, rhs, *given, **named)

    def udiv(self, lhs: ir.Value, rhs: ir.Value, *given: Any, **named: Any) -> ir.Value:
        return self._by_lane(super().udiv, lhs, rhs, *given, **named)

    def urem(self, lhs: ir.Value, rhs: ir.Value, *given: Any, **named: Any) -> ir.Value:
        return self._by_lane(super().urem, lhs, rhs, *given, **named)

    def _by_lane(self, divide: Any, lhs: ir.Value, rhs: ir.Value, *given: Any, **named: Any) -> ir.Value:
        if not isinstance(lhs.type, ir.VectorType):
            return divide(lhs, rhs, *given, **named)
        found: ir.Value = ir.Constant(lhs.type, ir.Undefined)
        for lane in range(lanes_of(lhs)):
            x, y = self.extract_element(lhs, I32(lane)), self.extract_element(rhs, I32(lane))
            found = self.insert_element(found, divide(x, y, *given, **named), I32(lane))
        return found
