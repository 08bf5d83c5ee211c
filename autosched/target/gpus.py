"""What NVIDIA's GPUs are: limits of each architecture, and the named devices.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Throughput of Native
Arithmetic Instructions"; NVIDIA's data sheets and architecture white papers for clocks, bandwidths, caches and the
dense rates of tensor cores.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autosched.errors import TargetError

WARP = 32
MOST_THREADS_ALONG = (1024, 1024, 64)  # of a block in x, y and z
STATIC_SHARED = 49152  # bytes of shared memory that a kernel may declare; more has to be asked for at launch
_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What code for a GPU may use, and how fast the device is.

    arch       "sm_90a": with "a" the code runs on that chip alone, with "f" on its family
    rates      multiply-adds per cycle and SM by dtype: "float32" and "float64" of its cores, the others of its tensor
               cores ("tfloat32", "float16" with float32 sums, "bfloat16", "int8", "float8")
    clock_hz   the highest that the device runs at under load, by its data sheet
    memory_bandwidth  bytes a second
    """

    arch: str
    compute_capability: tuple[int, int]
    device: str  # the named device that the numbers below the architecture's are of
    sm_count: int
    clock_hz: float
    memory_bandwidth: float
    memory_bytes: int
    l2_bytes: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    shared_per_sm: int
    max_shared_memory_per_block: int  # with the opt-in at launch
    rates: Mapping[str, float] = field(hash=False)
    warp_size: int = WARP
    max_threads_per_block: int = 1024
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    static_shared: int = STATIC_SHARED
    reserved_shared: int = _KIB  # of each block, for the system; none before sm_80

    @property
    def family(self) -> str:
        """The architecture without suffix: the class of devices that shipped logs are made for."""
        return self.arch.rstrip("af")

    @property
    def attributes(self) -> dict[str, int]:
        """The facts by the names and in the units of the driver's attributes, as `cuda_host` asks for them."""
        x, y, z = MOST_THREADS_ALONG
        return {
            "max_threads_per_block": self.max_threads_per_block,
            "max_block_dim_x": x,
            "max_block_dim_y": y,
            "max_block_dim_z": z,
            "max_shared_memory_per_block": self.static_shared,
            "warp_size": self.warp_size,
            "clock_rate": round(self.clock_hz / 1e3),
            "multi_processor_count": self.sm_count,
            "l2_cache_size": self.l2_bytes,
            "compute_major": self.compute_capability[0],
            "compute_minor": self.compute_capability[1],
            "max_shared_memory_per_multiprocessor": self.shared_per_sm,
            "max_registers_per_multiprocessor": self.registers_per_sm,
            "max_shared_memory_per_block_optin": self.max_shared_memory_per_block,
        }

    def peak_flops(self, dtype: str) -> float:
        """Floating-point (or integer) operations a second, a multiply-add counted as two.

        Raises TargetError for a dtype that the device has no unit for.
        """
        if dtype not in self.rates:
            raise TargetError(f"{self.arch} has no rate for {dtype}", hint=f"there are {', '.join(self.rates)}")
        return 2.0 * self.rates[dtype] * self.sm_count * self.clock_hz

    def occupancy(self, threads: int, registers: int, shared_bytes: int) -> float:
        """Resident threads per SM over the most there can be; 0.0 where not one block fits.

        threads, registers, shared_bytes  of a block, per thread, and of a block
        """
        blocks = self.blocks_per_sm(threads, registers, shared_bytes)
        warps = -(-threads // self.warp_size)
        return blocks * warps * self.warp_size / self.max_threads_per_sm

    def blocks_per_sm(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Blocks that an SM holds at once: registers are given to warps in units of 256, shared memory in 128 bytes."""
        if threads > self.max_threads_per_block or registers > self.max_registers_per_thread:
            return 0
        if shared_bytes > self.max_shared_memory_per_block:
            return 0
        warps = -(-threads // self.warp_size)
        per_warp = -(-max(registers, 1) * self.warp_size // 256) * 256
        # An SM has four parts; each holds whole warps.
        by_registers = self.registers_per_sm // 4 // per_warp * 4 // warps
        shared = -(-shared_bytes // 128) * 128 + self.reserved_shared
        by_shared = self.shared_per_sm // shared if shared else self.max_blocks_per_sm
        by_threads = self.max_threads_per_sm // self.warp_size // warps
        return min(self.max_blocks_per_sm, by_threads, by_registers, by_shared)


@dataclass(frozen=True, slots=True)
class _Arch:
    """Limits per SM and multiply-adds per cycle and SM."""

    threads: int
    blocks: int
    shared_kib: int
    shared_block_kib: int
    device: str  # whose numbers are taken where only the architecture is named
    rates: Mapping[str, float]
    reserved_shared: int = _KIB


@dataclass(frozen=True, slots=True)
class _Device:
    arch: str
    sm_count: int
    clock_mhz: int
    gigabytes_per_s: float
    memory_gib: int
    l2_mib: float
    rates: Mapping[str, float] = field(default_factory=dict)  # where they differ from the architecture's


def _rates(f32: float, f64: float, f16: float, tf32: float = 0, i8: float = 0, f8: float = 0) -> dict[str, float]:
    named = {"float32": f32, "float64": f64, "float16": f16, "bfloat16": f16 if tf32 else 0}
    named |= {"tfloat32": tf32, "int8": i8, "float8": f8}
    return {name: rate for name, rate in named.items() if rate}


_ARCHS: dict[str, _Arch] = {
    "sm_75": _Arch(1024, 16, 64, 64, "nvidia-t4", _rates(64, 2, 512, 0, 1024), reserved_shared=0),
    "sm_80": _Arch(2048, 32, 164, 163, "nvidia-a100", _rates(64, 32, 1024, 512, 2048)),
    "sm_86": _Arch(1536, 16, 100, 99, "nvidia-a10", _rates(128, 2, 512, 256, 1024)),
    "sm_87": _Arch(1536, 16, 164, 163, "jetson-agx-orin", _rates(128, 2, 512, 256, 1024)),
    "sm_89": _Arch(1536, 24, 100, 99, "nvidia-l4", _rates(128, 2, 512, 256, 1024, 1024)),
    "sm_90": _Arch(2048, 32, 228, 227, "nvidia-h100", _rates(128, 64, 2048, 1024, 4096, 4096)),
    "sm_100": _Arch(2048, 32, 228, 227, "nvidia-b200", _rates(128, 64, 4096, 2048, 8192, 8192)),
    "sm_103": _Arch(2048, 32, 228, 227, "nvidia-b300", _rates(128, 2, 4096, 2048, 256, 8192)),
    "sm_120": _Arch(1536, 24, 100, 99, "geforce-rtx-5090", _rates(128, 2, 512, 256, 1024, 1024)),
    "sm_121": _Arch(1536, 24, 100, 99, "nvidia-gb10", _rates(128, 2, 512, 256, 1024, 1024)),
}
_SUFFIXES = {"sm_90": "a", "sm_100": "af", "sm_103": "af", "sm_120": "af", "sm_121": "af"}

# GeForce cards add float16 products into float32 sums at half the rate of the professional ones.
_GEFORCE_AMPERE = _rates(128, 2, 256, 128, 1024)
_GEFORCE_ADA = _rates(128, 2, 256, 128, 1024, 512)

_DEVICES: dict[str, _Device] = {
    "nvidia-t4": _Device("sm_75", 40, 1590, 320, 16, 4),
    "nvidia-a2": _Device("sm_86", 10, 1770, 200, 16, 2),
    "nvidia-a10": _Device("sm_86", 72, 1695, 600, 24, 6),
    "nvidia-a10g": _Device("sm_86", 80, 1710, 600, 24, 6),
    "nvidia-a30": _Device("sm_80", 56, 1440, 933, 24, 24),
    "nvidia-a40": _Device("sm_86", 84, 1740, 696, 48, 6),
    "nvidia-a100": _Device("sm_80", 108, 1410, 1555, 40, 40),
    "nvidia-l4": _Device("sm_89", 58, 2040, 300, 24, 48),
    "nvidia-l40s": _Device("sm_89", 142, 2520, 864, 48, 96),
    "nvidia-h100": _Device("sm_90a", 132, 1830, 3350, 80, 50),
    "nvidia-h200": _Device("sm_90a", 132, 1830, 4800, 141, 50),
    "nvidia-b200": _Device("sm_100a", 148, 1850, 8000, 180, 126),
    "nvidia-b300": _Device("sm_103a", 148, 1850, 8000, 288, 126),
    "nvidia-gb10": _Device("sm_121a", 48, 2418, 273, 128, 24),
    "jetson-agx-orin": _Device("sm_87", 16, 1300, 204.8, 64, 4),
    "geforce-rtx-3060": _Device("sm_86", 28, 1777, 360, 12, 3, _GEFORCE_AMPERE),
    "geforce-rtx-3070": _Device("sm_86", 46, 1725, 448, 8, 4, _GEFORCE_AMPERE),
    "geforce-rtx-3080": _Device("sm_86", 68, 1710, 760, 10, 5, _GEFORCE_AMPERE),
    "geforce-rtx-3090": _Device("sm_86", 82, 1695, 936, 24, 6, _GEFORCE_AMPERE),
    "geforce-rtx-4070": _Device("sm_89", 46, 2475, 504, 12, 36, _GEFORCE_ADA),
    "geforce-rtx-4080": _Device("sm_89", 76, 2505, 717, 16, 64, _GEFORCE_ADA),
    "geforce-rtx-4090": _Device("sm_89", 128, 2520, 1008, 24, 72, _GEFORCE_ADA),
    "geforce-rtx-5080": _Device("sm_120", 84, 2617, 960, 16, 64, _GEFORCE_ADA),
    "geforce-rtx-5090": _Device("sm_120", 170, 2407, 1792, 32, 96, _GEFORCE_ADA),
}

# Tags of `Target`, spelt as TVM spells them.
GPU_TAGS: dict[str, dict[str, str]] = {
    f"nvidia/{name}": {"kind": "cuda", "tag": f"nvidia/{name}", "arch": device.arch, "model": name}
    for name, device in _DEVICES.items()
}


def known_archs() -> tuple[str, ...]:
    """List the architectures that `-arch=` takes and code can be generated for."""
    return tuple(name + suffix for name in _ARCHS for suffix in ("", *_SUFFIXES.get(name, "")))


def gpu_facts(arch: str, model: str = "") -> GpuFacts:
    """Give the facts of an architecture, with the numbers of a device of it.

    model   a named device ("nvidia-h200"); another text: the architecture's usual device
    Raises  TargetError for an architecture that no code can be generated for.
    """
    if arch not in known_archs():
        named = f"sm_{arch.removeprefix('compute_').replace('.', '')}"  # 90, 9.0 or compute_90
        close = [named] if named in known_archs() else difflib.get_close_matches(arch, known_archs(), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"use one of {', '.join(known_archs())}"
        raise TargetError(f"no code can be generated for the GPU architecture '{arch}'", hint=hint)
    base = arch.rstrip("af")
    limits = _ARCHS[base]
    name = model if model in _DEVICES and _DEVICES[model].arch.rstrip("af") == base else limits.device
    device = _DEVICES[name]
    digits = re.fullmatch(r"sm_(\d+)(\d)", base)
    assert digits is not None, "the table's names have this form"
    return GpuFacts(
        arch=arch,
        compute_capability=(int(digits[1]), int(digits[2])),
        device=name,
        sm_count=device.sm_count,
        clock_hz=device.clock_mhz * 1e6,
        memory_bandwidth=device.gigabytes_per_s * 1e9,
        memory_bytes=device.memory_gib << 30,
        l2_bytes=int(device.l2_mib * _MIB),
        max_threads_per_sm=limits.threads,
        max_blocks_per_sm=limits.blocks,
        shared_per_sm=limits.shared_kib * _KIB,
        max_shared_memory_per_block=limits.shared_block_kib * _KIB
        if limits.reserved_shared
        else limits.shared_kib * _KIB,
        rates=device.rates or limits.rates,
        reserved_shared=limits.reserved_shared,
    )


def device_named(product: str) -> str:
    """The table's name of a product as its driver calls it ("NVIDIA H100 80GB HBM3"); "" where it is not in the table.

    >>> device_named("NVIDIA H100 80GB HBM3"), device_named("NVIDIA GeForce RTX 4090")
    ('nvidia-h100', 'geforce-rtx-4090')
    """
    words = re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")
    found = [name for name in _DEVICES if f"{words}-".startswith((f"{name}-", f"nvidia-{name}-"))]
    return max(found, key=len, default="")


def usual_arch(capability: tuple[int, int]) -> str:
    """The architecture that code for a device of a compute capability is made for; with all that the chip can do."""
    base = f"sm_{capability[0]}{capability[1]}"
    return base + _SUFFIXES.get(base, "")[:1]


def with_limits(facts: GpuFacts, **given: int | None) -> GpuFacts:
    """The facts with what a target's own attributes say instead; None stays as it is."""
    return replace(facts, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
