"""Attention between quantisers as one operator: equal to what stood there, byte by byte but for ties of rounding."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.ir import IRModule
from autosched.records import FallbackContext
from autosched.relax import op
from autosched.relax.expr import Call, Expr
from autosched.relax.transform import FuseByteAttention, KeepBytes
from autosched.target import Target, host_cpu

HEADS, D = 2, 32


class Model:
    """Quantised attention as importers write it."""

    def __init__(self, rows: int, keys: int, dtype: str = "uint8"):
        self.bb, self.dtype, self.rows, self.keys = relax.BlockBuilder(), dtype, rows, keys

    def floats(self, q: Expr, scale: float, zero: int) -> Expr:
        emit = self.bb.emit
        whole = emit(op.subtract(emit(op.astype(q, "int32")), relax.const(np.asarray(zero, "int32"))))
        return emit(op.multiply(emit(op.astype(whole, "float32")), relax.const(np.asarray(scale, "float32"))))

    def bytes(self, x: Expr, scale: float, zero: int) -> Expr:
        emit, limits = self.bb.emit, np.iinfo(self.dtype)
        value = emit(op.round(emit(op.divide(x, relax.const(np.asarray(scale, "float32"))))))
        value = emit(op.add(value, relax.const(np.asarray(float(zero), "float32"))))
        return emit(op.astype(emit(op.clip(value, float(limits.min), float(limits.max))), self.dtype))

    def again(self, x: Expr, scale: float, zero: int) -> Expr:
        return self.floats(self.bytes(x, scale, zero), scale, zero)

    def module(self, mask: bool = False, shares: tuple[float, int] = (1 / 255, 0), other: bool = False) -> IRModule:
        """other: somebody else reads the scores."""
        bb, emit = self.bb, self.bb.emit
        shift = 0 if self.dtype == "uint8" else -128
        lengths = {"q": self.rows, "k": self.keys, "v": self.keys}
        given = [relax.Var(n, relax.TensorStructInfo((1, s, HEADS, D), self.dtype)) for n, s in lengths.items()]
        if mask:
            given.append(relax.Var("mask", relax.TensorStructInfo((1, 1, 1, self.keys), "float32")))
        with bb.function("main", given):
            with bb.dataflow():
                factors = (((0, 2, 1, 3), 0.0213, 120), ((0, 2, 3, 1), 0.0317, 131), ((0, 2, 1, 3), 0.0511, 127))
                q, k, v = (
                    self.floats(emit(op.permute_dims(x, axes=axes)), scale, zero + shift)
                    for x, (axes, scale, zero) in zip(given, factors, strict=False)
                )
                scores = emit(op.matmul(q, k))
                x = self.again(scores, 0.2571, 119 + shift)
                x = emit(op.divide(x, relax.const(np.asarray(5.3, "float32"))))
                x = self.again(x, 0.0613, 119 + shift)
                x = emit(op.add(x, given[3])) if mask else x
                p = self.again(emit(op.nn.softmax(x, axis=-1)), shares[0], shares[1] + shift)
                y = self.bytes(emit(op.matmul(p, v)), 0.0512, 128 + shift)
                y = emit(op.permute_dims(y, axes=[0, 2, 1, 3]))
                y = emit(op.add(op.astype(y, "float32"), op.sum(scores))) if other else y
                out = bb.emit_output(y)
            bb.emit_func_output(out)
        module: IRModule = bb.get()
        return module

    def arrays(self, mask: bool = False) -> list[np.ndarray]:
        rng, limits = np.random.default_rng(0), np.iinfo(self.dtype)
        sizes = (self.rows, self.keys, self.keys)
        values = [rng.integers(limits.min, limits.max + 1, (1, s, HEADS, D)).astype(self.dtype) for s in sizes]
        if mask:
            hidden = np.zeros((1, 1, 1, self.keys), "f4")
            hidden[..., ::3] = -1e9
            values.append(hidden)
        return values


def names(module: IRModule) -> list[str]:
    return [b.value.op_name for b in module["main"].bindings() if isinstance(b.value, Call)]


def fused(module: IRModule) -> IRModule:
    done: IRModule = FuseByteAttention(lambda rows, keys: True)(KeepBytes()(module))
    return done


CASES = [(32, 64, "uint8", False), (37, 50, "uint8", True), (16, 128, "int8", False), (48, 300, "int8", True)]


@pytest.mark.parametrize(("rows", "keys", "dtype", "mask"), CASES)
def test_bytes_are_those_of_the_operators(rows: int, keys: int, dtype: str, mask: bool) -> None:
    """In NumPy, and compiled for tile registers where the machine has them."""
    model = Model(rows, keys, dtype)
    module, arrays = model.module(mask), model.arrays(mask)
    wanted = relax.evaluate(module, arrays)
    changed = fused(module)
    assert sum(n.startswith("relax.nn.attention_bytes") for n in names(changed)) == 1
    _close(relax.evaluate(changed, arrays), wanted)
    target = Target("llvm -mcpu=sapphirerapids -num-cores=1")
    if target.features <= host_cpu().runnable:
        built = autosched.build(module, target=target, records=FallbackContext(), threads=1)
        _close(built(*arrays).numpy(), wanted)
        assert any("tdpbf16ps" in k.asm for k in built.kernels.values())


def _close(found: np.ndarray, wanted: np.ndarray) -> None:
    """A power's last digit may make a weight the next byte, a two hundred and fifty-fifth of a value."""
    off = np.abs(found.astype("i4") - wanted.astype("i4"))
    assert found.dtype == wanted.dtype and wanted.std() > 5 and off.max() <= 1 and (off > 0).mean() < 0.01


@pytest.mark.parametrize("kind", ["no tiles", "other scale", "read twice"])
def test_what_stays_as_it_is(kind: str) -> None:
    model = Model(32, 64)
    module = model.module(shares=(1e-9, 0) if kind == "other scale" else (1 / 255, 0), other=kind == "read twice")
    passed = FuseByteAttention(lambda rows, keys: kind != "no tiles")(KeepBytes()(module))
    assert names(passed).count("relax.matmul") == 2
