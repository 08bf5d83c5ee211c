"""The kinds of targets, their keys and the attributes that each takes."""

from __future__ import annotations

from dataclasses import dataclass, field

_COMMON = {"model": str, "libs": list, "device": str, "tag": str, "system-lib": int, "from_device": int}
_CPU = {
    **{name: str for name in ("mcpu", "mtriple", "mfloat-abi", "mabi", "runtime", "executor", "interface-api")},
    **{name: int for name in ("num-cores", "opt-level", "vector-width", "link-params", "unpacked-api")},
    **{name: int for name in ("fast-math", "fast-math-nnan", "fast-math-ninf", "fast-math-nsz", "fast-math-arcp")},
    **{name: int for name in ("l1-bytes", "l2-bytes", "l3-bytes")},  # ours: cache sizes other than this machine's
    **{name: int for name in ("workspace-byte-alignment", "constants-byte-alignment")},
    "mattr": list,
    "cl-opt": list,
    "jit": str,
}
_GPU = {
    **{name: str for name in ("mcpu", "arch", "mtriple", "device_name")},
    **{name: int for name in ("max_num_threads", "max_threads_per_block", "thread_warp_size")},
    **{name: int for name in ("max_shared_memory_per_block", "shared_memory_per_block", "registers_per_block")},
    **{name: int for name in ("l2_cache_size_bytes", "max_function_args", "texture_spatial_limit")},
}


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A family of devices: its name, the keys it always has, its attributes and their defaults.

    backend  names the back end that generates code for it: the sub-package of that name in `codegen`, `templates` and
             `runtime`, and the folder of that name in `search_spaces`; "" where there is none
    arch_attribute  names the architecture of a GPU
    """

    name: str
    device_type: int  # DLPack's code
    default_keys: tuple[str, ...]
    attributes: dict[str, type] = field(default_factory=dict, compare=False, repr=False)
    defaults: dict[str, int | str] = field(default_factory=dict, compare=False, repr=False)
    backend: str = ""
    arch_attribute: str = "arch"

    def __str__(self) -> str:
        return self.name


def _cpu_kind(name: str, backend: str = "") -> TargetKind:
    return TargetKind(name, 1, ("cpu",), {**_COMMON, **_CPU}, backend=backend)


def _gpu_kind(
    name: str, device_type: int, keys: tuple[str, ...], backend: str = "", arch_attribute: str = "arch",
    **defaults: int | str,
) -> TargetKind:  # fmt: skip
    return TargetKind(name, device_type, keys, {**_COMMON, **_GPU}, defaults, backend, arch_attribute)


_KINDS = (
    _cpu_kind("llvm", "cpu"),
    *(_cpu_kind(name) for name in ("c", "stackvm", "hybrid", "composite")),
    _gpu_kind("cuda", 2, ("cuda", "gpu"), "cuda", max_num_threads=1024, thread_warp_size=32),
    _gpu_kind("nvptx", 2, ("cuda", "gpu"), "cuda", "mcpu", max_num_threads=1024, thread_warp_size=32),
    _gpu_kind("rocm", 10, ("rocm", "gpu"), max_num_threads=256, thread_warp_size=64),
    _gpu_kind("opencl", 4, ("opencl", "gpu"), max_num_threads=256, thread_warp_size=1),
    _gpu_kind("metal", 8, ("metal", "gpu"), max_num_threads=256, thread_warp_size=16),
    _gpu_kind("vulkan", 7, ("vulkan", "gpu"), max_num_threads=256, thread_warp_size=1),
    _gpu_kind("webgpu", 15, ("webgpu", "gpu"), max_num_threads=256),
    TargetKind("hexagon", 14, ("hexagon",), {**_COMMON, **_CPU}),
    TargetKind("ext_dev", 12, ("ext_dev",), {**_COMMON, **_CPU}),
)
KINDS: dict[str, TargetKind] = {kind.name: kind for kind in _KINDS}
