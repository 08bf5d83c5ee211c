"""Every operator of the registry becomes machine code for a GPU: its default configuration, without stack or spills."""

from __future__ import annotations

import pytest

import autosched.relax.op  # noqa: F401  (fills the table)
from autosched.codegen import compile_func
from autosched.relax import BlockBuilder
from autosched.relax.expr import ShapeExpr, Tuple, Var
from autosched.relax.op.registry import OPERATORS, OpDef
from autosched.relax.struct_info import ShapeStructInfo, StructInfo, TupleStructInfo
from autosched.relax.transform import LegalizeOps
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")
# One of each family for every day; the others with `make test-all`.
EVERY_DAY = {"erf", "floor_mod", "take", "scatter_elements", "nn.softmax", "nn.conv2d", "argsort", "astype", "trunc"}


def kernels_of(definition: OpDef, sample: object) -> list[PrimFunc]:
    """The PrimFuncs that a call of the operator with a sample's types is made of."""
    params: list[Var] = []

    def argument(info: StructInfo, name: str) -> object:
        if isinstance(info, TupleStructInfo):
            return Tuple(tuple(argument(f, f"{name}_{i}") for i, f in enumerate(info.fields)))
        if isinstance(info, ShapeStructInfo):
            return ShapeExpr(info.values)
        params.append(Var(name, info))
        return params[-1]

    builder = BlockBuilder()
    args = [argument(info, f"x{i}") for i, info in enumerate(sample.types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(definition.make(args, sample.attrs))
        builder.emit_func_output(out)
    module = LegalizeOps()(builder.get())
    return [f for _, f in module.functions_items() if isinstance(f, PrimFunc)]


def check(name: str) -> None:
    for sample in OPERATORS[name].samples:
        for func in kernels_of(OPERATORS[name], sample):
            made = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="kernel")
            assert made.kernel.images["sm_90a"].startswith(b"\x7fELF")


@pytest.mark.parametrize("name", sorted(EVERY_DAY))
def test_an_operator_becomes_machine_code(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPERATORS) - EVERY_DAY))
def test_other_operators_become_machine_code(name: str) -> None:
    check(name)


@pytest.mark.parametrize(
    "name, template", [("sort", "sort"), ("argsort", "sort"), ("topk", "sort"), ("cumsum", "scan"), ("cumprod", "scan")]
)
def test_operators_get_templates_of_their_own(name: str, template: str) -> None:
    """As models have them, whose loops count in 64 bits."""
    for sample in OPERATORS[name].samples:
        for func in kernels_of(OPERATORS[name], sample):
            assert default_config(func, TARGET).template == template


def test_scatter_of_many_updates_has_a_template_of_its_own() -> None:
    for name, samples in (("scatter_nd", slice(None)), ("scatter_elements", slice(3, None))):
        for sample in OPERATORS[name].samples[samples]:
            (func,) = kernels_of(OPERATORS[name], sample)
            assert default_config(func, TARGET).template == "scatter"
