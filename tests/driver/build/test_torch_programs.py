"""Exported programs with dynamic dimensions: built for given shapes, or for those of each call."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812

import autosched
from autosched.codegen import counters
from autosched.driver.build.torch_programs import SizedProgram
from autosched.driver.model_files import load_model
from autosched.errors import ArtifactError, ImportModelError, InvalidTypeError, ShapeError
from autosched.frontend.torch import from_exported_program
from autosched.records import FallbackContext
from autosched.runtime import Executable
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.library import module_of_contents
from autosched.runtime.stateful import STATES, StatefulProgram
from tests.spread import cover


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
    assert isinstance(made, SizedProgram) and made.reason
    for b, n in ((2, 3), (1, 5), (2, 3)):
        close(made(*(x.numpy() for x in inputs(b, n))), model, inputs(b, n))
    assert len(made._built) == 2


def test_it_is_saved_and_compiled_where_it_is_loaded(model, program, tmp_path):
    made = autosched.build(program, target="cpu", records=FallbackContext())
    made.save(tmp_path / "model.asx")
    loaded = autosched.load(tmp_path / "model.asx")
    assert isinstance(loaded, SizedProgram) and loaded.inputs == made.inputs
    close(loaded(*(x.numpy() for x in inputs(1, 3))), model, inputs(1, 3))
    x, mask, long = inputs(2, 17)
    with pytest.raises(ShapeError, match="exported for 1 to 16"):
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
    [(2, 17, 17, "exported for 1 to 16"), (9, 3, 3, "exported for"), (2, 4, 5, "of shape")],
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
    built.save(tmp_path / "counter.asx")
    again = autosched.load(tmp_path / "counter.asx")
    assert isinstance(again, StatefulProgram) and isinstance(again.executable, Executable)
    for name, value in again.states.items():
        np.testing.assert_array_equal(value, built.states[name], strict=True)
    for ours, theirs in zip(again(x.numpy()), model(x), strict=True):
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5)
    assert again.states["b_calls"] == 4 and built.states["b_calls"] == 3
    contents = built.contents()
    for names in ("b_calls", 3, ["b_calls", "b_calls"], [1, 2], [f"b_{n}" for n in range(99)]):
        with pytest.raises(ArtifactError, match="states"):
            module_of_contents(replace(contents, info={**contents.info, STATES: names}))
    module = from_exported_program(program, states_as_inputs=True)
    assert [p.name for p in module["main"].params] == ["x", "b_calls", "b_total"]


def test_running_statistics_and_caches_serve_all_sizes(tmp_path):
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(x)).relu()

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, 16, 8))
            self.register_buffer("length", torch.zeros(1, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = self.length + torch.arange(x.shape[1])
            self.keys.index_copy_(1, places, x)
            self.length.add_(x.shape[1])
            hidden = torch.arange(16) > places[:, None]
            return (x @ self.keys.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ self.keys

    sizes = Dim("n", max=9)
    cases = ((Norm().train(), 0, [(n, 3, 8) for n in (2, 3, 5, 4)]), (Cache(), 1, [(2, n, 8) for n in (4, 1, 3, 1)]))
    for model, axis, shapes in cases:
        program = torch.export.export(model, (torch.ones(shapes[0]),), dynamic_shapes=({axis: sizes},))
        built = autosched.build(program, target="cpu")
        assert isinstance(built, StatefulProgram) and isinstance(built.executable, DynamicExecutable)
        for number, shape in enumerate(shapes):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(number))
            with torch.no_grad():
                np.testing.assert_allclose(built(x.numpy()), model(x).numpy(), rtol=1e-4, atol=1e-5)
        for (_, value), found in zip(model.named_buffers(), built.states.values(), strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
        built.save(tmp_path / "program.asched")
        again = autosched.load(tmp_path / "program.asched")
        np.testing.assert_array_equal(again(x.numpy()), built(x.numpy()))
        for (name, value), found in zip(built.states.items(), again.states.values(), strict=True):
            np.testing.assert_array_equal(found, value, err_msg=name, strict=True)


def test_buffers_of_programs_that_are_built_for_each_size(tmp_path):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.sum(0))
            return x.cummax(0).values + self.total

    model = Model()
    program = torch.export.export(model, (torch.ones(5, 4),), dynamic_shapes=({0: Dim("n", max=9)},))
    built = autosched.build(program, target="cpu")
    assert isinstance(built, StatefulProgram) and isinstance(built.executable, SizedProgram)
    again = pickle.loads(pickle.dumps(built))
    built.save(tmp_path / "program.asched")
    loaded = autosched.load(tmp_path / "program.asched")
    for n in (5, 3, 5):
        x = torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
        wanted = model(x)
        for executable in (built, again, loaded):
            np.testing.assert_allclose(executable(x.numpy()), wanted.numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match=r"'b_total' is of shape \[4\]"):
        built.executable(x.numpy(), np.zeros(3, "f4"))


class Sorted(nn.Module):
    """Imported for known sizes alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cummax(0).values


def test_a_build_keeps_its_weights_where_the_model_is_trained_on():
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    ids = torch.tensor([3, 1, 8])
    batch = {"dynamic_shapes": ({0: Dim("n", max=9)},)}
    held = nn.Sequential(model, torch.nn.Linear(8, 4), Sorted())
    first, later = (m(ids).detach().numpy().copy() for m in (model, held))
    built = autosched.build(torch.export.export(model, (ids,)), target="cpu")
    sized = autosched.build(torch.export.export(held, (ids,), **batch), target="cpu")
    module = from_exported_program(torch.export.export(model, (ids,)))
    assert isinstance(sized, SizedProgram)
    with torch.no_grad():
        for weight in held.parameters():
            weight.mul_(0).sub_(1)
    np.testing.assert_allclose(built(ids.numpy()), first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sized(ids.numpy()), later, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(autosched.build(module)(ids.numpy()), first, rtol=1e-5, atol=1e-6)


@cover(
    ("options", [{}, {"affine": False, "momentum": 0.5}, {"track_running_stats": False}]),
    ("shape", [(4, 3), (2, 3, 5), (2, 3, 1, 4), (1, 3, 2, 2, 2)]),
    together=1,
)
def test_batch_norm_in_training(shape, options):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    model = kind(3, **options).train()
    built = autosched.build(torch.export.export(model, (x,)), target="cpu")
    for factor in (1, -2):
        with torch.no_grad():
            wanted = model(x * factor + 1)
        np.testing.assert_allclose(built((x * factor + 1).numpy()), wanted.numpy(), rtol=1e-4, atol=1e-5)
    for (_, value), found in zip(model.named_buffers(), getattr(built, "states", {}).values(), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)


def test_borders_that_are_cut_off_beside_open_sizes():
    """As RWKV shifts a sequence by one place."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(x, (0, 0, 1, -1)) + x

    batch, steps = Dim("batch", max=20), Dim("steps", min=2, max=30)
    for dims, shapes in (
        ({0: batch}, [(2, 5, 4), (3, 5, 4)]),
        ({0: batch, 1: steps}, [(2, 5, 4), (3, 8, 4), (1, 2, 4)]),
    ):
        program = torch.export.export(Model(), (torch.ones(shapes[0]),), dynamic_shapes=(dims,))
        built = autosched.build(program, target="cpu")
        assert isinstance(built, DynamicExecutable)
        for shape in shapes:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
            np.testing.assert_array_equal(built(x.numpy()), Model()(x).numpy())


def _pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, volume = x.flatten(2), x[:, None]
    return (
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
        F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool1d(rows, 3, 2, 1), F.max_pool1d(rows, 3, 2),
        F.avg_pool3d(volume, 2, 2, 1, count_include_pad=False), F.max_pool3d(volume, (1, 3, 2)),
        F.adaptive_avg_pool1d(rows, 3), F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool3d(volume, 1),
    )  # fmt: skip


def _resized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        F.interpolate(x, size=(7, 5)), F.interpolate(x, size=(6, 9), mode="nearest-exact"),
        F.interpolate(x, scale_factor=0.5, mode="bilinear"), F.interpolate(x.flatten(2), scale_factor=2.0),
        x.unfold(2, 3, 2),
    )  # fmt: skip


def _sampled(x: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, torch.tensor([[[[-0.7, 0.3], [0.1, -2.0]], [[0.9, 1.0], [-0.2, 0.4]]]] * 2))


def _arranged(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    height, width = x.shape[2:]
    places = (x[0, 0, :, 0].abs() * 9).long()[:, None].expand(-1, width).clamp(max=7)
    base = torch.zeros(8, x.shape[3])
    return (
        x.var(2), torch.var_mean(x, (2, 3), correction=0)[0], x.std(), *x.median(3), x.kthvalue(2, 3).values,
        *(x * 2).round().mode(3), x.roll((2, -1), (2, 3)), x.roll(height // 2, 2), *x.chunk(3, 2), x.quantile(0.5, 2),
        F.pad(x, (0, -width % 4, 1, 0), value=2.5), torch.diagonal(x @ x.mT, 1, 2, 3),
        x[0, 0].view(height, width, -1, 1), base.scatter_reduce(0, places, x[0, 0], "mean", include_self=False),
        base.scatter_reduce(0, places, x[0, 1], "amax"), x[0].scatter(1, places.unsqueeze(0) % 2, 2.5),
        torch.cat([x, F.interpolate(F.max_pool2d(x, 2, ceil_mode=True), scale_factor=2.0)[..., :height, :width]], 1),
    )  # fmt: skip


@pytest.mark.parametrize("function", [_pools, _resized, _sampled, _arranged])
def test_images_of_open_sizes(function):
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    program = torch.export.export(Model(), (torch.ones(2, 3, 8, 10),), dynamic_shapes=({2: Dim.AUTO, 3: Dim.AUTO},))
    built = autosched.build(program, target="cpu")
    assert isinstance(built, DynamicExecutable)
    for sizes in ((9, 11), (16, 7)):
        x = torch.randn(2, 3, *sizes, generator=torch.Generator().manual_seed(1))
        expected, found = Model()(x), built(x.numpy())
        for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-5)


def test_parts_of_every_row_are_written_over_beside_an_open_size():
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y[:, 1] = x[:, 0] + 1
            y[:, 2:4] = 0
            return y

    program = torch.export.export(Model(), (torch.ones(2, 5, 4),), dynamic_shapes=({0: Dim("batch", max=20)},))
    built = autosched.build(program, target="cpu")
    assert isinstance(built, DynamicExecutable)
    for rows in (2, 7):
        x = torch.randn(rows, 5, 4)
        np.testing.assert_array_equal(built(x.numpy()), Model()(x).numpy())
