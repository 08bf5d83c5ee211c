from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from autosched.contrib.torch_compile import autosched_backend, counters
from autosched.errors import ImportModelError
from autosched.frontend.torch.graph import array_of
from autosched.records import FallbackContext

OPTIONS = {"records": FallbackContext(), "threads": 1}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = self.norm(self.linear(x)).relu_()
        return nn.functional.scaled_dot_product_attention(y[None], y[None], y[None]), x.shape[0]


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    counters.reset()


def compiled(model: Any, dynamic: bool | None = None, **options: Any) -> Any:
    given = {**OPTIONS, "strict": True, **options}
    return torch.compile(model, backend=autosched_backend, options=given, dynamic=dynamic)


def agree(ours: Any, theirs: Any) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_model_with_sizes_that_change():
    model = Block().eval()
    fast = compiled(model)
    for n in (4, 5, 6, 5):
        x = torch.randn(n, 8)
        (ours, count), (theirs, _) = fast(x), model(x)
        agree(ours, theirs)
        assert count == n
    assert counters.graphs == 2 and counters.builds == 2 and counters.runs == 4 and not counters.fallbacks


def test_training_over_sizes_that_change():
    """PyTorch's second graph is for all of them; the backward graph takes sizes as numbers, and rows of both."""
    model = nn.Linear(4, 3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = model(x).transpose(0, 1)
        return y.flatten(0, 1) * torch.rand(y.shape[1]).sum(), x.shape[0] * x.shape[1]

    fast = compiled(function, dynamic=True)
    for n, m in ((3, 5), (5, 6), (2, 7)):
        x, grads = torch.randn(n, m, 4), []
        for call in (fast, function):
            torch.manual_seed(n)
            found, count = call(x)
            assert count == n * m
            found.square().sum().backward()
            grads.append(model.weight.grad)
            model.zero_grad()
        agree(*grads)
    assert counters.graphs == 1 and counters.builds == 2 and counters.runs == 6 and not counters.fallbacks


@torch.no_grad()
def test_graph_breaks():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2 + 1
        if y.sum() > 0:  # PyTorch breaks the graph here
            return y.exp()
        return y.tanh()

    fast = compiled(function)
    for x in (torch.ones(3), -torch.ones(3)):
        agree(fast(x), function(x))
    assert counters.graphs == 3 and counters.builds == 3


@torch.no_grad()
def test_parameters_that_change_are_seen():
    model = nn.Linear(4, 4)
    fast, x = compiled(model), torch.randn(2, 4)
    agree(fast(x), model(x))
    model.weight.mul_(2)
    agree(fast(x), model(x))
    model.weight.add_(1)
    agree(fast(x), model(x))
    assert counters.rebuilds == 1  # afterwards the weight is an input


@torch.no_grad()
def test_buffers_that_the_model_writes():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    model, plain = Counter(), Counter()
    fast = compiled(model)
    for _ in range(3):
        agree(fast(torch.ones(3)), plain(torch.ones(3)))
    agree(model.total, plain.total)
    assert counters.builds == 1


@torch.no_grad()
def test_autocast():
    model = nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    x = torch.randn(4, 8)
    pytest.importorskip("ml_dtypes")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = compiled(model)(x), model(x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=0.03, atol=0.03)


class Learner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(2, 4, 3, 2, groups=2), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.frozen = nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        tokens = self.norm(self.conv(x)).relu().flatten(2).mT @ self.frozen
        seen = nn.functional.scaled_dot_product_attention(*[tokens[:, None]] * 3, is_causal=True)
        return nn.functional.cross_entropy(self.linear(seen.mean((1, 2))), y)


def test_training():
    ours, theirs = Learner(), Learner()
    theirs.load_state_dict(ours.state_dict())
    fast, y = compiled(ours), torch.tensor([0, 2])
    optimizers = [torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.1) for m in (ours, theirs)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            x = torch.randn(2, 2, 7, 6)
            inputs = [x.clone().requires_grad_() for _ in optimizers]
            losses = [model(given, y) for model, given in zip((fast, theirs), inputs, strict=True)]
            for loss, optimizer in zip(losses, optimizers, strict=True):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            agree(losses[0].detach(), losses[1].detach())
            agree(inputs[0].grad, inputs[1].grad)
            for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
                agree(a, b)
    assert counters.graphs == 1 and counters.builds == 2 and counters.runs == 4 and not counters.rebuilds


@pytest.mark.parametrize("foreach", [False, True])
def test_a_step_of_an_optimizer(foreach: bool):
    def learned(step: Any) -> torch.Tensor:
        weight = nn.Parameter(torch.ones(5))
        optimizer = torch.optim.Adam([weight], 0.1, foreach=foreach)
        for n in range(2):
            weight.grad = torch.arange(5.0) - n
            step(optimizer.step)
        return weight.detach()

    agree(learned(lambda update: compiled(update)()), learned(lambda update: update()))
    assert counters.graphs and not counters.fallbacks


def test_gradients_of_bags():
    """Those of maxima need results that we leave out."""
    bag, most, indices = nn.EmbeddingBag(5, 2), nn.EmbeddingBag(5, 2, mode="max"), torch.tensor([[0, 2, 2], [4, 1, 0]])
    found = compiled(bag)(indices)
    agree(*(torch.autograd.grad(y.square().sum(), bag.weight)[0] for y in (found, bag(indices))))
    with pytest.warns(UserWarning, match="gradients need more of its results"):
        found = compiled(most, strict=False)(indices)
        agree(*(torch.autograd.grad(y.square().sum(), most.weight)[0] for y in (found, most(indices))))


@torch.no_grad()
def test_what_cannot_be_built_runs_in_pytorch_and_says_so():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x.reshape(2, 4))

    x = torch.randn(8)
    with pytest.warns(UserWarning, match="not supported"):
        agree(compiled(function, strict=False)(x), function(x))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="not supported"):
        compiled(function)(x)


@torch.no_grad()
def test_pytorch_computes_the_part_of_a_graph_that_has_no_kernel():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.bernoulli((x * 2).sigmoid()) * x

    fast, x = compiled(function, strict=False), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="PyTorch computes a part of a graph: random"):
        fast(x)
    torch.manual_seed(1)
    wanted = function(x)
    torch.manual_seed(1)
    agree(fast(x), wanted)
    assert counters.builds == 1 and counters.runs == 2 and len(counters.fallbacks) == 1


def test_operators_that_refuse_values():
    """PyTorch computes them, and looks at what they found in the order of the program."""
    fast = compiled(lambda x: torch.linalg.inv(x) * 2 + x.shape[0], strict=False, dynamic=True)
    for n in (3, 4, 5, 6):
        x, y = (torch.eye(n).add(0.1).requires_grad_() for _ in range(2))
        fast(x).square().sum().backward()
        (torch.linalg.inv(y) * 2 + n).square().sum().backward()
        agree(x.grad, y.grad)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        fast(torch.zeros(3, 3).requires_grad_())
    assert counters.graphs == 1 and counters.builds == 2


def draw(x: torch.Tensor) -> torch.Tensor:
    """Random numbers of many kinds, in an order that counts."""
    y = nn.functional.dropout(x.T, 0.25) @ x + torch.rand(x.shape[1], 4) + torch.empty_like(x[0]).exponential_()
    y = nn.functional.alpha_dropout(y, 0.5, training=True) + torch.randn_like(y) + torch.empty(4).uniform_(1, 2)
    return nn.functional.dropout1d(y, 0.5) * torch.randint(3, (4,)) + torch.randperm(y.shape[0]).sum()


def test_random_numbers_are_those_of_pytorch():
    fast = compiled(draw, dynamic=True)
    for n in (3, 5):
        x, y = (torch.ones(n, 4).cumsum(0).requires_grad_() for _ in range(2))
        for function, given in ((fast, x), (draw, y)):
            torch.manual_seed(n)
            function(given).square().sum().backward()
        agree(x.grad, y.grad)
    assert counters.graphs == 1 and not counters.fallbacks


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_of_a_transformer_that_are_one_operator_of_pytorch(norm_first: bool):
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, "gelu" if norm_first else "relu", norm_first=norm_first, batch_first=True
    )
    x, hidden = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, True, True]])
    agree(compiled(layer.eval())(x, src_key_padding_mask=hidden), layer(x, src_key_padding_mask=hidden))
    causal = torch.ones(3, 3).triu(1).bool()
    agree(compiled(layer)(x, causal, hidden), layer(x, causal, hidden))


@torch.no_grad()
def test_results_lie_in_memory_as_pytorchs_do():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = torch.as_strided_scatter(x, x[:2, :2], (2, 2), (5, 1), 1)
        return (x * 2).T, x.T + 1, x.as_strided((2, 2), (1, 2)), part

    for x in (torch.randn(3, 4), torch.randn(4, 3).T):
        for ours, theirs in zip(compiled(function)(x), function(x), strict=True):
            agree(ours, theirs)
            assert ours.stride() == theirs.stride()


VIEWS: dict[str, Any] = {  # of an input, of another result, and of an input that is written
    "half": lambda x, n: x[:, : x.shape[1] // 2],
    "from a number on": lambda x, n: (x[:, n:] + 1, x[:, n:], x[n]),
    "parts": lambda x, n: x.split(x.shape[1] // 3, 1),
    "by a tensor": lambda x, n: x[(x[0, 0, 0] * 0 + 1).long().item()],
    "of a result": lambda x, n: (lambda y: (y, y[:, n:], y.mT[n:]))(x + 1),
    "of what is written": lambda x, n: (x.add_(1), x[n:].unflatten(1, (2, -1)))[1],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("learns", [False, True])
@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_results_that_are_views_over_sizes_that_are_open(name: str, learns: bool):
    """PyTorch makes them anew from where they lie, which copies did not tell."""
    if learns and name == "of what is written":
        pytest.skip("a leaf is not written")
    base = torch.arange(240.0).reshape(5, 8, 6)
    is_part = name != "of what is written"  # there PyTorch itself loses the strides of a part (backend "aot_eager" too)
    x, y = (((base * 1)[1:, 1:-1] if is_part else base * 1).detach().requires_grad_(learns) for _ in range(2))
    with torch.set_grad_enabled(learns):
        found, wanted = compiled(VIEWS[name], dynamic=True)(x, 2), VIEWS[name](y, 2)
    pairs = [(found, wanted)] if isinstance(wanted, torch.Tensor) else list(zip(found, wanted, strict=True))
    for ours, theirs in pairs:
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
    if learns:
        for results in zip(*pairs, strict=True):
            sum((z * z).sum() for z in results).backward()
        torch.testing.assert_close(x.grad, y.grad)


@torch.no_grad()
def test_results_are_new_at_each_call():
    fast = compiled(lambda x: x + 1)
    first = fast(torch.zeros(3))
    second = fast(torch.ones(3))
    np.testing.assert_array_equal(first.numpy(), np.ones(3))
    np.testing.assert_array_equal(second.numpy(), np.full(3, 2.0))


@torch.no_grad()
def test_inputs_that_are_views_of_other_memory():
    fast = compiled(lambda x: x * 2 + 1)
    turned, negative = torch.randn(3, 4).T, torch.randn(4, 3, dtype=torch.cfloat).conj().imag
    assert negative.is_neg()
    for x in (turned, negative, turned.contiguous()):
        agree(fast(x), x * 2 + 1)


@torch.no_grad()
def test_kinds_of_tensors():
    class Named(torch.Tensor):
        """A class of a user's own."""

    x = torch.randn(3, 4)
    ours, theirs = compiled(lambda x: x * 2 + 1)(x.as_subclass(Named)), x.as_subclass(Named) * 2 + 1
    assert type(ours) is type(theirs)
    agree(ours.as_subclass(torch.Tensor), theirs.as_subclass(torch.Tensor))
    for odd, message in (
        (x.to(torch.cfloat), "is of complex numbers"),
        (x.to(torch.float8_e4m3fn), "torch.float8_e4m3fn"),
    ):
        with pytest.raises(Exception, match=f"input 0.* {message}"):
            compiled(lambda x: x.to(torch.float32) * 2)(odd)
    for odd, message in ((TwoTensor(x, x), "a TwoTensor"), (x.to_sparse(), r"a torch\.sparse_coo")):
        with pytest.raises(ImportModelError, match=message):
            array_of(odd, "w")


def test_unknown_options():
    with pytest.raises(Exception, match="no option 'fast'"), torch.no_grad():
        compiled(lambda x: x + 1, fast=1)(torch.ones(2))


def test_the_name_is_an_entry_point():
    found = [e for e in entry_points(group="torch_dynamo_backends") if e.name == "autosched"]
    if not found:
        pytest.skip("the package is not installed, or by an older version")
    assert found[0].load() is autosched_backend
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "autosched" in torch._dynamo.list_backends()


DATA_SIZES = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}


@torch.no_grad()
def test_sizes_that_follow_from_data():
    def function(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = m.sum().item()
        torch._check(count >= 0)
        torch._check(count <= 10)
        return torch.softmax(x[m] @ x.T, -1), x[:count] + 1

    with torch._dynamo.config.patch(DATA_SIZES):
        fast = compiled(function)
        for n in (3, 5, 7, 0, 1, 10, 4):
            given = torch.randn(10, 8), torch.arange(10) < n
            for ours, theirs in zip(fast(*given), function(*given), strict=True):
                agree(ours, theirs)
    assert counters.graphs == 1 and counters.builds == 1 and counters.runs == 7 and not counters.fallbacks


@torch.no_grad()
def test_a_later_stage_that_cannot_be_compiled_runs_in_pytorch():
    def function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x[m])

    given = torch.rand(10, 8), torch.arange(10) < 4
    with torch._dynamo.config.patch(DATA_SIZES):
        fast = compiled(function, strict=False)
        with pytest.warns(UserWarning, match="complex numbers"):
            agree(fast(*given), function(*given))
        agree(fast(*given), function(*given))
