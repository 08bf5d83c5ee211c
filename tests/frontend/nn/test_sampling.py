"""Tokens drawn from probabilities against NumPy, over open sizes; a registered function in a model."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.frontend import nn

BATCH, SIZE, SAMPLES = 3, 7, 6


class Sampler(nn.Module):
    def sample(self, p, index, top_p, top_k, u, rows):
        return nn.op.sample_top_p_top_k_from_sorted_prob(p, index, top_p, top_k, u, rows)

    def renormalize(self, p, sorted_p, top_p, top_k):
        return nn.op.renormalize_top_p_top_k_prob(p, sorted_p, top_p, top_k)

    def draw(self, p, u, rows):
        return nn.op.multinomial_from_uniform(p, u, rows)


def test_sampling() -> None:
    spec, f, i = nn.spec.Tensor, "float32", "int64"
    tops = {"top_p": spec(["b", 1], f), "top_k": spec(["b", 1], i)}
    drawn = {"u": spec(["n", 1], f), "rows": spec(["n", 1], i)}
    mod, _ = Sampler().export_tvm({
        "sample": {"p": spec(["b", "v"], f), "index": spec(["b", "v"], i), **tops, **drawn},
        "renormalize": {"p": spec(["b", "v"], f), "sorted_p": spec(["b", "v"], f), **tops},
        "draw": {"p": spec(["b", "v"], f), **drawn},
    })  # fmt: skip
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), autosched.cpu())
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(SIZE), BATCH).astype(f)
    order = np.argsort(-p, axis=1)
    sorted_p = np.take_along_axis(p, order, 1)
    top_p, top_k = np.float32([[2], [0.6], [0.01]]), np.array([[SIZE], [4], [3]])  # all, some, one
    u, rows = rng.random((SAMPLES, 1), f), rng.integers(0, BATCH, (SAMPLES, 1))
    inside = (sorted_p.cumsum(1) < top_p) & (np.arange(SIZE) + 1 < top_k)
    last = np.minimum(inside.sum(1), SIZE - 1)
    kept = np.where(np.arange(SIZE) <= last[:, None], sorted_p, 0)
    kept = kept / kept.sum(1, keepdims=True)
    at = (u >= kept.cumsum(1)[rows[:, 0]]).sum(1)
    found = vm["sample"](sorted_p, order, top_p, top_k, u, rows).numpy()
    np.testing.assert_array_equal(found[:, 0], order[rows[:, 0], at])
    want = np.zeros_like(p)
    np.put_along_axis(want, order, kept, 1)
    np.testing.assert_allclose(vm["renormalize"](p, sorted_p, top_p, top_k).numpy(), want, rtol=1e-5)
    np.testing.assert_array_equal(vm["draw"](p, u, rows).numpy()[:, 0], (u >= p.cumsum(1)[rows[:, 0]]).sum(1))


def test_sampling_refused() -> None:
    spec = nn.spec.Tensor([2, 4], "float32"), nn.spec.Tensor([3, 1], "float32")
    with pytest.raises(ValueError, match="sample_indices"):
        Sampler().export_tvm({"draw": {"p": spec[0], "u": spec[1], "rows": nn.spec.Tensor([2, 1], "int64")}})


def test_extern() -> None:
    @autosched.register_func("test_sampling.twice", override=True)
    def twice(x, scale, out):
        autosched.nd.array(x.numpy() * scale).copyto(out)

    class Extern(nn.Module):
        def forward(self, x):
            return nn.op.extern("test_sampling.twice", [x, 2], nn.Tensor.placeholder(x.shape, x.dtype))

    mod, _ = Extern().export_tvm({"forward": {"x": nn.spec.Tensor([2], "float32")}})
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), autosched.cpu())
    np.testing.assert_array_equal(vm["forward"](np.float32([1, 2])).numpy(), [2, 4])
