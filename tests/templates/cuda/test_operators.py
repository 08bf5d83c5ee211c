"""Every operator becomes machine code for a GPU, without stack or spills, and computes what NumPy does."""

from __future__ import annotations

import numpy as np
import pytest

import autosched.relax.op  # noqa: F401  (fills the table)
from autosched import te, topi
from autosched.codegen import compile_func
from autosched.relax import BlockBuilder
from autosched.relax.expr import ShapeExpr, Tuple, Var
from autosched.relax.op.registry import OPERATORS, OpDef, python_argument
from autosched.relax.struct_info import ShapeStructInfo, StructInfo, TupleStructInfo, tensor_infos
from autosched.relax.te_call import make_te_call
from autosched.relax.transform import LegalizeOps
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc
from tests.relax.op_samples import arguments

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
from autosched.codegen.cuda.emulate.kernel import run_kernel  # noqa: E402
from tests.spread import spread

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
    """Each sample's default kernel is machine code, and computes on the emulator what NumPy does."""
    definition = OPERATORS[name]
    for sample in definition.samples:
        args = arguments(definition, sample)
        call = definition.make(args, sample.attrs)
        wanted = definition.run_reference([python_argument(a, lambda c: c.data) for a in args], call.attrs)
        assert definition.compute is not None
        made = make_te_call(definition.compute, args, call.attrs)
        applied = apply_config(made.func, default_config(made.func, TARGET), TARGET)
        kernel = compile_func(applied.func, TARGET, name="kernel").kernel
        assert kernel.images["sm_90a"].startswith(b"\x7fELF")
        packs = zip(made.args, applied.packs, strict=False)
        inputs = [np.array(x.data) if pack is None else pack.pack(x.data) for x, pack in packs]
        for order in ("late", "ahead"):
            infos = tensor_infos(call.struct_info)
            outputs = [np.full(x.static_shape, np.nan if "float" in x.dtype else 85, x.dtype) for x in infos]
            run_kernel(kernel, [*inputs, *outputs], order=order)
            for found, expected in zip(outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                rtol = 2e-3 if found.dtype == np.float16 else 1e-4
                np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-4, err_msg=f"{sample}, {order}")


@spread(2, "name", sorted(EVERY_DAY))
def test_an_operator_runs(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPERATORS) - EVERY_DAY))
def test_other_operators_run(name: str) -> None:
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
    for name, samples in (("scatter_nd", slice(None)), ("scatter_elements", slice(4, None))):
        for sample in OPERATORS[name].samples[samples]:
            (func,) = kernels_of(OPERATORS[name], sample)
            assert default_config(func, TARGET).template == "scatter"


@pytest.mark.parametrize("name, value", [("max", -np.inf), ("min", np.inf)])
@pytest.mark.parametrize("shape, axis", [((5, 70), 0), ((5, 70), 1), ((2, 30001), 1)])
def test_infinities_are_the_largest_of_themselves(name: str, value: float, shape: tuple[int, int], axis: int) -> None:
    """A reduction that begins with the smallest finite number would give that, or its parts that are not all there."""
    x = te.placeholder(shape, "float64", "x")
    func = te.create_prim_func([x, getattr(topi, name)(x, axis, keep_nan=True)])
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="kernel").kernel
    out = np.zeros(kernel.outputs[0].shape)
    run_kernel(kernel, [np.full(shape, value), out])
    assert (out == value).all()
