"""Attention of bfloat16 with sums of float32: in tile registers (AMX), and on CPUs that have none."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.native import native_for
from autosched.relax.op.attention import attention_bias
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config, space_for
from autosched.tir import PrimFunc
from tests.spread import spread

TILES = Target("llvm -mcpu=sapphirerapids -num-cores=1")
OTHERS = [Target(f"llvm -mcpu={name} -num-cores=1") for name in ("znver4", "x86-64-v3")]
HEADS = ("BHSD",) * 4


@dataclass(frozen=True)
class Case:
    """Batch, queries, keys, heads, elements of a key and of a value; the rest as the operator has it."""

    sizes: tuple[int, int, int, int, int, int]
    layouts: tuple[str, ...] = ("BSHD",) * 4
    bias: tuple[int, ...] = ()
    causal_mask: str | None = None
    window_size: int | None = None
    zero_rows: str | None = None

    def shape(self, layout: str, length: int, width: int) -> tuple[int, ...]:
        sizes = {"B": self.sizes[0], "S": length, "H": self.sizes[3], "D": width}
        return tuple(sizes[x] for x in layout)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        _, m, t, _, d, e = self.sizes
        return [self.shape(x, *n) for x, n in zip(self.layouts, ((m, d), (t, d), (t, e), (m, e)), strict=True)]


CASES = [
    Case((1, 32, 64, 2, 32, 32)),
    Case((1, 64, 128, 2, 64, 64), HEADS),
    Case((1, 48, 64, 2, 64, 64), ("BSHD", "BHDS", "BSHD", "BSHD")),
    Case((1, 32, 64, 2, 32, 48), ("BHDS", "BHSD", "BHDS", "BHSD")),
    Case((2, 37, 61, 3, 40, 24), bias=(2, 1, 1, 61)),
    Case((1, 50, 51, 1, 33, 35), bias=(50, 51)),
    Case((1, 17, 16, 1, 20, 16)),
    Case((1, 3, 5, 2, 7, 9)),
    Case((1, 16, 300, 1, 80, 128)),
    Case((1, 130, 130, 2, 64, 64), causal_mask="TopLeft"),
    Case((1, 40, 130, 2, 64, 64), causal_mask="BottomRight"),
    Case((1, 130, 40, 1, 64, 64), causal_mask="BottomRight"),
    Case((1, 130, 40, 1, 64, 64), causal_mask="BottomRight", zero_rows="masked"),
    Case((1, 70, 200, 1, 32, 64), causal_mask="TopLeft", window_size=20),
    Case((1, 33, 40, 2, 32, 32), bias=(1, 2, 33, 40)),
    Case((1, 33, 40, 2, 32, 32), bias=(1, 2, 33, 40), zero_rows="nan"),
    Case((1, 33, 40, 2, 32, 32), bias=(1, 2, 33, 40), zero_rows="masked"),
]


def attention(case: Case) -> PrimFunc:
    args = [te.placeholder(s, "bfloat16", name=n) for s, n in zip(case.shapes, "qkv", strict=False)]
    args += [te.placeholder(case.bias, "float32", name="bias")] if case.bias else []
    bias = args[3] if case.bias else None
    masks = case.causal_mask, case.window_size
    return te.create_prim_func(
        [*args, topi.attention(*args[:3], bias, 0.125, *masks, case.layouts, case.zero_rows, "float32")]
    )


def arrays(case: Case) -> list[np.ndarray]:
    """Query, key, value and bias, in which whole rows are hidden."""
    rng = np.random.default_rng(0)
    values: list[np.ndarray] = [rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in case.shapes[:3]]
    if case.bias:
        bias = rng.standard_normal(case.bias).astype("f4")
        if len(case.bias) == 4 and case.bias[2] > 1:
            bias[rng.random(case.bias) < 0.3] = -np.inf
            bias[:, 0, 5], bias[:, 1, -1] = -np.inf, -np.inf
        values.append(bias)
    return values


def wanted(case: Case, values: list[np.ndarray]) -> np.ndarray:
    bias = values[3] if case.bias else np.zeros((1, 1), "f4")
    wide = [x.astype("f8") for x in (*values[:3], bias)]
    masks = {"causal_mask": case.causal_mask, "window_size": case.window_size, "zero_rows": case.zero_rows}
    attrs = {"scale": 0.125, **masks, "layouts": case.layouts, "out_dtype": None, "shared": 1}
    found: np.ndarray = attention_bias.reference(*wide, **attrs)
    return found


def compiled(func: PrimFunc, target: Target, **knobs: int) -> CompiledKernel:
    config = default_config(func, target)
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), target)
    return compile_func(applied.func, target, name="k")


def check(case: Case, target: Target, **knobs: int) -> None:
    if not target.features <= host_cpu().runnable:
        pytest.skip("this machine cannot run such code")
    values = arrays(case)
    out = np.full(case.shapes[3], 7, "f4")
    kernel = compiled(attention(case), target, **knobs)
    Module({"k": kernel.kernel}, native_for(target), threads=1)(*values, out)
    exact = wanted(case, values)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(exact))
    assert np.nanmax(np.abs(out - exact)) <= 0.01, "weights are rounded to bfloat16, by 0.4 % at most"


@spread(3, "case", CASES, ids=str)
def test_tiles_give_what_the_operator_does(case: Case) -> None:
    assert default_config(attention(case), TILES).template == "attention_amx"
    check(case, TILES)


@spread(2, "knobs", [(1, 1, 1, 1), (4, 4, 4, 1), (8, 3, 1, 1), (1, 1, 2, 4), (2, 2, 2, 2)])
@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[9]], ids=str)
def test_every_shape_of_tiles_is_right(case: Case, knobs: tuple[int, ...]) -> None:
    check(case, TILES, **dict(zip(("chunk", "vectors", "value_vectors", "parts"), knobs, strict=True)))


@pytest.mark.parametrize("target", OTHERS, ids=str)
@spread(3, "case", [*CASES[:6], CASES[9], CASES[12], CASES[16]], ids=str)
def test_other_cpus_compute_the_same_in_float32(case: Case, target: Target) -> None:
    assert default_config(attention(case), target).template == "attention"
    check(case, target)


def test_keys_and_values_are_arranged_in_registers() -> None:
    """Words of keys are turned in squares, rows of values interleaved; no element goes by itself."""
    kernel = compiled(attention(CASES[0]), TILES)
    assert not any(name in kernel.asm for name in ("vpinsrw", "vpextrw", "vpscatter", "vpgather"))
    assert kernel.asm.count("\ttdpbf16ps\t") == 8 and "vcvtne" in kernel.asm
    assert kernel.asm.count("\tldtilecfg\t") == 1


def test_a_space_has_only_what_can_be_built() -> None:
    func = attention(CASES[6])
    found = [config for config in space_for(func, TILES).sample(0, 100) if config.template == "attention_amx"]
    assert {config["chunk"] * config["parts"] for config in found} == {1, 2}, "17 queries are two tiles"
    assert {(config["vectors"], config["value_vectors"]) for config in found} == {(1, 1)}


def test_attention_between_quantisers_goes_through_tiles_where_there_are_some() -> None:
    q, k, v = (te.placeholder((1, 32, 2, 32), "bfloat16", name=n) for n in "qkv")
    changes = (("multiply", 0.01), ("quantise", 0.05, 3, "uint8", 0.05))
    func = te.create_prim_func(
        [q, k, v, topi.attention_bytes(q, k, v, None, changes, (1 / 255, 0, "uint8"), ("BSHD",) * 4)]
    )
    assert default_config(func, TILES).template == "attention_amx"
    assert "tdpbf16ps" in compiled(func, TILES).asm
    assert all(not default_config(func, t).template.startswith("attention") for t in OTHERS)
