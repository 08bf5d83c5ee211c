"""Exported programs with dynamic dimensions: built for given shapes, or for those of each call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import autosched
from autosched.codegen import counters
from autosched.driver.build.torch_programs import SizedProgram
from autosched.driver.model_files import load_model
from autosched.errors import ImportModelError, InvalidTypeError, ShapeError, UsageError
from autosched.frontend.torch import from_exported_program
from autosched.records import FallbackContext
from autosched.runtime.dynamic import DynamicExecutable


class Model(nn.Module):
    """Two inputs that share a size, and one twice as long; an operator that is written for known sizes alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, long: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = self.linear(x).view(b, n, 3, 4).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask[:, None, None, :])
        y = y.transpose(1, 2).reshape(b, n * 12)
        return torch.cat([y, long.cummax(1).values], dim=1) * (n + 1) + torch.arange(n).sum()


def inputs(b: int, n: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(b * 100 + n)
    return torch.randn(b, n, 8, generator=generator), torch.rand(b, n, generator=generator) > 0.2, torch.ones(b, 2 * n)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def program(model) -> torch.export.ExportedProgram:
    b, n = Dim("b", max=8), Dim("n", min=2, max=16)
    shapes = ({0: b, 1: n}, {0: b, 1: n}, {0: b, 1: 2 * n})
    return torch.export.export(model, inputs(2, 3), dynamic_shapes=shapes)


def close(ours, model, given) -> None:
    with torch.no_grad():
        np.testing.assert_allclose(np.asarray(ours), model(*given).numpy(), rtol=1e-4, atol=1e-4)


def test_each_set_of_sizes_is_built_once(model, program):
    made = autosched.build(program, target="cpu", records=FallbackContext())
    assert isinstance(made, SizedProgram)
    for b, n in ((2, 3), (1, 5), (2, 3)):
        close(made(*(x.numpy() for x in inputs(b, n))), model, inputs(b, n))
    assert len(made._built) == 2


def test_it_is_saved_and_compiled_where_it_is_loaded(model, program, tmp_path):
    made = autosched.build(program, target="cpu", records=FallbackContext())
    made.save(tmp_path / "model.asx")
    loaded = autosched.load(tmp_path / "model.asx")
    assert isinstance(loaded, SizedProgram) and loaded.inputs == made.inputs
    close(loaded(*(x.numpy() for x in inputs(2, 3))), model, inputs(2, 3))
    x, mask, long = inputs(2, 17)
    with pytest.raises(ShapeError, match="exported for 2 to 16"):
        loaded(x.numpy(), mask.numpy(), long.numpy())


def test_the_shape_of_one_input_gives_the_others(model, program):
    executable = autosched.build(program, target="cpu", records=FallbackContext(), shapes={"x": (2, 4, 8)})
    assert [v.shape for v in executable.inputs] == [(2, 4, 8), (2, 4), (2, 8)]
    close(executable(*(x.numpy() for x in inputs(2, 4))), model, inputs(2, 4))


def test_files(model, program, tmp_path):
    torch.export.save(program, tmp_path / "model.pt2")
    module = load_model(tmp_path / "model.pt2", {"x": (1, 2, 8)})
    assert module["main"].ret_struct_info.static_shape == (1, 28)
    assert isinstance(autosched.build(tmp_path / "model.pt2"), SizedProgram)


@pytest.mark.parametrize(
    ("b", "n", "other", "message"),
    [(2, 17, 17, "exported for 2 to 16"), (9, 3, 3, "exported for"), (2, 4, 5, "of shape")],
)
def test_sizes_that_do_not_fit(program, b, n, other, message):
    made = autosched.build(program, target="cpu", records=FallbackContext())
    x, mask, long = inputs(b, n)
    with pytest.raises(ShapeError, match=message):
        made(x.numpy(), inputs(b, other)[1].numpy(), long.numpy())
    with pytest.raises(InvalidTypeError, match="missing"):
        made(x.numpy())


def test_an_import_without_sizes_says_what_to_do(program):
    with pytest.raises(ImportModelError) as error:
        from_exported_program(program)
    assert "--shapes" in (error.value.hint or "")


class Decoder(nn.Module):
    """What language models do with sizes: positions, a causal mask, a cache that grows, a mean by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.linear = nn.Linear(16, 16)
        self.register_buffer("ids", torch.arange(32)[None])

    def forward(
        self, ids: torch.Tensor, past: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        b, n = ids.shape
        total = past.shape[1] + n
        x = self.words(ids) + self.places(self.ids[:, past.shape[1] : total])
        both = torch.cat([past, self.linear(x)], dim=1)
        place = torch.arange(total)
        seen = (place[None, :] <= place[past.shape[1] :, None]) & (mask[:, None, :] > 0)
        rows, columns = torch.arange(b)[:, None, None], place[None, None, :]
        bias = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        q, k = (v.view(b, -1, 2, 8).transpose(1, 2) for v in (x, both))
        y = nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=bias[:, None])
        y = y.transpose(1, 2).reshape(b, n, 16) + mask[rows, columns].float().mean(-1, keepdim=True)
        kept = mask[..., None].expand(b, total, 16).float()
        return y, both, (both * kept).sum(1) / kept.sum(1).clamp(min=1e-9) * n


def words(b: int, n: int, p: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(b * 100 + n)
    mask = (torch.rand(b, p + n, generator=generator) > 0.3).long()
    mask[:, 0] = 1
    return torch.randint(50, (b, n), generator=generator), torch.randn(b, p, 16, generator=generator), mask


def test_one_build_serves_all_sizes(tmp_path):
    torch.manual_seed(0)
    model = Decoder().eval()
    b, n, p = Dim("b", max=8), Dim("n", max=16), Dim("p", max=30)
    shapes = ({0: b, 1: n}, {0: b, 1: p}, {0: b, 1: Dim.AUTO})
    built = autosched.build(torch.export.export(model, words(2, 3, 5), dynamic_shapes=shapes))
    assert isinstance(built, DynamicExecutable)
    built.save(tmp_path / "model.asx")
    before = counters.COMPILES.value
    for sizes in ((2, 3, 5), (1, 1, 1), (8, 16, 16), (3, 1, 20)):
        given = words(*sizes)
        found = autosched.load(tmp_path / "model.asx")(*(x.numpy() for x in given))
        with torch.no_grad():
            for ours, theirs in zip(found, model(*given), strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
    assert counters.COMPILES.value == before
    for sizes, message in (((9, 3, 5), "is 9, and the model is built for 1 to 8"), ((2, 10, 30), "needs .* >= ")):
        with pytest.raises(ShapeError, match=message):
            built(*(x.numpy() for x in words(*sizes)))
    ids, past, mask = (x.numpy() for x in words(2, 3, 5))
    with pytest.raises(ShapeError, match="input 'mask'"):
        built(ids, past, mask[:, 1:])


class Mean(nn.Module):
    """Divides by a size as a float."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.shape[0] / 2)


def test_a_quotient_of_sizes_is_no_integer():
    program = torch.export.export(Mean(), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", max=9)},))
    built = autosched.build(program)
    for n in (3, 4):
        np.testing.assert_allclose(np.asarray(built(np.ones((n, 3), "f4"))), n / 2)


class Counter(nn.Module):
    """Counts its calls, and keeps a running sum of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3), persistent=False)
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        self.total.mul_(0.5).add_(x)
        return self.linear(self.total) * self.calls, x + 1


def test_buffers_that_change_are_kept_between_calls(tmp_path):
    torch.manual_seed(0)
    model = Counter().eval()
    program = torch.export.export(model, (torch.ones(3),))
    torch.export.save(program, tmp_path / "counter.pt2")
    with pytest.raises(ImportModelError, match="changes its buffer"):
        from_exported_program(program)
    built = autosched.build(tmp_path / "counter.pt2", target="cpu")
    for n in range(3):
        x = torch.full((3,), float(n))
        for ours, theirs in zip(built(x.numpy()), model(x), strict=True):
            np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5)
    assert built.states["b_calls"] == 3
    with pytest.raises(UsageError, match="not saved"):
        built.save(tmp_path / "counter.asx")
    module = from_exported_program(program, states_as_inputs=True)
    assert [p.name for p in module["main"].params] == ["x", "b_calls", "b_total"]
