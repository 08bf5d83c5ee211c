"""TVM's `testing.env`: what a test may ask of the machine that it runs on."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.runtime import cuda, device, enabled
from autosched.target import Target


def _exists(kind: str) -> bool:
    return bool(enabled(kind)) and device(kind).exist


def has_llvm() -> bool:
    return True


def has_cuda() -> bool:
    return _exists("cuda")


def has_gpu() -> bool:
    """Whether there is a GPU that code is generated for."""
    return has_cuda()


def has_multi_gpu(count: int = 2) -> bool:
    return all(cuda(index).exist for index in range(count))


def has_cuda_compute(major: int, minor: int = 0, exact: bool = False) -> bool:
    """Whether the first CUDA device has a compute capability, or a later one unless `exact`."""
    if not has_cuda():
        return False
    found = tuple(int(part) for part in str(cuda(0).compute_version).split("."))
    return found == (major, minor) if exact else found >= (major, minor)


def _absent() -> bool:
    """No code is generated for it, or no such library is called."""
    return False


has_rocm = has_vulkan = has_metal = has_opencl = has_nvptx = has_hexagon = has_hexagon_toolchain = _absent
has_cudnn = has_cublas = has_nccl = has_hipblas = has_nvshmem = has_matrixcore = has_adreno_opencl = _absent


def has_cpu_feature(features: str | Sequence[str]) -> bool:
    """Whether this machine's CPU has all these features, as LLVM calls them."""
    return set([features] if isinstance(features, str) else features) <= set(Target("llvm").features)


def has_x86_vnni() -> bool:
    return has_cpu_feature("avx512vnni")


def has_x86_avx512() -> bool:
    return has_cpu_feature(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
