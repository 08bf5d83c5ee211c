"""NVIDIA's driver through cuda-core: what the emulator's device does, on a real one."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.errors import DeviceError
from autosched.runtime import array, cuda, from_dlpack
from autosched.runtime.cuda.devices import driver_of
from autosched.target.cuda_host import has_cuda_driver

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda_driver(), reason="needs a CUDA device")]
X = np.arange(1000, dtype="float32")


def module(number: float) -> autosched.runtime.Module:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    x = te.placeholder((1000,), name="x")
    func = te.create_prim_func([x, te.compute((1000,), lambda i: x[i] * number, name="out")])
    return autosched.build(func, target="cuda", records=[])


def test_memory() -> None:
    driver = driver_of(0)
    a = array(X, cuda(0))
    b = a.copyto(cuda(0))
    a[:] = 3
    np.testing.assert_array_equal(b.numpy(), X)
    np.testing.assert_array_equal(a.numpy(), 3)
    np.testing.assert_array_equal(from_dlpack(b).numpy(), X)
    free, total = driver.free_bytes()
    with pytest.raises(DeviceError, match="has no room for"):
        driver.allocate(2 * total)
    assert driver.free_bytes()[0] <= free


def test_a_kernel_runs_is_captured_and_timed() -> None:
    built = module(2.0)
    x, out = array(X, cuda(0)), array(np.zeros_like(X), cuda(0))
    built(x, out)
    np.testing.assert_array_equal(out.numpy(), 2 * X)
    assert 0 < built.time_evaluator(built.entry_func.name, cuda(0), number=20)(x, out).mean < 1e-2
    driver = driver_of(0)
    kernel = next(iter(built.kernels.values()))
    entries, y = driver.load(kernel), array(np.zeros_like(X), cuda(0))

    def work() -> None:
        for entry, launch in zip(entries, kernel.launches, strict=True):
            driver.launch(entry, launch, [x.address, y.address, 0])

    replay = driver.capture(work)
    assert replay is not None
    np.testing.assert_array_equal(y.numpy(), 0)  # nothing has run yet
    replay()
    np.testing.assert_array_equal(y.numpy(), 2 * X)
    y[:] = 0
    times = driver.capture_parts([work, work, work])
    assert all(0 < seconds < 1e-3 for run in range(2) for seconds in times())
    np.testing.assert_array_equal(y.numpy(), 2 * X)


def test_torch_shares_memory_and_streams() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no device")
    built, stream = module(3.0), torch.cuda.Stream()
    x, out = torch.arange(1000, dtype=torch.float32, device="cuda"), torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with cuda(0).on_stream(stream):
        built(x, out)
    cuda(0).sync()
    assert torch.equal(out, 3 * x)
    assert torch.equal(torch.from_dlpack(array(X, cuda(0))), torch.arange(1000, dtype=torch.float32, device="cuda"))
