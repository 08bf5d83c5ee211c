"""What the CUDA driver says about its devices, asked through its C library; nothing where there is no driver."""

from __future__ import annotations

import ctypes
import functools

# Codes of CUdevice_attribute in cuda.h.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_block_dim_x": 2,
    "max_block_dim_y": 3,
    "max_block_dim_z": 4,
    "max_shared_memory_per_block": 8,
    "warp_size": 10,
    "clock_rate": 13,
    "multi_processor_count": 16,
    "memory_clock_rate": 36,
    "l2_cache_size": 38,
    "compute_major": 75,
    "compute_minor": 76,
    "max_shared_memory_per_multiprocessor": 81,
    "max_registers_per_multiprocessor": 82,
    "max_shared_memory_per_block_optin": 97,
}


@functools.cache
def _driver() -> ctypes.CDLL | None:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return library if library.cuInit(0) == 0 else None
    return None


@functools.cache
def cuda_device_count() -> int:
    """Count the CUDA devices; 0 where there is no driver."""
    driver, count = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def cuda_attribute(index: int, name: str) -> int | None:
    """Give one attribute of a device that exists."""
    driver, value = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetAttribute(ctypes.byref(value), _ATTRIBUTES[name], index) != 0:
        return None
    return value.value


@functools.cache
def cuda_name(index: int) -> str | None:
    """Give the product name of a device that exists."""
    driver, text = _driver(), ctypes.create_string_buffer(256)
    if driver is None or driver.cuDeviceGetName(text, 256, index) != 0:
        return None
    return text.value.decode()


@functools.cache
def cuda_total_memory(index: int) -> int | None:
    """Give the bytes of memory of a device that exists."""
    driver, size = _driver(), ctypes.c_size_t(0)
    if driver is None or driver.cuDeviceTotalMem_v2(ctypes.byref(size), index) != 0:
        return None
    return size.value


@functools.cache
def cuda_version() -> int | None:
    """Give the version of the driver's interface, such as 12080 for 12.8."""
    driver, value = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(value)) != 0:
        return None
    return value.value


def has_cuda_driver() -> bool:
    """Whether NVIDIA's driver is there and works."""
    return _driver() is not None


@functools.cache
def cuda_capability(index: int) -> tuple[int, int] | None:
    """Give the compute capability of a device; None where there is no such device."""
    if index >= cuda_device_count():
        return None
    major, minor = cuda_attribute(index, "compute_major"), cuda_attribute(index, "compute_minor")
    return None if major is None or minor is None else (major, minor)
