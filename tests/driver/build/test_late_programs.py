"""Exported programs whose sizes or numbers follow from data: compiled once for the VM, else stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export

import autosched
from autosched.codegen import counters
from autosched.driver.build.torch_programs import LateProgram
from autosched.errors import InvalidTypeError, ShapeError, WrongInputError
from autosched.records import FallbackContext
from autosched.runtime.relax_vm import VMExecutable

Tensors = tuple[torch.Tensor, ...]


def late(model: nn.Module, given: Tensors, **options: Any) -> LateProgram:
    built = autosched.build(export(model.eval(), given, **options), target="cpu", records=FallbackContext())
    assert isinstance(built, LateProgram)
    return built


def whole(model: nn.Module, calls: Sequence[Tensors], **options: Any) -> VMExecutable:
    """Calls agree, and nothing is compiled in them."""
    built = autosched.build(export(model.eval(), calls[0], **options), target="cpu", records=FallbackContext())
    assert isinstance(built, VMExecutable) and not built.symbolic
    before = counters.COMPILES.value
    for given in calls:
        agrees(built, model, given)
    assert counters.COMPILES.value == before
    return built


def agrees(built: Any, model: nn.Module, given: Tensors) -> None:
    """Values, dtypes and shapes are PyTorch's."""
    found = built(*(x.numpy() for x in given))
    with torch.no_grad():
        wanted = model(*given)
    pairs = zip(found if isinstance(found, tuple) else (found,), wanted if isinstance(wanted, tuple) else (wanted,),
                strict=True)  # fmt: skip
    for ours, theirs in pairs:
        array = np.asarray(ours)
        assert str(array.dtype) == str(theirs.dtype).removeprefix("torch.") and array.shape == tuple(theirs.shape)
        np.testing.assert_allclose(array, theirs.numpy(), rtol=1e-5, atol=1e-5)


def serves_all_sizes(model: nn.Module, calls: Sequence[Tensors], first: int = 2, **options: Any) -> LateProgram:
    """Calls agree, and no stage is made behind the first ones."""
    built = late(model, calls[0], **options)
    for number, given in enumerate(calls):
        if number == first:
            made = len(built.steps)
        agrees(built, model, given)
    assert len(built.steps) == made
    return built


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mask(count: int, size: int = 10, seed: int = 0) -> torch.Tensor:
    """So many elements hold."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed)) < count


class Masked(nn.Module):
    """Rows that a mask chooses, in and out of a linear layer, their positions, a sum over them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, m: torch.Tensor) -> Tensors:
        positions = m.nonzero()
        return torch.softmax(self.linear(x)[m], -1), positions, (x * 2)[positions[:, 0]].sum(0)


@pytest.fixture(scope="module")
def masked() -> VMExecutable:
    return whole(_MASKED, [(random(10, 8, seed=i), mask(n, seed=i)) for i, n in enumerate((5, 6, 3, 9, 2))])


torch.manual_seed(0)
_MASKED = Masked()


@pytest.mark.parametrize("count", (0, 1, 10, 4))
def test_none_one_all(masked: VMExecutable, count: int) -> None:
    agrees(masked, _MASKED, (random(10, 8), mask(count)))


def test_threads_with_other_counts(masked: VMExecutable) -> None:
    def call(number: int) -> None:
        agrees(masked, _MASKED, (random(10, 8, seed=number), mask(number % 11, seed=number)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(80)))


def test_it_is_saved_and_loaded(masked: VMExecutable, tmp_path: Path) -> None:
    masked.save(tmp_path / "model.asx")
    loaded = autosched.load(tmp_path / "model.asx")
    assert isinstance(loaded, VMExecutable)
    for count in (3, 0, 7):
        agrees(loaded, _MASKED, (random(10, 8), mask(count)))


def test_a_mask_of_the_wrong_size_is_refused(masked: VMExecutable) -> None:
    with pytest.raises(ShapeError, match="m"):
        masked(np.zeros((10, 8), "f4"), np.ones(9, bool))
    with pytest.raises(InvalidTypeError, match="dtype int64 instead of bool"):
        masked(np.zeros((10, 8), "f4"), np.ones(10, np.int64))
    with pytest.raises(InvalidTypeError, match="1 arguments instead of 2"):
        masked(np.zeros((10, 8), "f4"))


class Taken(nn.Module):
    def forward(self, x: torch.Tensor, k: torch.Tensor) -> Tensors:
        n = k.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        return x[:n] * 2, x[:n].sum(0), torch.arange(n), x * n, torch.tensor(3) * n


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32))
def test_a_number_out_of_a_tensor_is_a_size(dtype: torch.dtype) -> None:
    calls = [(random(10, 8, seed=n), torch.tensor(n, dtype=dtype)) for n in (3, 4, 5, 10, 1)]
    agrees(serves_all_sizes(Taken(), calls), Taken(), (random(10, 8), torch.tensor(0, dtype=dtype)))


class Added(nn.Module):
    def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return x + k.item()


def test_a_number_that_may_be_negative_is_no_size() -> None:
    built = late(Added(), (random(3), torch.tensor(4)))
    for n in (-3, 4, 0, 2**45):
        agrees(built, Added(), (random(3), torch.tensor(n)))


class Distinct(nn.Module):
    def forward(self, x: torch.Tensor) -> Tensors:
        return torch.unique(x, return_inverse=True, return_counts=True)


def test_each_nan_is_distinct() -> None:
    x = torch.tensor([2.0, float("nan"), 1.0, float("nan"), 1.0])
    agrees(late(Distinct(), (x,)), Distinct(), (x,))
    whole(Distinct(), [(torch.tensor(x),) for x in ([3, 1, 3, 2], [1, 1, 1, 1])])


class Stretched(nn.Module):
    def forward(self, x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return torch.repeat_interleave(x, r, dim=0, output_size=5) + x[:1]


def test_a_sum_of_repeats_that_the_program_says_is_checked() -> None:
    built = late(Stretched(), (random(3, 2), torch.tensor([1, 2, 2])))
    agrees(built, Stretched(), (random(3, 2), torch.tensor([0, 5, 0])))
    with pytest.raises(WrongInputError, match="allocated size"):
        built(random(3, 2).numpy(), np.array([1, 2, 1]))


class Few(nn.Module):
    def forward(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        chosen = x[m]
        torch._check(chosen.shape[0] % 2 == 0)
        torch._check(chosen.shape[0] <= 4)
        return torch.cond(chosen.shape[0] > 2, lambda y: y.sum(), lambda y: y.sum() * 2, (chosen,))


def test_what_the_program_says_of_a_size_is_checked() -> None:
    built = late(Few(), (random(10), mask(2)))
    for n in (2, 0, 4, 3, 6):
        if n in (3, 6):
            with pytest.raises(WrongInputError, match="Runtime assertion failed for expression"):
                built(random(10).numpy(), mask(n).numpy())
        else:
            agrees(built, Few(), (random(10), mask(n)))


def test_what_the_program_says_of_a_number_is_checked() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            n = k.item()
            torch._check(n > 1)
            torch._check(n <= 7)
            return torch.arange(n) + x[: n // 2].sum()

    built = late(Model(), (random(10), torch.tensor(4)))
    for n in (8, 4, 1, 0, 6, 7, 9, 1, 8, 5):  # known at first, then open
        given = (random(10).numpy(), np.array(n))
        if 1 < n <= 7:
            agrees(built, Model(), (random(10), torch.tensor(n)))
        else:
            with pytest.raises(WrongInputError, match="Runtime assertion failed for expression"):
                built(*given)


class Split(nn.Module):
    """Pieces of sizes that a tensor says."""

    def forward(self, x: torch.Tensor, sizes: torch.Tensor) -> Tensors:
        pieces = torch.split(x * 2, sizes.tolist(), 0)
        return torch.cat([piece * (i + 1) for i, piece in enumerate(pieces)], 0), pieces[1].sum(0)


def test_pieces_of_sizes_that_a_tensor_says() -> None:
    calls = [(random(10, 8), torch.tensor(k)) for k in ([3, 4, 3], [5, 1, 4], [2, 2, 6], [1, 8, 1])]
    built = serves_all_sizes(Split(), calls)
    for sizes in ([10, 0, 0], [0, 4, 6]):
        agrees(built, Split(), (random(10, 8), torch.tensor(sizes)))


class Experts(nn.Module):
    """Rows in the order of their experts, each group through its own layer, and back: as many rows as before."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, expert: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        order = expert.argsort(stable=True)
        counts = nn.functional.one_hot(expert, 3).sum(0)
        pieces = x[order].split(counts.tolist(), 0)
        y = torch.cat([layer(piece) for layer, piece in zip(self.layers, pieces, strict=True)], 0)
        return torch.zeros_like(x).index_add(0, order, y * weight[order][:, None])


def test_a_sum_of_sizes_that_the_program_says_to_be_known() -> None:
    torch.manual_seed(0)
    model, counts = Experts(), ([3, 4, 5], [5, 1, 6], [2, 2, 8], [1, 8, 3])
    given = [torch.randperm(12, generator=torch.Generator().manual_seed(k[0])) for k in counts]
    experts = [torch.repeat_interleave(torch.arange(3), torch.tensor(k))[at] for k, at in zip(counts, given)]
    calls = [(random(12, 8, seed=i), expert, random(12, seed=i)) for i, expert in enumerate(experts)]
    built = serves_all_sizes(model, calls)
    agrees(built, model, (calls[0][0], torch.zeros(12, dtype=torch.int64), calls[0][2]))


class Counted(nn.Module):
    def forward(self, x: torch.Tensor, r: torch.Tensor) -> Tensors:
        chosen = x[torch.repeat_interleave(r)] + 1
        values, places, counts = torch.unique(r, return_inverse=True, return_counts=True)
        return chosen, values * 2, places, counts, torch.masked_select(x, x > 0).sum(), torch.bincount(r)


def test_operators_whose_results_are_as_large_as_data_says() -> None:
    calls = [
        (random(4, 8, seed=r[0]), torch.tensor(r)) for r in ([3, 4, 3, 1], [5, 1, 4, 2], [2, 9, 6, 2], [1, 8, 7, 3])
    ]
    built = serves_all_sizes(Counted(), calls)
    agrees(built, Counted(), (random(4, 8), torch.tensor([0, 0, 0, 0])))
    assert {(call.op_name, call.library_name) for call in built.calls} >= {("bincount", "PyTorch")}
    with pytest.raises(WrongInputError, match="repeat"):
        built(np.zeros((4, 8), "f4"), np.array([1, -1, 2, 2]))


class Written(nn.Module):
    """Values put where a mask holds, positions as `where` gives them."""

    def forward(self, x: torch.Tensor, m: torch.Tensor) -> Tensors:
        y = torch.zeros_like(x)
        y[m] = x[m] * 3 + 1
        i, j = torch.where(x > 0)
        return y, i, j, x[i, j]


def test_values_are_written_where_a_mask_holds() -> None:
    whole(Written(), [(random(10, 8, seed=count), mask(count)) for count in (5, 6, 0, 1, 10, 3)])


class Chosen(nn.Module):
    """What is right over no rows, and slices that are empty where their rows are not."""

    def forward(self, x: torch.Tensor, m: torch.Tensor) -> Tensors:
        y = x[m]
        seen: torch.Tensor = nn.functional.scaled_dot_product_attention(x[None], y[None], y[None])
        return (y > 0).any(), (y > 0).all(), y[1:] * 2, y[:-1].sum(0), y[-2:], seen


def test_few_rows_and_none() -> None:
    whole(Chosen(), [(random(6, 8, seed=count), mask(count, 6)) for count in (3, 0, 1, 6, 2)])


class Repeated(nn.Module):
    """A filter behind a filter, over rows whose number is open too."""

    def forward(self, x: torch.Tensor, m: torch.Tensor) -> Tensors:
        y = x[m]
        z = y[y[:, 0] > 0]
        return torch.cat([z, y, x], 0), z @ x.T


def test_filters_beside_open_dimensions() -> None:
    n = Dim("n", min=2, max=64)
    calls = [(random(size, 6, seed=size), mask(size - 3, size)) for size in (10, 12, 14, 20, 9)]
    built = whole(Repeated(), calls, dynamic_shapes=({0: n}, {0: n}))
    with pytest.raises(ShapeError, match="is 65"):
        built(np.zeros((65, 6), "f4"), np.ones(65, bool))
    with pytest.raises(ShapeError, match="is 12 for argument 'x' and 9 for argument 'm'"):
        built(np.zeros((12, 6), "f4"), np.ones(9, bool))


class Turned(nn.Module):
    """An operator that is imported for known sizes alone, before a size that follows from data."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.cummax(0).values
        return z[z[:, 0] > 0] + y[0]


@pytest.mark.parametrize("shapes", (None, {"x": (6, 4)}))
def test_known_sizes_alone_before_sizes_of_data(shapes: dict[str, tuple[int, ...]] | None) -> None:
    n, m = Dim("n", min=2, max=64), Dim("m", min=2, max=64)
    program = export(Turned(), (random(6, 4), random(3, 4)), dynamic_shapes=({0: n}, {0: m}))
    built = autosched.build(program, target="cpu", records=FallbackContext(), shapes=shapes)
    assert isinstance(built, LateProgram if shapes is None else VMExecutable)
    for rows, others in ((6, 3), (6, 5), (9, 5) if shapes is None else (6, 4)):
        agrees(built, Turned(), (random(rows, 4, seed=others), random(others, 4)))
    if shapes is not None:
        with pytest.raises(ShapeError, match=r"has shape \[7, 4\] instead of \[6, 4\]"):
            built(np.ones((7, 4), "f4"), np.ones((3, 4), "f4"))


def test_bfloat16_goes_through_pytorch_and_back() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            return ((x * 2)[m] + 1).float()

    model = Model()
    built = autosched.build(export(model, (random(10, 8).bfloat16(), mask(5))), target="cpu")
    for count in (5, 3, 0):
        x = random(10, 8, seed=count).bfloat16()
        found = built(x.view(torch.int16).numpy().view("bfloat16"), mask(count).numpy())
        np.testing.assert_allclose(np.asarray(found), model(x, mask(count)).numpy(), rtol=1e-2)


def test_complex_numbers_go_from_stage_to_stage() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            turned = torch.polar(torch.ones_like(x), x)
            n = k.item()
            torch._check(n > 0)
            torch._check(n < x.shape[0])
            return torch.view_as_real(turned[:n] * turned[:n])

    built = late(Model(), (random(10, 8), torch.tensor(4)))
    for n in (4, 5, 6):
        agrees(built, Model(), (random(10, 8, seed=n), torch.tensor(n)))


def test_a_branch_whose_sizes_follow_from_data() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x[x > 0].sum(), lambda x: x.sum(), (x,))

    whole(Model(), [(random(4),), (random(4).abs(),), (-random(4).abs(),)])


def test_nodes_of_branches_have_names_of_their_own() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> Tensors:
            more = torch.repeat_interleave(x, k, dim=0)
            y = x.sum(0, keepdim=True) - x  # "sub", as in the branch
            z = torch.cond((k > 1).any(), lambda t: t * 2, lambda t: t - 1, (x,))
            return y, z, torch.masked_select(more, more > 1.5)

    n, k = Dim("n", max=64), torch.tensor([0, 2, 1, 1])
    built = late(Model(), (random(4, 2), k), dynamic_shapes=({0: n}, {0: n}))
    for given in ((random(4, 2) + 2, k), (random(4, 2), k % 2)):
        agrees(built, Model(), given)


@pytest.mark.parametrize("is_open", (False, True))
def test_buffers_that_change_beside_such_sizes(is_open: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))
            self.register_buffer("bank", torch.zeros(6, 4))

        def forward(self, x: torch.Tensor, m: torch.Tensor) -> Tensors:
            y = x[m]
            self.total.add_(y.sum(0))
            self.bank.copy_(torch.cat([self.bank[1:], y.mean(0, keepdim=True)]))
            return y - self.total, self.bank.clone()

    n, model = Dim("n", max=20), Model()
    options = {"dynamic_shapes": ({0: n}, {0: n})} if is_open else {}
    built = autosched.build(export(model, (random(5, 4), mask(3, 5)), **options), target="cpu")
    for size, count in ((5, 3), (8, 2), (9, 7), (5, 1)) if is_open else ((5, 3), (5, 1), (5, 5)):
        agrees(built, model, (random(size, 4, seed=size), mask(count, size)))
    np.testing.assert_allclose(built.states["b_total"], model.total.numpy(), rtol=1e-5)
