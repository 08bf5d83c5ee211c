"""Operators without kernels: PyTorch computes them, and the rest of a program is compiled."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.driver.build.torch_programs import LateProgram
from autosched.errors import ImportModelError, InvalidTypeError, WrongInputError
from autosched.relax import const

torch = pytest.importorskip("torch")
from autosched.relax.frontend.torch import from_exported_program  # noqa: E402

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(5))


def program_of(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    if "dynamic_shapes" in options:
        options["dynamic_shapes"] = (options["dynamic_shapes"],)  # of *inputs
    return torch.export.export(Model(), inputs, **options)


def agree(executable: Any, function: Callable[..., Any], *inputs: Any) -> None:
    found, wanted = executable(*(x.numpy() for x in inputs)), function(*inputs)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for ours, theirs in pairs:
        assert ours.dtype == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def called(executable: LateProgram) -> list[str]:
    return [call.op_name for call in executable.calls]


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Operators of a library: one under the name of PyTorch's own, one with two results, one that writes."""
    made = torch.library.Library("autosched_test", "DEF")
    made.define("relu(Tensor x) -> Tensor")
    made.define("halves(Tensor x, int axis=0) -> (Tensor, Tensor)")
    made.impl("relu", lambda x: x * 3, "CompositeExplicitAutograd")
    made.impl("halves", lambda x, axis=0: (x * 0.5, x.sum(axis)), "CompositeExplicitAutograd")
    yield torch.ops.autosched_test
    made._destroy()


def test_an_operator_of_a_library_is_not_taken_for_pytorchs_own_of_that_name(library):
    executable = autosched.build(program_of(lambda x: library.relu(x + 1).sigmoid(), X))
    agree(executable, lambda x: ((x + 1) * 3).sigmoid(), X)
    assert called(executable) == ["autosched_test::relu"]


def test_custom_converters_are_found_without_the_namespace(library):
    program = program_of(lambda x: library.relu(x), X)
    rules = {"relu": lambda node, t: const(np.full((3, 4), 7, np.float32))}
    executable = autosched.build(from_exported_program(program, custom_convert_map=rules))
    agree(executable, lambda x: torch.full_like(x, 7), X)


def test_several_results_and_a_call_that_needs_the_result_of_another(library):
    def function(x: Any) -> Any:
        half, total = library.halves(x.exp(), 1)
        return library.relu(half - total[:, None]), total

    executable = autosched.build(program_of(function, X))
    agree(executable, function, X)
    assert sorted(called(executable)) == ["autosched_test::halves", "autosched_test::relu"]


def test_composite_operators_stay_whole_with_what_they_check():
    def function(x: Any) -> Any:
        return torch.linalg.cholesky(x @ x.mT + torch.eye(3)), torch.linalg.inv(x @ x.mT + torch.eye(3)).tanh()

    executable = autosched.build(program_of(function, X))
    agree(executable, function, X)
    assert called(executable) == ["linalg_cholesky", "linalg_inv"]
    with pytest.raises(WrongInputError, match="not positive-definite"):
        executable(np.full((3, 4), np.nan, np.float32))


def test_one_program_for_all_sizes(library):
    batch, width = torch.export.Dim("batch", max=20), torch.export.Dim("width", max=30)

    def function(x: Any) -> Any:
        return library.relu(x.softmax(1)).sum(0)

    executable = autosched.build(program_of(function, X, dynamic_shapes=({0: batch, 1: width},)))
    for shape in ((3, 4), (5, 7), (1, 13)):
        agree(executable, function, torch.rand(shape))


def test_the_import_alone_refuses_them_all_at_once(library):
    program = program_of(lambda x: torch.linalg.inv(library.relu(x)[:, :3]), X)
    with pytest.raises(ImportModelError, match=r"not supported: aten\.linalg_inv.*; autosched_test\.relu"):
        from_exported_program(program)


def test_inside_of_branches_they_are_refused(library):
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: library.relu(x), lambda x: x + 1, (x,))

    with pytest.raises(ImportModelError, match="not supported: autosched_test.relu"):
        autosched.build(program_of(function, X))


@pytest.mark.parametrize("sizes", ((3, 3, 3), (3, 5, 7)))
def test_buffers_that_change_go_from_call_to_call(library, sizes):
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.register_buffer("moments", torch.eye(4))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            self.moments.mul_(0.9).add_(x.mT @ x)
            return library.relu(x) + self.count, torch.linalg.inv(self.moments)

    model = Counting()
    options = {"dynamic_shapes": ({0: torch.export.Dim("n", max=9)},)} if len(set(sizes)) > 1 else {}
    executable = autosched.build(torch.export.export(model, (X,), **options))
    again = pickle.loads(pickle.dumps(executable))
    for n, size in enumerate(sizes):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(n))
        agree(executable, model, x)
        assert executable.states["b_count"] == n + 1
    np.testing.assert_allclose(executable.states["b_moments"], model.moments, rtol=1e-5)
    with pytest.raises(InvalidTypeError, match="is given twice"):
        executable(x.numpy(), x.numpy())
    assert again.states["b_count"] == 0
    again(X.numpy())
    assert again.states["b_count"] == 1


def test_dropout_in_training_is_drawn_by_pytorch_beside_running_statistics():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.5)).train()
    images = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(3))
    executable = autosched.build(torch.export.export(model, (images,)))
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        with torch.no_grad():
            wanted = model(images)
        torch.manual_seed(seed)
        agree(executable, lambda x, wanted=wanted: wanted, images)
    for name, value in model[1].named_buffers():
        found = next(array for label, array in executable.states.items() if label.endswith(name))
        np.testing.assert_allclose(found, value, rtol=1e-4)


def test_running_statistics_of_halves():
    model, x = torch.nn.BatchNorm1d(4).half().train(), (X * 3 + 1).half()
    executable = autosched.build(torch.export.export(model, (x,)))
    for _ in range(2):
        with torch.no_grad():
            np.testing.assert_allclose(executable(x.numpy()).numpy(), model(x).numpy(), rtol=4e-3, atol=2e-3)
    states = (executable.states[f"b_{name}"] for name in ("running_mean", "running_var"))
    for found, wanted in zip(states, (model.running_mean, model.running_var), strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=2e-3)


def test_numbers_of_open_sizes_are_no_calls():
    """`sym_float` of a size has no kernel: the program is built for each set of sizes, without PyTorch."""
    height, width = torch.export.Dim("height", max=20), torch.export.Dim("width", max=20)
    grid = torch.rand(1, 4, 3, 2, generator=torch.Generator().manual_seed(2)) * 2 - 1

    def function(x: Any) -> Any:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    executable = autosched.build(program_of(function, torch.rand(1, 2, 5, 6), dynamic_shapes=({2: height, 3: width},)))
    assert not isinstance(executable, LateProgram)
    for size in ((5, 6), (7, 3)):
        agree(executable, function, torch.rand(1, 2, *size))


def test_memory_lies_as_it_did_in_the_export():
    """Also for operators that PyTorch computes: `as_strided` reads memory, in whatever order a tensor lies there."""

    def function(x: Any) -> Any:
        return x.as_strided((2, 2), (1, 2)), torch.as_strided_scatter(x * 2, torch.ones(2, 2), (2, 2), (1, 2))

    x = X.mT.contiguous().mT
    agree(autosched.build(program_of(function, x)), function, x)


def test_pytorch_draws_random_numbers():
    def function(x: Any) -> Any:
        noise = torch.randn(3, 4)
        return (x + noise).tanh() + torch.rand_like(x) - torch.bernoulli(x * 0 + 0.5)

    program = program_of(function, X)
    with pytest.raises(ImportModelError, match="random numbers"):
        from_exported_program(program)
    executable = autosched.build(program)
    for seed in (1, 2):
        torch.manual_seed(seed)
        wanted = function(X)
        torch.manual_seed(seed)
        agree(executable, lambda x, wanted=wanted: wanted, X)


def test_a_program_that_pytorch_cannot_take_apart_is_refused():
    class Writing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(3, 4)  # no buffer

        def forward(self, x: Any) -> Any:
            self.total.add_(x)
            return self.total * 2

    with pytest.raises(ImportModelError, match="cannot take the program apart.*mutated"):
        autosched.build(torch.export.export(Writing(), (X,), strict=False))


@pytest.mark.parametrize("function", [
    lambda x: (x.exp(), x.sum(1)), lambda x: (*torch.var_mean(x, 1), x[:, :, :2]), lambda x: x.mT @ x + 1,
    lambda x: torch.ones(0, 2) + x.sum(),
])  # fmt: skip
def test_values_without_elements(function: Any) -> None:
    inputs = torch.ones(2, 0, 3)
    agree(autosched.build(program_of(function, inputs)), function, inputs)
