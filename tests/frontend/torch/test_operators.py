"""Operators whose meaning in PyTorch is easily missed, imported and compared with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import autosched
from autosched.errors import ImportModelError, IndexOutOfRangeError
from autosched.frontend.torch import from_exported_program
from autosched.frontend.torch.graph import array_of
from autosched.relax import evaluate
from autosched.runtime import Executable
from autosched.runtime.dynamic import DynamicExecutable

X = torch.tensor([[1.5, -2.0, 0.5, 7.0], [-7.25, 3.0, 2.0, -0.5]])
N = torch.tensor([[5, -5, 7, -7], [3, 12, -1, 6]])
M = torch.tensor([[3, 3, -3, -3], [2, -5, 7, 4]])
AT = torch.tensor([[0, 1, 1], [1, 0, 1]])

CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "bits of integers": (lambda x, y: ((x & y) | 8, x ^ y, ~x, x << 2, x >> 1), (N, M)),
    "bits of truths": (lambda x, y: ((x > 0) & (y > 0), ~(x > 0), (x > 0) ^ (y > 0)), (N, M)),
    "remainders of integers": (lambda x, y: (x % y, torch.fmod(x, y), x // y), (N, M)),
    "quotients of integers": (lambda x, y: (x / y, torch.div(x, y, rounding_mode="trunc")), (N, M)),
    "remainders": (lambda x, y: (x % y, torch.fmod(x, y), x // y, torch.div(x, y, rounding_mode="trunc")), (X, M)),
    "limits in the wrong order": (lambda x, n: (x.clamp(3, 1), n.clamp(3, 1)), (X, N)),
    "a quotient that is rounded up": (lambda x: (x // 0.1, x % 0.1), (torch.tensor([1.0, 0.3, -1.0]),)),
    "promotion": (lambda x, n: (n + 1.5, n * x, n.to(torch.int8) + n.to(torch.uint8), n + x.sum(), n**2.0), (X, N)),
    "a 0-d tensor has no weight": (lambda n: n.to(torch.int16) + n.sum(), (N,)),
    "sums": (lambda n: (n.to(torch.int8).sum(0), (n > 0).sum(), n.to(torch.uint8).cumsum(1), (n > 0).prod(1)), (N,)),
    "any and all": (
        lambda x: (
            (x > 0).any(1),
            x.any(),
            (x > 9).all(0, keepdim=True),
            torch.any(x > 3, dim=(0, 1)),
            torch._is_all_true(x < 9),
        ),
        (X,),
    ),
    "histograms": (
        lambda x: (torch.histc(x, 6, -1, 2), torch.histc(x, 7), torch.histc(x * 0, 3, 2, 2)),
        (torch.cat([X.reshape(-1), torch.tensor([-1.0, 2.0, 2.5, 0.5])]),),
    ),
    "norms": (lambda x: (torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(x, 1), x.norm(3)), (X,)),
    "largest norms": (lambda x: (torch.linalg.vector_norm(x, torch.inf), torch.linalg.vector_norm(x, 0, dim=0)), (X,)),
    "functions": (lambda x: (torch.expm1(x), x.abs().log2(), torch.atan2(x, x - 1), x.trunc(), x.frac()), (X,)),
    "functions of probability": (
        lambda x: (x.lgamma(), x.digamma(), x.erfc(), (x / 8).erfinv(), torch.polygamma(0, x), x.double().digamma()),
        (X,),
    ),
    "special functions at their ends": (
        lambda x: (x.lgamma(), x.digamma(), x.erfc(), x.erfinv(), x.double().erfinv(), x.double().digamma()),
        (
            torch.tensor(
                [0.0, -0.0, 1.0, -1.0, -2.0, 2.0, 1e-30, 1e30, torch.inf, -torch.inf, torch.nan, 0.9999, -39.5]
            ),
        ),
    ),
    "signs": (
        lambda x, n: (
            x.signbit(),
            n.signbit(),
            (n > 0).signbit(),
            (n > 0).square(),
            torch.copysign(x, -n),
            torch.copysign(n, x.angle()),
        ),
        (torch.tensor([[1.5, -0.0, 0.0, -7.0], [-torch.inf, 3.0, torch.nan, -0.5]]), N),
    ),
    "hypotenuses": (lambda x: (torch.hypot(x, x + 1), torch.hypot(x * 1e30, x * 1e30)), (X,)),
    "running logarithms of sums": (
        lambda x: (torch.logcumsumexp(x, 1), torch.logcumsumexp(x * 40, 0), torch.logcumsumexp(x[0, 0], 0)),
        (torch.tensor([[-torch.inf, -torch.inf, 1.5, -2.0, torch.inf], [0.5, 7.0, torch.nan, -7.25, 3.0]]),),
    ),
    "modes": (
        lambda n: (*torch.mode(n), *torch.mode(n.float(), 0, keepdim=True), *torch.mode(n > 0), *torch.mode(n[0, 0])),
        (torch.tensor([[5, -5, 7, -7, 7, -5], [3, 12, -1, 3, 3, 12]]),),
    ),
    "products of batches": (lambda x: torch.addbmm(x[:, :2], x[None], x[None].mT, beta=2, alpha=0.5), (X,)),
    "bilinear": (lambda x, n: F.bilinear(x, n.float()[:, :3], torch.arange(24.0).reshape(2, 4, 3), x[0, :2]), (X, N)),
    "steps between numbers of the model": (
        lambda x: (torch.linspace(x[0, 0], x[1, 0], 7), torch.linspace(2, x[0, 3], 1), torch.linspace(x[0, 1], 9, 4)),
        (X,),
    ),
    "the largest of shares": (
        lambda x: (
            *F.adaptive_max_pool2d(x, (3, 5), return_indices=True),
            F.adaptive_max_pool1d(x[0], 4),
            *F.adaptive_max_pool3d(x[None], (2, None, 4), return_indices=True),
        ),
        (torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(1)),),
    ),
    "reductions by an index": (
        lambda x, i: [
            x.index_reduce(1, i[0], x[:, :3], r, include_self=s)
            for r in ("prod", "amin", "mean")
            for s in (True, False)
        ],
        (X, AT),
    ),
    "places of a number": (
        lambda x, i: (
            x[0, 0].index_fill(0, i[0, :1], 3.0),
            x[0, 0].index_copy(0, i[0, :1] * 0, x[1, 1]),
            F.prelu(x[1, 0], x[0, :1]),
        ),
        (X, AT * 0),
    ),
    "samples of volumes": (
        lambda x, g: [
            F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=a)
            for m, p, a in (
                ("bilinear", "zeros", True),
                ("bilinear", "border", False),
                ("bilinear", "reflection", False),
                ("nearest", "reflection", True),
            )
        ],
        (
            torch.randn(1, 2, 3, 4, 5, generator=torch.Generator().manual_seed(1)),
            torch.rand(1, 2, 2, 3, 3, generator=torch.Generator().manual_seed(2)) * 3 - 1.5,
        ),
    ),
    "means of windows of integers": (
        lambda n: (F.avg_pool3d(n, 2), F.avg_pool3d(n[0], 3, 2, 1, count_include_pad=False), F.avg_pool2d(n[0], 2)),
        (torch.arange(-30, 90).reshape(1, 2, 3, 4, 5) ** 3 % 17 - 8,),
    ),
    "functions of integers": (lambda n: (n.exp(), n.abs().sqrt(), n.ceil(), n.sigmoid(), n.isnan()), (N,)),
    "halves to even": (
        lambda x: (x.round(), torch.round(x, decimals=1)),
        (torch.tensor([0.5, 1.5, -2.5, 0.25, 0.35]),),
    ),
    "sort": (lambda x: (*x.sort(dim=1), *x.sort(dim=0, descending=True), x.argsort(1)), (X,)),
    "topk": (lambda x: (*x.topk(2), *x.topk(1, dim=0, largest=False)), (X,)),
    "index": (lambda x, i: (x[i, i], x[:, i], x[i, 1], x[..., None, i]), (X, AT)),
    "index apart": (lambda x, i: x.reshape(2, 2, 2)[i, :, i], (X, AT)),
    "gather": (lambda x, i: (x.gather(1, i), x.take_along_dim(i[:, :1], 0)), (X, AT)),
    "put": (lambda x, i: (x.index_put((i, i), x[0, :3]), x.index_put((i,), x[0], accumulate=True)), (X, AT)),
    "put by a mask": (lambda x: (torch.where(x > 0, x, 0.0), x.clone().masked_fill_(x < 0, 9), _put(x)), (X,)),
    "scatter": (lambda x, i: (x.scatter(1, i, 5.0), x.scatter(1, i, x * 2), x.scatter_add(1, i, x)), (X, AT)),
    "scatter reduce": (
        lambda x, i: [
            x.scatter_reduce(1, i, x, r, include_self=s) for r in ("sum", "amax", "mean") for s in (True, False)
        ],
        (X, AT),
    ),
    "extrema of what is no number": (
        lambda x, i: [x.scatter_reduce(1, i, x, r, include_self=s) for r in ("amax", "amin") for s in (True, False)],
        (torch.tensor([[torch.nan, 1.0, 3.0, -torch.inf], [2.0, torch.nan, torch.inf, -1.0]]), AT),
    ),
    "running extrema": (
        lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 0), *torch.cummax(x > 0, -1), *torch.cummin((x > 2).int(), 1)),
        (torch.tensor([[1.0, 3, 3, torch.nan, 2, torch.nan, 7], [2, -torch.inf, 5, 5, 4, 9, 9]]),),
    ),
    "running extrema of a number": (lambda x: torch.cummax(x[0, 0], 0), (X,)),
    "values where a mask holds": (lambda x: _masked(x), (X,)),
    "in place": (lambda x: _in_place(x), (X,)),
    "scatter slices": (lambda x: (x.slice_scatter(x[:, :2] * 3, 1, 0, 4, 2), x.select_scatter(x[0], 0, 1)), (X,)),
    "windows": (
        lambda x: (x.unfold(1, 3, 1), x.flip(0, 1), x.roll(1, 1), torch.diagonal(x, 1), x.tril(), x.triu(1)),
        (X,),
    ),
    "strided": (lambda x: x.as_strided((2, 2), (2, 3), 1), (X,)),
    "pads": (
        lambda x: (
            [F.pad(x[None], w, mode=m) for m in ("reflect", "replicate", "circular") for w in ((2, 1), (-1, 1))]
            + [F.pad(x, (-1, 2))]
        ),
        (X,),
    ),
    "lerp": (
        lambda x: (torch.lerp(x * 1e10, x, 1.0), torch.lerp(x, x * 2, 0.3), torch.lerp(x * 1e10, x, x.sign().relu())),
        (X,),
    ),
    "einsum": (
        lambda x: (
            torch.einsum("ij,kj,k->i", x, x, x[:, 0]),
            torch.einsum("...j->j...", x),
            torch.einsum("ij,ij->", x, x),
        ),
        (X,),
    ),
    "distances": (lambda x: (torch.cdist(x, x + 1), F.pdist(x)), (X,)),
    "repeated": (lambda x: (x.repeat_interleave(2, 1), x.repeat(2, 1), x.tile(2)), (X,)),
    "softmax of another dtype": (lambda n: F.softmax(n, 1, dtype=torch.float32), (N,)),
}

IMAGE = torch.randn(1, 2, 5, 7, generator=torch.Generator().manual_seed(0))
_NAN, _INF = float("nan"), float("inf")
ODD_PLACES = torch.tensor([(x, y) for x in (_NAN, _INF, -_INF, 0.3) for y in (_NAN, -_INF, 0.25, 2.0)]).reshape(
    1, 4, 4, 2
)
LAYERS: dict[str, Any] = {
    "nearest": lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(3, 10))),
    "bilinear": lambda x: (
        F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        F.interpolate(x, size=(9, 4), mode="bilinear"),
    ),
    "bilinear by corners": lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, size=(8, 9), mode="bicubic"),
    "linear": lambda x: F.interpolate(x[0], size=11, mode="linear"),
    "positions of pools": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    "pools of three dimensions": lambda x: (
        F.max_pool3d(x, (1, 2, 2)),
        F.avg_pool3d(x, (1, 2, 2)),
        F.adaptive_avg_pool3d(x, (1, 3, 2)),
    ),
    "average pools": lambda x: (
        F.avg_pool2d(x, 2, ceil_mode=True),
        F.avg_pool2d(x, 2, divisor_override=3),
        F.avg_pool1d(x[0], 3, 2, 1),
    ),
    "adaptive pools": lambda x: (F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_avg_pool1d(x[0], 4)),
    "grid": lambda x: F.grid_sample(x, torch.linspace(-1.2, 1.2, 24).reshape(1, 3, 4, 2), align_corners=False),
    "grid of odd places": lambda x: tuple(
        F.grid_sample(x, ODD_PLACES, mode, padding, align_corners=corners)
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    "pools undone": lambda x: (
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(5, 7)),
        F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2),
    ),
    "unfold": lambda x: F.fold(F.unfold(x, 2), (5, 7), 2),
}


def _in_place(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, 5)
    out[:, 1:] = x
    out[:, 0].fill_(3.0)
    part = out.view(-1)
    part.add_(1)
    return out


def _masked(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mask, rows = x > 0, x[:, 0] > -100
    values, y = torch.arange(20.0), x.clone()
    y[rows] = torch.arange(float(x.numel())).reshape(x.shape)
    z = torch.zeros_like(x)
    z[rows] = x[:1] * 2
    return x.masked_scatter(mask, values), x.masked_scatter(mask[0], values), y, z


def _put(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x > 1] = -1.0
    return y


class Function(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, z: torch.Tensor | None = None) -> Any:
        return self.function(*(given for given in (x, y, z) if given is not None))


def check(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    expected = model(*inputs)
    module = from_exported_program(torch.export.export(model, inputs))
    result = evaluate(module, [x.numpy() for x in inputs])
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    assert len(result) == len(expected)
    for ours, theirs in zip(result, expected, strict=True):
        assert str(np.asarray(ours).dtype) == str(theirs.detach().numpy().dtype)
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_functions(name):
    function, inputs = CASES[name]
    check(Function(function), inputs)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    check(Function(LAYERS[name]), (IMAGE,))


PLACED: dict[str, Any] = {
    "index_add": lambda x, i: torch.index_add(x, 0, i, torch.ones(2, 5)),
    "index_copy": lambda x, i: torch.index_copy(x, 0, i, torch.ones(2, 5)),
    "max_unpool2d": lambda x, i: F.max_unpool2d(x[:1, :2].reshape(1, 2, 1, 1), i.reshape(1, 2, 1, 1), 2),
    "max_unpool3d": lambda x, i: F.max_unpool3d(x[:1, :2].reshape(2, 1, 1, 1), i.reshape(2, 1, 1, 1), 2),
}


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("position", [-1, 9])
def test_places_that_torch_refuses_are_refused(name, position):
    good, bad = torch.tensor([0, 1]), torch.tensor([0, position])
    model, x = Function(PLACED[name]), torch.arange(15.0).reshape(3, 5)
    check(model, (x, good))
    with pytest.raises((RuntimeError, IndexError)):
        model(x, bad)
    built = autosched.build(from_exported_program(torch.export.export(model, (x, good))), records=[], threads=1)
    with pytest.raises(IndexOutOfRangeError, match=f"{position} is out of range"):
        built(x.numpy(), bad.numpy())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions(dims):
    torch.manual_seed(0)
    plain = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1](2, 4, 3, padding=1, stride=2, groups=2)
    back = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d][dims - 1](4, 3, 3, stride=2, output_padding=1)
    check(nn.Sequential(plain, back).eval(), (torch.randn(1, 2, *(4, 5, 6)[:dims]),))


def test_shared_heads_of_attention():
    q, kv = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8)
    check(Function(lambda a, b: F.scaled_dot_product_attention(a, b, b, enable_gqa=True)), (q, kv))


@pytest.mark.parametrize("function", [lambda x: x[x > 0], lambda x: torch.rand(3) + x[0, :3]])
def test_what_cannot_be_known_is_refused(function):
    with pytest.raises((ImportModelError, torch._dynamo.exc.UserError)):
        from_exported_program(torch.export.export(Function(function), (X,)))


def test_writes_in_place_are_refused_where_they_stay():
    program = torch.export.export(Function(_in_place), (X,))
    with pytest.raises(ImportModelError, match="in place"):
        from_exported_program(program, run_ep_decomposition=False)


def test_plain_writes_need_no_decomposition():
    def function(x):
        y = x * 2
        z = y.exp()
        y.relu_()
        return y.add_(z), y + 1, z

    program = torch.export.export(Function(function), (X,))
    assert any(str(n.target) == "aten.relu_.default" for n in program.graph.nodes)
    check(Function(function), (X,))
    from_exported_program(program, run_ep_decomposition=False)


def test_writes_seen_through_views():
    def function(x):
        y = x * 2
        turned = torch.einsum("ij->ji", y)
        turned.relu_()
        return y, turned.reshape(-1)

    check(Function(function), (X,))


def test_experts_by_groups_of_rows():
    class Experts(nn.Module):
        def forward(self, x, weight, offs):
            return torch._grouped_mm(x, weight, offs=offs)

    x, weight = torch.randn(16, 32).bfloat16(), torch.randn(4, 32, 16).bfloat16()
    offs = torch.tensor([3, 3, 9, 14], dtype=torch.int32)  # the second has no rows, two rows have none
    module = from_exported_program(torch.export.export(Experts(), (x, weight, offs)))
    inputs = [np.array(array_of(v, "input")) for v in (x, weight, offs)]
    wanted = np.zeros((16, 16), "f4")
    for start, end, of_group in zip((0, 3, 3, 9), offs.tolist(), weight.float(), strict=True):
        wanted[start:end] = x[start:end].float() @ of_group
    for found in (evaluate(module, inputs)[0], autosched.build(module, target="cpu", threads=1)(*inputs)):
        np.testing.assert_allclose(np.asarray(found).astype("f4"), wanted, rtol=1e-2, atol=1e-2)


def test_experts_of_transformers():
    """Its operator for types that PyTorch's own does not take, over known and open numbers of rows."""
    library = torch.library.Library("transformers", "FRAGMENT")
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        library.impl("grouped_mm_fallback", _by_groups, "CPU")
        library.impl("grouped_mm_fallback", lambda x, w, o: x.new_empty(x.shape[0], w.shape[2]), "Meta")
    model = Function(lambda x, w, offs: torch.ops.transformers.grouped_mm_fallback(x, w, offs))
    weight, offs = torch.randn(4, 32, 16), torch.tensor([3, 3, 9, 16])
    for options in ({}, {"dynamic_shapes": ({0: torch.export.Dim("n", max=64)}, None, None)}):
        program = torch.export.export(model, (torch.randn(16, 32), weight, offs), **options)
        built = autosched.build(program, target="cpu", threads=1)
        assert isinstance(built, DynamicExecutable if options else Executable)
        for rows in (16, 21, 40) if options else (16,):
            x, ends = torch.randn(rows, 32), torch.tensor([3, 3, 9, rows])
            wanted = _by_groups(x, weight, ends)
            np.testing.assert_allclose(built(x.numpy(), weight.numpy(), ends.numpy()), wanted, rtol=1e-4, atol=1e-4)


def _by_groups(x, weight, offs):
    ends = [0, *offs.tolist()]
    return torch.cat([x[a:b] @ w for a, b, w in zip(ends, ends[1:], weight, strict=False)])


@pytest.mark.parametrize("mask", ["bool", "float"])
def test_attention_of_a_query_that_sees_no_key_is_zero(mask):
    q = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril(-1)  # the first query sees none
    given = seen if mask == "bool" else torch.zeros(1, 1, 3, 3).masked_fill(~seen, -torch.inf)
    model = Function(lambda a, m: F.scaled_dot_product_attention(a, a, a, attn_mask=m))
    assert not model(q, given)[:, :, 0].any()
    check(model, (q, given))


BAGS = {
    "sum": {"mode": "sum"},
    "weighted": {"mode": "sum", "per_sample_weights": torch.tensor([0.5, -1.0, 2.0, 3.0, 0.25])},
    "mean": {"mode": "mean"},
    "mean but padding": {"mode": "mean", "padding_idx": 4},
    "max": {"mode": "max"},
    "max but padding": {"mode": "max", "padding_idx": 4},
    "last offset": {"mode": "mean", "include_last_offset": True},
}


@pytest.mark.parametrize("name", BAGS)
def test_bags_of_embeddings(name):
    """The second bag is empty, and one holds nothing but the padding."""
    indices = torch.tensor([1, 3, 0, 4, 1])
    for offsets in ([0, 2, 2, 3, 4, 5], [0, 0, 5, 5], [0, 5]):
        model = Function(lambda w, i, o: F.embedding_bag(i, w, o, **BAGS[name]))
        check(model, (torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), indices, torch.tensor(offsets)))


def test_rows_of_bags_are_bags():
    check(nn.EmbeddingBag(9, 3, mode="sum"), (torch.tensor([[1, 2, 4], [0, 8, 8]]),))


def test_an_index_that_no_bag_may_have_is_refused():
    model = Function(lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"))
    w, good, bags = torch.ones(6, 4), torch.tensor([1, 3]), torch.tensor([0, 1])
    built = autosched.build(from_exported_program(torch.export.export(model, (w, good, bags))), records=[], threads=1)
    with pytest.raises(IndexOutOfRangeError, match="6 is out of range"):
        built(w.numpy(), np.array([1, 6]), bags.numpy())
