"""Own CUDA kernels through the emulated device: called, tuned in workers, recorded, explained, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.errors import CodegenError, DeviceError, InvalidValueError, UsageError
from autosched.runtime.cuda.devices import use_driver
from autosched.runtime.device import Device
from autosched.target.cuda_host import has_cuda_driver
from autosched.task import Status

pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")

from autosched.own.gpu.function import AutotunedKernel
from tests.driver.programs import TUNED_HERE
from tests.own.gpu import emulated, kernels
from tests.own.gpu.kernels import BESIDE, GOOD, HALF, WRONG


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "usual.db"))
    monkeypatch.setattr(AutotunedKernel, "role", emulated.ROLE)
    for function in vars(kernels).values():
        if isinstance(function, AutotunedKernel):
            function.forget()


@pytest.fixture
def device() -> Iterator[None]:
    from autosched.codegen.cuda.emulate import EmulatorDriver

    with use_driver(EmulatorDriver):
        yield


def test_host_arrays_are_copied_there_and_back(device: None) -> None:
    x, y = np.arange(1000, dtype="float32"), np.ones(1000, "float32")
    kernels.axpy(x, y, 0.5, 990)
    assert (y[:990] == x[:990] + 1).all() and (y[990:] == 1).all()
    kernels.axpy(x, y, 0.5, 990)  # the quick way
    assert (y[:990] == 2 * x[:990] + 1).all()
    both = np.arange(12, dtype="float32")
    kernels.axpy(both[2:], both[:-2], 0.5, 2)  # views of one array stay so
    assert both.tolist()[:4] == [2, 4, 2, 3]
    strided = np.zeros((10, 2), "float32")
    kernels.axpy(x[:10], strided[:, 1], 1.0, 10)
    assert (strided[:, 1] == 2 * x[:10]).all() and not strided[:, 0].any()


def test_device_arrays_stay_where_they_are(device: None) -> None:
    host = np.random.default_rng(0).random((37, 21), np.float32)
    x = autosched.nd.array(host, Device(2, 0))
    out = autosched.nd.array(np.zeros((21, 37), "float32"), Device(2, 0))
    kernels.turn(x, out)
    np.testing.assert_array_equal(out.numpy(), host.T)
    assert "square = cuda.shared.array((8, 8 + 1), float32)" in kernels.turn.source(x, out)
    assert kernels.turn.resources(x, out).shared_bytes >= 8 * 9 * 4
    assert ".entry" in kernels.turn.ptx(x, out)


def test_arrays_of_other_libraries_are_taken_as_they_are(device: None) -> None:
    class WithInterface:
        """As Numba's device arrays: no DLPack."""

        def __init__(self, owner: Any):
            self.__cuda_array_interface__ = owner.__cuda_array_interface__
            self.shape, self.dtype, self.size = owner.shape, owner.dtype, 100

    class WithDlpack:
        def __init__(self, owner: Any):
            self.__dlpack__, self.__dlpack_device__ = owner.__dlpack__, owner.__dlpack_device__
            self.shape, self.dtype, self.size = owner.shape, owner.dtype, 100

    x = autosched.nd.array(np.arange(100, dtype="float32"), Device(2, 0))
    out = autosched.nd.array(np.zeros(100, "float32"), Device(2, 0))
    kernels.double(WithInterface(x), WithDlpack(out))
    assert (out.numpy() == 2 * x.numpy()).all()
    torch = pytest.importorskip("torch")
    with pytest.raises(UsageError, match="Numba has no type for a Tensor"):
        kernels.double(torch.ones(4), torch.ones(4))


def test_the_default_is_the_choice_of_the_occupancy(device: None) -> None:
    x, out = np.zeros((300, 300), "float32"), np.zeros((300, 300), "float32")
    assert kernels.turn.best_config(x, out)["tile"] == 16, "blocks of 64 threads do not fill a multiprocessor"
    y = np.zeros(1 << 20, "float32")
    assert kernels.axpy.best_config(y, y, 1.0, y.size)["threads"] == 256
    few = kernels.axpy.space_for((y, y, 1.0, 8000)).default["threads"]
    assert few == 64, "each multiprocessor gets a part"


def test_tuning_records_explains_and_passes_over_what_is_wrong(device: None) -> None:
    x, out = np.linspace(1, 2, 200, dtype="float32"), np.zeros(200, "float32")
    report = kernels.double.tune(x, out)
    assert not out.any(), "tuning works on copies"
    records = kernels.double.records(x, out)
    assert records[0].config == kernels.double.space_for((x, out)).default, "trial 0 is the default"
    assert records[0].measurement.checked_against == "the reference in float64"
    assert "resources" in records[0].measurement.how, "registers and shared memory"
    found: dict[Any, Any] = {}
    for record in records:
        found.setdefault(record.config["mode"], record.measurement)
    assert {mode: m.status for mode, m in found.items()} == {
        GOOD: Status.OK, WRONG: Status.WRONG_RESULT, HALF: Status.WRONG_RESULT, BESIDE: Status.RUN_ERROR,
    }  # fmt: skip
    assert "out[100]" in found[HALF].error and "EmulationError" in found[BESIDE].error
    known = kernels.double.explain(x, out)
    assert known.trust in TUNED_HERE and str(known.config) == report.tasks[0].config
    assert kernels.double.best_config(x, out)["mode"] == GOOD


@pytest.mark.emulated
@pytest.mark.skipif(has_cuda_driver(), reason="a CUDA driver is here")
def test_without_a_device_it_is_refused_in_one_line() -> None:
    x = np.zeros(4, "float32")
    for run in (kernels.double, kernels.double.tune):
        with pytest.raises(DeviceError, match="cuda:0 does not exist"):
            run(x, x)


def test_what_cannot_be_launched_is_refused(device: None) -> None:
    from numba import cuda

    def plain(x, block=64):
        x[cuda.grid(1)] = 1

    tune = autosched.autotune
    with pytest.raises(UsageError, match="needs its grid"):
        tune({"block": [64]}, target="cuda")(plain)
    with pytest.raises(UsageError, match="reads 'size'"):
        tune({"block": [64]}, target="cuda", grid=lambda size: size)(plain)
    with pytest.raises(UsageError, match="grid= is for CUDA kernels"):
        tune({"block": [64]}, grid=1)(plain)
    with pytest.raises(UsageError, match="'wide' is no parameter"):
        tune({"wide": [64]}, target="cuda", grid=1)(plain)
    x = np.zeros(64, "float32")
    for grid, threads, words in ((0, 64, "at least 1"), (1, 2048, "1024 threads"), (1 << 40, 1, "is the most")):
        with pytest.raises(UsageError, match=words):
            tune({"block": [64]}, target="cuda", grid=grid, threads=threads)(plain)(x)
    with pytest.raises(UsageError, match=r"grid= raises ZeroDivisionError"):
        tune({"block": [64]}, target="cuda", grid=lambda block: block // 0, threads=64)(plain)(x)
    with pytest.raises(CodegenError, match="does not compile plain"):
        tune({"block": [64]}, target="cuda", grid=1, threads=64)(plain)(3.0)
    with pytest.raises(InvalidValueError, match="launches itself"):
        kernels.double[1, 64]


def test_options_and_shared_memory(device: None) -> None:
    from numba import cuda, float32

    @autosched.autotune(
        {"fastmath": [False, True], "block": [32, 64]}, grid=1, threads=lambda block: block,
        shared=lambda block: 4 * block,
    )  # fmt: skip
    @cuda.jit(max_registers=32)
    def back(x, out):
        kept = cuda.shared.array(0, float32)
        i = cuda.threadIdx.x
        kept[i] = x[i] / x[3]
        cuda.syncthreads()
        out[i] = kept[cuda.blockDim.x - 1 - i]

    x, out = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    exact = back.space_for((x, out)).default.with_knobs(block=32, fastmath=False)
    back._callable(exact)(x, out)
    np.testing.assert_allclose(out, x[::-1] / 3, rtol=1e-6)
    assert "div.rn" in back.ptx(x, out, config=exact)
    assert "div.rn" not in back.ptx(x, out, config=exact.with_knobs(fastmath=True))
    assert back.resources(x, out, config=exact).registers <= 32
