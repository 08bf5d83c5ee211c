from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop

import autosched
from autosched import relax, tir
from autosched.cli import main
from autosched.codegen import counters
from autosched.errors import ImportModelError, ShapeError
from autosched.frontend.torch import from_exported_program, load_program_file
from autosched.records import FallbackContext
from autosched.relax.evaluate import evaluate
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.relax_vm import VMExecutable
from benchmarks.torch_models import EncoderLayer
from tests.cli.models import refuse


def exported() -> torch.export.ExportedProgram:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU()).eval()
    return torch.export.export(model, (torch.zeros(1, 8),))


def test_the_result_is_a_tuple_unless_unwrapped():
    assert "R.Tuple" in str(from_exported_program(exported())["main"].script())
    unwrapped = from_exported_program(exported(), unwrap_unit_return_tuple=True)
    assert unwrapped["main"].ret_struct_info.static_shape == (1, 6)


def test_parameters_as_inputs_in_the_programs_order():
    main = from_exported_program(exported(), keep_params_as_input=True)["main"]
    assert [p.name for p in main.params] == ["input", "p_0_weight", "p_0_bias"]
    assert main.attrs["num_input"] == 1 and len(main.attrs["params"]) == 2


def test_dynamic_dimensions_become_symbols():
    model = nn.ReLU()
    program = torch.export.export(model, (torch.zeros(3, 8),), dynamic_shapes=({0: torch.export.Dim("n")},))
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    first, second = mod["main"].params[0].struct_info.dims
    assert isinstance(first, tir.Var) and second == 8
    assert relax.build(mod, "llvm")["main"](np.full((2, 8), -1, "float32")).shape == (2, 8)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="ExportedProgram"):
        from_exported_program(nn.ReLU())


@pytest.mark.slow
def test_a_transformer_layer_builds_and_runs():
    model = EncoderLayer(32, 4).eval()
    x = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(1))
    module = from_exported_program(torch.export.export(model, (x,)), unwrap_unit_return_tuple=True)
    executable = autosched.build(module, target="cpu", records=FallbackContext())
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(np.asarray(executable(x.numpy())), expected, rtol=1e-4, atol=1e-4)


def test_files(tmp_path):
    torch.export.save(exported(), tmp_path / "model.pt2")
    assert load_program_file(tmp_path / "model.pt2")["main"].ret_struct_info.static_shape == (1, 6)
    (tmp_path / "text.pt2").write_text("no archive")
    with pytest.raises(ImportModelError, match="no exported program"):
        load_program_file(tmp_path / "text.pt2")
    whole = (tmp_path / "model.pt2").read_bytes()
    (tmp_path / "half.pt2").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImportModelError):
        load_program_file(tmp_path / "half.pt2")
    with pytest.raises(ImportModelError, match="no file"):
        load_program_file(tmp_path / "missing.pt2")


class Branches(nn.Module):
    """A branch that the input decides, with another inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def inner(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            (y,) = torch.cond(x[0, 0] > 1, lambda x: (x.exp(),), lambda x: (x - 1,), (x,))
            return self.linear(y), x + 1

        return torch.cond(x.sum() > 0, inner, lambda x: (x * 2, x - 1), (x,))


class Loops(nn.Module):
    """A loop over a counter, and a scan."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, y = while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2 + i), (torch.tensor(0), x))
        last, sums = scan(lambda c, z: (c + z, c * z), torch.zeros(3), x, dim=0)
        return n, y, last, sums


@pytest.mark.parametrize("start", [-1.0, 0.5, 2.0])
def test_branches(start):
    torch.manual_seed(0)
    model, x = Branches(), torch.full((2, 3), start)
    module = from_exported_program(torch.export.export(model, (x,)))
    for ours, theirs in zip(evaluate(module, [x.numpy()]), model(x), strict=True):
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5)


def test_loops_whose_steps_are_known():
    x = torch.arange(12.0).reshape(4, 3)
    with torch.no_grad():
        program = torch.export.export(Loops(), (x,))
        expected = program.module()(x)
    for ours, theirs in zip(evaluate(from_exported_program(program), [x.numpy()]), expected, strict=True):
        assert np.asarray(ours).dtype == theirs.numpy().dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


class Doubling(nn.Module):
    """A loop inside of a loop, as often as data say, with a weight and an input that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, n: torch.Tensor, x: torch.Tensor, bound: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            (y,) = while_loop(lambda y: y.abs().sum() < bound, lambda y: (y * 2,), (y,))
            return i + 1, self.linear(y)

        n, y = while_loop(lambda i, y: i < 4, step, (n, x))
        return n, y * 2


def test_a_loop_whose_steps_depend_on_data_calls_itself(tmp_path):
    """Imported, built, saved and loaded; how often it runs is known with the inputs."""
    torch.manual_seed(0)
    model, start = Doubling(), (torch.tensor(0), torch.ones(3), torch.tensor(50.0))
    with torch.no_grad():
        program = torch.export.export(model, start)
        built = autosched.build(program)
        built.save(tmp_path / "loop.asx")
        for n in (0, 3, 4):
            inputs = (torch.tensor(n), torch.rand(3) + 0.1, torch.tensor(20.0 * n))
            for loop in (built, autosched.load(tmp_path / "loop.asx")):
                for ours, theirs in zip(loop(*(x.numpy() for x in inputs)), model(*inputs), strict=True):
                    assert ours.numpy().dtype == theirs.numpy().dtype
                    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5)


def test_a_loop_of_data_for_several_targets(tmp_path):
    path, cpus = tmp_path / "loop.pt2", ("x86-64-v2", "x86-64-v3")
    torch.export.save(torch.export.export(Doubling(), (torch.tensor(0), torch.ones(3), torch.tensor(50.0))), path)
    assert main(["build", str(path), "--mcpu", ",".join(cpus), "-o", str(tmp_path / "loop.asx")]) == 0
    n, y = autosched.load(tmp_path / "loop.asx")(np.int64(4), np.ones(3, "f4"), np.float32(50))
    assert n.numpy() == 4
    np.testing.assert_array_equal(y.numpy(), np.full(3, 2))


def test_a_loop_of_data_over_open_sizes(tmp_path, monkeypatch, capsys):
    """Built once: sizes of inputs in one artifact, sizes of data in a later stage."""

    class Growing(nn.Module):
        def forward(self, x: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
            (y,) = while_loop(lambda y: y.sum() < bound, lambda y: (y * 2 + y.mean(0),), (x,))
            (y,) = torch.cond(y.sum() > 80, lambda y: (y + 1,), lambda y: (y - 1,), (y,))
            return y

    class Picked(Growing):
        def forward(self, x: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
            return super().forward(x[x > 0], bound)

    start, sizes = (torch.rand(3, 2), torch.tensor(50.0)), ({0: torch.export.Dim("n", min=2, max=64)}, None)
    built = autosched.build(torch.export.export(Growing(), start, dynamic_shapes=sizes))
    assert isinstance(built, VMExecutable) and not built.symbolic
    built.save(tmp_path / "loop.asx")
    later = autosched.build(torch.export.export(Picked(), start))
    before = counters.COMPILES.value
    loaded = autosched.load(tmp_path / "loop.asx")
    for n in (2, 64, 5):
        x, bound = torch.rand(n, 2), torch.tensor(70.0)
        for model in (built, loaded):
            np.testing.assert_allclose(model(x.numpy(), bound.numpy()).numpy(), Growing()(x, bound), rtol=1e-5)
    assert counters.COMPILES.value == before
    with pytest.raises(ShapeError, match="is 65, and the model is built for"):
        built(np.ones((65, 2), "float32"), np.float32(0))
    np.savez(tmp_path / "in.npz", x=np.ones((5, 2), "float32"), bound=np.float32(0))
    assert main(["run", str(tmp_path / "loop.asx"), "-i", str(tmp_path / "in.npz")]) == 0
    assert main(["run", str(tmp_path / "loop.asx"), "--shapes", "x:4x2", "--fill", "ones"]) == 0
    refuse(capsys, ["run", str(tmp_path / "loop.asx"), "--fill", "ones"], "of the inputs is not known", "--shapes")
    for n in (3, 2, 5):
        x = torch.tensor([0.5] * n + [-1.0] * (6 - n)).reshape(3, 2)
        np.testing.assert_allclose(later(x.numpy(), bound.numpy()).numpy(), Picked()(x, bound), rtol=1e-5)


class Sized(nn.Module):
    def forward(self, x: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        n = size.item()
        torch._check(n >= 0)
        return x * n


def test_numbers_that_are_checked_alone_are_left_out():
    class Checked(nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            torch._check(lengths.max().item() <= x.shape[1])
            return x * (torch.arange(x.shape[1])[None] < lengths[:, None])

    inputs = torch.rand(2, 5), torch.tensor([5, 3])
    got = autosched.build(torch.export.export(Checked(), inputs))(*(x.numpy() for x in inputs))
    np.testing.assert_array_equal(got.numpy(), Checked()(*inputs))
    with pytest.raises(ImportModelError, match="a Python number that the model computes"):
        from_exported_program(torch.export.export(Sized(), (torch.rand(5), torch.tensor(3))))


@pytest.mark.parametrize("what", ["reflect", "replicate", "circular", "flip"])
def test_borders_and_reversals_of_open_images_are_compiled_once(what: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.flip(2, 3) if what == "flip" else torch.nn.functional.pad(x, (1, 2, 1, 0), mode=what)

    sizes = ({0: torch.export.Dim("n"), 2: torch.export.Dim("h", min=4), 3: torch.export.Dim("w", min=4)},)
    program = torch.export.export(Model(), (torch.zeros(2, 3, 8, 9),), dynamic_shapes=sizes)
    built = autosched.build(program, threads=1)
    assert isinstance(built, DynamicExecutable)
    for shape in ((2, 3, 8, 9), (1, 3, 5, 4), (3, 3, 33, 66)):
        x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
        np.testing.assert_array_equal(built(x.numpy()).numpy(), Model()(x).numpy())
