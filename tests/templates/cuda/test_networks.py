"""The kernels of whole networks for a GPU at reduced sizes are right on the emulator and through the CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
pytest.importorskip("torch", reason="the networks are written in PyTorch")

from tests.cuda_networks import DTYPES, NETWORKS, problems_of, problems_of_whole, tasks_of

EVERY_DAY = {("bert, odd", "float16"): 1, ("resnet18, odd", "float16"): 1, ("gpt, odd", "float32"): 1}


@pytest.mark.parametrize("name, dtype", EVERY_DAY)
def test_some_kernels(name: str, dtype: str) -> None:
    for task in tasks_of(name, dtype)[: EVERY_DAY[name, dtype]]:
        assert not list(problems_of(task))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_all_kernels(name: str, dtype: str) -> None:
    tasks = tasks_of(name, dtype)
    assert len(tasks) > 4
    assert not [*problems_of_whole(name, dtype), *(problem for task in tasks for problem in problems_of(task))]


def test_neighbouring_halves_in_shared_memory_become_machine_code(capfd: pytest.CaptureFixture[str]) -> None:
    """libnvvm makes vectors of nine halves in a row, for which it has no instruction before sm_100."""
    from autosched import te, topi
    from autosched.codegen.cuda.build import generate
    from autosched.codegen.cuda.numba_cuda import to_ptx
    from autosched.space import Config
    from autosched.target import Target
    from autosched.te import create_prim_func
    from autosched.templates import apply_config

    target = Target("cuda -arch=sm_90a")
    data, weight = (te.placeholder(s, dtype="float16", name="x") for s in ((2, 20, 5, 4), (20, 20, 3, 3)))
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 1, 1, "NCHW")])
    knobs = {"wide": 4, "high": 5, "channels": 8, "per_channel": 1, "per_pixel": 1, "step": 8}
    made = generate(apply_config(func, Config("conv2d", knobs), target).func, "kernel")
    assert "ld.volatile.shared" in to_ptx(made.texts, "compute_90a")
    assert not capfd.readouterr().err
