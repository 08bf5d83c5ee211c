"""What tests of the emulator share: from Python functions and inline PTX to LLVM IR, by Numba's CUDA target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda, which the extra `cuda` brings")

from llvmlite import ir
from numba import types
from numba.cuda import compiler
from numba.cuda.extending import intrinsic

from autosched.codegen.cuda.emulate import Checks, Trace, run_launch

F32, F64, I32, I64, F16 = (
    types.CPointer(kind) for kind in (types.float32, types.float64, types.int32, types.int64, types.uint16)
)
I8 = types.CPointer(types.int8)
BOTH = ("late", "ahead")
NO_CHECKS = Checks(races=False, unset=False)


@cache
def text_of(
    function: Callable[..., None], *arguments: Any, fastmath: bool = False, lineinfo: bool = False
) -> tuple[str, str]:
    """The LLVM IR of a kernel with these argument types, and its symbol."""
    library, _ = compiler._compile_pyfunc_with_fixup(
        function, types.void(*arguments), device=False, abi="numba", cc=(9, 0), fastmath=fastmath, lineinfo=lineinfo
    )
    return library.get_llvm_str(), library._entry_name


def launch(
    function: Callable[..., None],
    kinds: Sequence[Any],
    grid: Sequence[int],
    block: Sequence[int],
    arrays: Sequence[Any],
    *,
    shared_bytes: int = 0,
    order: str = "late",
    checks: Checks | None = None,
    trace: Trace | None = None,
    cluster: Sequence[int] = (1, 1, 1),
    **options: Any,
) -> None:
    text, symbol = text_of(function, *kinds, **options)
    run_launch(
        text,
        symbol,
        grid,
        block,
        shared_bytes,
        arrays,
        order=order,
        checks=checks or Checks(),
        trace=trace,
        cluster=cluster,
    )


_IR = {
    "f": (ir.FloatType(), types.float32),
    "d": (ir.DoubleType(), types.float64),
    "r": (ir.IntType(32), types.int32),
    "l": (ir.IntType(64), types.int64),
    "h": (ir.IntType(16), types.uint16),
}


def ptx(text: str, results: str, arguments: str) -> Any:
    """A function for kernels that runs an inline assembly.

    results, arguments  a letter for each operand: f, d, r (32 bits), l (64 bits or a pointer), h (16 bits)
    The function gives nothing, one value, or a tuple.
    """
    outs, ins = [_IR[letter] for letter in results], [_IR[letter] for letter in arguments]
    result = types.void if not outs else outs[0][1] if len(outs) == 1 else types.Tuple([kind for _, kind in outs])
    constraints = ",".join([*("=" + letter for letter in results), *arguments, "~{memory}"])

    def typed(_context: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = []
            for value, (kind, _) in zip(args, ins):
                if isinstance(value.type, ir.PointerType):
                    value = builder.ptrtoint(value, ir.IntType(64))
                elif isinstance(kind, ir.IntType) and value.type.width > kind.width:
                    value = builder.trunc(value, kind)
                elif isinstance(kind, ir.IntType) and value.type.width < kind.width:
                    value = builder.sext(value, kind)
                values.append(value)
            if not outs:
                made: Any = ir.VoidType()
            else:
                made = outs[0][0] if len(outs) == 1 else ir.LiteralStructType([kind for kind, _ in outs])
            function = ir.InlineAsm(
                ir.FunctionType(made, [v.type for v in values]), text, constraints, side_effect=True
            )
            call = builder.call(function, values)
            if not outs:
                return context.get_dummy_value()
            if len(outs) == 1:
                return call
            items = [builder.extract_value(call, k) for k in range(len(outs))]
            return context.make_tuple(builder, signature.return_type, items)

        return result(*given), generate

    scope: dict[str, Any] = {"typed": typed}
    names = ", ".join(f"a{k}" for k in range(len(ins)))
    exec(f"def assembly(typing_context, {names}):\n    return typed(typing_context, {names})", scope)
    return intrinsic(scope["assembly"])


@intrinsic
def address(_context: Any, array: Any) -> Any:
    """The address of an array's data."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def moved(_context: Any, pointer: Any, count: Any) -> Any:
    """The address of the element `count` of a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(builder.gep(args[0], [args[1]]), ir.IntType(64))

    return types.int64(pointer, count), generate


shared_address = ptx("{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }", "r", "l")


def integers(*shape: int, seed: int = 0, kind: Any = np.float32, limit: int = 8) -> Any:
    """Small whole numbers, whose products and sums no type rounds."""
    return np.random.default_rng(seed).integers(-limit, limit, shape).astype(kind)
