"""Kernels of symbolic sizes, and groups of kernels with tuples."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.ir import IRModule
from autosched.relax import transform
from autosched.script import from_source
from autosched.tir import PrimFunc

SYMBOLIC = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
    n = T.int64()
    with R.dataflow():
        y = R.matmul(x, w)
        z = R.nn.relu(y)
        R.output(z)
    return z
"""


def run(module: IRModule, *arrays: np.ndarray):  # type: ignore[no-untyped-def]
    vm = relax.VirtualMachine(relax.build(module, "llvm"), autosched.cpu())
    return vm["main"](*(autosched.nd.array(a) for a in arrays))


def kernels(module: IRModule) -> list[str]:
    return sorted(gv.name for gv, f in module.functions_items() if isinstance(f, PrimFunc))


@pytest.mark.parametrize(
    ("pipeline", "names"),
    [(transform.LegalizeOps(), ["matmul", "relu"]), (relax.get_pipeline("zero"), ["fused_matmul_relu"])],
)
def test_operators_of_symbolic_sizes_become_kernels(pipeline, names) -> None:  # type: ignore[no-untyped-def]
    module = pipeline(IRModule({"main": from_source(SYMBOLIC)}))
    assert kernels(module) == names
    assert "R.matmul" not in module.script()
    rng = np.random.default_rng(0)
    w = rng.random((4, 8), dtype=np.float32) - 0.5
    for n in (3, 5):
        x = rng.random((n, 4), dtype=np.float32)
        np.testing.assert_allclose(run(module, x, w).numpy(), np.maximum(x @ w, 0), rtol=1e-5)


def test_bound_sizes_reach_the_kernels() -> None:
    module = transform.LegalizeOps()(IRModule({"main": from_source(SYMBOLIC)}))
    bound = transform.BindSymbolicVars({"n": 5})(module)
    shapes = [b.const_shape() for _, f in bound.functions_items() if isinstance(f, PrimFunc) for b in f.buffers]
    assert (5, 8) in shapes and len(kernels(bound)) == 2


def test_a_size_that_follows_from_no_input_leaves_the_operator() -> None:
    module = IRModule({"main": from_source("""
@R.function
def main(s: R.Shape(["n"]), x: R.Tensor((1,), "float32")):
    n = T.int64()
    y: R.Tensor((n,), "float32") = R.broadcast_to(x, R.shape([n]))
    return y
""")})  # fmt: skip
    assert "R.broadcast_to" in transform.LegalizeOps()(module).script()


GROUP = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def split(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), a: T.Buffer((T.int64(4), T.int64(4)), "float32"),
              b: T.Buffer((T.int64(4), T.int64(4)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(4)):
            with T.block("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = x[vi, vj]
        for i, j in T.grid(T.int64(4), T.int64(4)):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = x[vi, vj + T.int64(4)]

    @T.prim_func(private=True)
    def add(x: T.Buffer((T.int64(4), T.int64(4)), "float32"), y: T.Buffer((T.int64(4), T.int64(4)), "float32"),
            z: T.Buffer((T.int64(4), T.int64(4)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(4)):
            with T.block("z"):
                vi, vj = T.axis.remap("SS", [i, j])
                z[vi, vj] = x[vi, vj] + y[vi, vj]

    @R.function(private=True)
    def fused(t: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 4), "float32"))):
        R.func_attr({"Primitive": True})
        cls = Module
        with R.dataflow():
            x: R.Tensor((4, 8), "float32") = t[0]
            y: R.Tensor((4, 4), "float32") = t[1]
            s = R.call_tir(cls.split, (x,), out_sinfo=[R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")])
            a: R.Tensor((4, 4), "float32") = s[0]
            b: R.Tensor((4, 4), "float32") = s[1]
            c = R.call_tir(cls.add, (a, b), out_sinfo=R.Tensor((4, 4), "float32"))
            d = R.call_tir(cls.add, (c, y), out_sinfo=R.Tensor((4, 4), "float32"))
            o: R.Tuple(R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")) = ({result}, d)
            R.output(o)
        return o

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 4), "float32")):
        cls = Module
        with R.dataflow():
            o: R.Tuple(R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")) = cls.fused((x, y))
            R.output(o)
        return o
"""


def test_tuples_of_a_group_become_their_tensors() -> None:
    module = transform.FuseTIR()(from_source(GROUP.replace("{result}", "b")))
    assert kernels(module) == ["fused"]
    assert len(module["fused"].buffers) == 4
    rng = np.random.default_rng(0)
    x, y = rng.random((4, 8), dtype=np.float32), rng.random((4, 4), dtype=np.float32)
    b, d = run(module, x, y)
    np.testing.assert_array_equal(b.numpy(), x[:, 4:])
    np.testing.assert_allclose(d.numpy(), x[:, :4] + x[:, 4:] + y, rtol=1e-6)


@pytest.mark.parametrize("result", ["d", "y"])
def test_a_group_that_gives_a_value_twice_or_an_argument_is_refused(result: str) -> None:
    with pytest.raises(ValueError, match="'fused' gives back"):
        transform.FuseTIR()(from_source(GROUP.replace("{result}", result)))
