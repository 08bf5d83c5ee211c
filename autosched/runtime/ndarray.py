"""TVM's names for arrays: `nd.array`, `nd.empty`, `nd.cpu`, …; the arrays themselves are in `array`."""

from autosched.runtime.array import NDArray, array, empty, from_dlpack, numpyasarray
from autosched.runtime.device import (
    Device,
    cpu,
    cuda,
    device,
    ext_dev,
    hexagon,
    metal,
    opencl,
    rocm,
    vpi,
    vulkan,
    webgpu,
)

Tensor, tensor, context, gpu = NDArray, array, device, cuda

__all__ = [
    "Device", "NDArray", "Tensor", "array", "context", "cpu", "cuda", "device", "empty", "ext_dev", "from_dlpack",
    "gpu", "hexagon", "metal", "numpyasarray", "opencl", "rocm", "tensor", "vpi", "vulkan", "webgpu",
]  # fmt: skip
