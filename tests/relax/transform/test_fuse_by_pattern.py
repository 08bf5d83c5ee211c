"""Functions of groups that have a form."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import relax
from autosched.ir import IRModule
from autosched.relax.dpl import is_op, wildcard
from autosched.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen
from autosched.script import ir as I  # noqa: E741, N812
from autosched.script import relax as R  # noqa: N812


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.nn.relu(lv1)
            gv = R.add(lv2, lv1)
            R.output(gv)
        return gv


SUM = is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), wildcard())
ARRAYS = [np.random.default_rng(0).standard_normal(s).astype("float32") for s in ((2, 3), (3, 4), (4,))]


def composites(mod: IRModule) -> list[str]:
    return sorted(f.attrs["Composite"] for f in mod.functions.values() if "Composite" in f.attrs)


def test_a_group_becomes_a_function_that_computes_the_same() -> None:
    fused = FuseOpsByPattern([("my.sum", SUM)])(Model)
    assert composites(fused) == ["my.sum"] and "fused_relax_matmul_relax_add" in fused.script()
    built = relax.build(fused, "llvm")
    x, w, b = ARRAYS
    total = x @ w + b
    np.testing.assert_allclose(built["main"](x, w, b).numpy(), np.maximum(total, 0) + total, rtol=1e-5)


def test_values_that_are_read_outside_stay() -> None:
    whole = is_op("relax.nn.relu")(SUM)
    assert FuseOpsByPattern([("my.all", whole)])(Model) is Model  # lv1 is read by the last sum too


def test_a_check_may_refuse() -> None:
    seen = []
    product = is_op("relax.matmul")(lhs := wildcard(), wildcard())
    refused = FuseOpsByPattern([("a.b", product, {"lhs": lhs}, lambda ctx: seen.append(ctx) or False)])(Model)
    assert refused is Model and seen[0].annotated_expr["lhs"].name == "x"


def test_marked_for_a_library_and_merged() -> None:
    marked = FuseOpsByPattern([("lib.sum", SUM)], annotate_codegen=True)(Model)
    assert [f.attrs["Codegen"] for f in marked.functions.values() if "Codegen" in f.attrs] == ["lib"]
    with pytest.raises(ValueError, match="library 'lib'"):
        RunCodegen()(marked)
    merged = MergeCompositeFunctions()(FuseOpsByPattern([("lib.sum", SUM)])(Model))
    assert [f.attrs["Codegen"] for f in merged.functions.values() if "Codegen" in f.attrs] == ["lib"]
    assert RunCodegen()(Model) is Model


@pytest.mark.parametrize("bad", [3, [("a", 1)], [(1, wildcard())], ["x"]])
def test_what_is_no_pattern(bad: object) -> None:
    with pytest.raises(TypeError):
        FuseOpsByPattern(bad)  # type: ignore[arg-type]
