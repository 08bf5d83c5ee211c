"""Which machine code a device takes, and what is said where there is no device."""

from __future__ import annotations

import pytest

from autosched.errors import DeviceError
from autosched.runtime import cuda, empty
from autosched.runtime.cuda.core import CoreDriver
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.cuda.kernel import choose_image, image_for
from autosched.runtime.kernel import pack_text
from autosched.target import Target
from autosched.target.cuda_host import has_cuda_driver
from tests.runtime.cuda.test_kernel import cuda_kernel

no_driver = pytest.mark.skipif(has_cuda_driver(), reason="a CUDA driver is here")


@pytest.mark.parametrize(
    ("archs", "capability", "chosen"),
    [
        (["sm_90a", "sm_90", "compute_80"], (9, 0), "sm_90a"),
        (["sm_90", "compute_80"], (9, 0), "sm_90"),
        (["sm_80", "compute_80"], (8, 6), "sm_80"),  # machine code runs on later chips of the same major number
        (["sm_86", "compute_80"], (8, 0), "compute_80"),
        (["sm_90a", "compute_75", "compute_80"], (10, 0), "compute_80"),  # "a" is for that chip alone
        (["sm_100f", "compute_80"], (10, 3), "sm_100f"),
        (["sm_100a"], (10, 3), None),
        (["compute_90a"], (10, 0), None),
        (["sm_80"], (9, 0), None),
        ([], (9, 0), None),
    ],
)
def test_the_image_for_a_device(archs: list[str], capability: tuple[int, int], chosen: str | None) -> None:
    assert choose_image(dict.fromkeys(archs, b""), capability) == chosen


def test_the_targets_own_ptx_serves_later_devices() -> None:
    ptx = pack_text(".target sm_80")
    kernel = cuda_kernel(images={"sm_80": b"cubin"}, target=Target("cuda -arch=sm_80").to_json(), ptx_packed=ptx)
    assert image_for(kernel, "GPU", (8, 0)) == ("sm_80", b"cubin")
    assert image_for(kernel, "GPU", (12, 0)) == ("compute_80", b".target sm_80")
    with pytest.raises(DeviceError, match=r"was built for sm_80, compute_80, and GPU has compute capability 7\.5"):
        image_for(kernel, "GPU", (7, 5))
    only_here = cuda_kernel(images={"sm_90a": b"cubin"})
    with pytest.raises(DeviceError, match="build it for the target 'cuda -arch=sm_100'"):
        image_for(only_here, "GPU", (10, 0))


@pytest.mark.emulated
@pytest.mark.usefixtures("emulated")
def test_what_an_emulated_device_says() -> None:
    device = cuda(0)
    assert (device.compute_version, device.warp_size, device.multi_processor_count) == ("9.0", 32, 132)
    assert (device.max_threads_per_block, device.max_thread_dimensions) == (1024, (1024, 1024, 64))
    assert (device.max_shared_memory_per_block, device.max_clock_rate) == (49152, 1830000)
    assert device.total_global_memory == 8 << 30
    assert device.device_name == "the emulated device"


@no_driver
@pytest.mark.parametrize("use", [lambda: driver_of(0), lambda: CoreDriver(3), lambda: empty((3,), device=cuda(0))])
def test_without_a_driver(use) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("cuda.core", reason="the CUDA packages are an extra")
    with pytest.raises(DeviceError, match="no NVIDIA driver is installed") as caught:
        use()
    assert caught.value.exit_code == 2 and "cuda:" in caught.value.message


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.core", None)
    monkeypatch.setitem(__import__("sys").modules, "cuda", None)
    with pytest.raises(DeviceError, match=r"pip install 'autosched\[cuda\]'"):
        CoreDriver(0)
