"""What the machine that we run on is: its CPU's name, instruction sets, caches and cores."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autosched.env import AUTOSCHED_HOST_CACHES, AUTOSCHED_HOST_CORES, AUTOSCHED_HOST_CPU
from autosched.errors import TargetError
from autosched.target.cpus import (
    ARM_BASE,
    NEVER_GENERATED,
    architecture_of,
    features_from_linux,
    features_of,
    level_of,
)


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Sizes in bytes of one instance of each data cache; level 2 and 3 as one core sees them."""

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int


@dataclass(frozen=True, slots=True)
class HostCpu:
    """The CPU of this machine, or the one that it is taken for (AUTOSCHED_HOST_CPU and its like)."""

    architecture: str  # "x86_64", "aarch64"
    mcpu: str  # LLVM's name
    features: frozenset[str]  # LLVM's names of the instruction sets that code is generated for
    detected: frozenset[str]  # those that the machine really has
    vendor: str
    family: int
    model_name: str
    cache: CacheSizes
    cores: int  # physical cores of the whole machine

    @property
    def runnable(self) -> frozenset[str]:
        """The instruction sets that code may need to be run by this process."""
        return self.features & self.detected

    def lacks(self, needed: Iterable[str]) -> frozenset[str]:
        """Which of the instruction sets that code was generated for keep this process from running it."""
        return frozenset(needed) - NEVER_GENERATED - self.runnable


# Where nothing can be read: what most machines of the last ten years have at least.
USUAL_CACHE = CacheSizes(32 * 1024, 512 * 1024, 8 * 1024 * 1024)


def host_cpu() -> HostCpu:
    """This machine's CPU, with what the environment replaces.

    Raises TargetError if AUTOSCHED_HOST_CPU names no CPU, or one of another architecture.
    """
    return _taken_for(AUTOSCHED_HOST_CPU.get(), AUTOSCHED_HOST_CORES.get(), AUTOSCHED_HOST_CACHES.get())


@functools.cache
def _taken_for(mcpu: str, cores: int, caches: tuple[int, int, int] | None) -> HostCpu:
    machine = detect_cpu()
    said = ", ".join(
        [*([mcpu] if mcpu else []), *([f"{cores} cores"] if cores else []), *(["other caches"] * bool(caches))]
    )
    if said:  # records of a machine that does not exist are nobody's
        machine = replace(machine, model_name=f"{machine.model_name} taken for {said}")
    if mcpu:
        try:
            features = features_of(mcpu)
        except TargetError as error:
            raise TargetError(f"AUTOSCHED_HOST_CPU={mcpu} names no known CPU", hint=error.hint) from error
        if (features >= ARM_BASE) != (machine.architecture == "aarch64"):
            raise TargetError(f"AUTOSCHED_HOST_CPU={mcpu} is no CPU of this machine's architecture", hint="unset it")
        machine = replace(machine, mcpu=mcpu, features=features)
    return replace(machine, cores=cores or machine.cores, cache=CacheSizes(*caches) if caches else machine.cache)


@functools.cache
def detect_cpu() -> HostCpu:
    """Detect this machine's CPU, once a process."""
    info = read_cpuinfo(Path("/proc/cpuinfo"))
    mcpu, features = _name_and_features(info)
    architecture = architecture_of(platform.machine())
    if architecture == "aarch64":
        features |= arm_features()
    if "amx-tile" in features and not allow_tiles():
        features = frozenset(name for name in features if not name.startswith("amx-"))
    return HostCpu(
        architecture=architecture,
        mcpu=mcpu,
        features=features,
        detected=features,
        vendor=info.get("vendor_id", platform.machine()),
        family=int(info.get("cpu family", "0")),
        model_name=info.get("model name", platform.processor() or mcpu),
        cache=detect_caches(),
        cores=count_cores(),
    )


def _name_and_features(info: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """LLVM's name of the CPU and its instruction sets; without LLVM, its level and what the system lists."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        features = features_from_linux((info.get("flags") or info.get("Features", "")).split())
        level = level_of(features)
        return ("generic" if level == "aarch64" else level), features
    features = frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)
    return str(llvm.get_host_cpu_name()), features


# Linux gives a process tile registers when it asks for them (asm/prctl.h, and the number of the call on x86-64).
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18


def allow_tiles() -> bool:
    """Ask the system to let this process use tile registers (AMX), and say whether it does.

    What runs without it ends by a signal. All threads of the process have it from then on, and its forked children.
    """
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    return int(call(*map(ctypes.c_long, (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA)))) == 0


# Bits of the words that Linux tells each process of an AArch64 machine of its CPU (asm/hwcap.h), by LLVM's names.
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_HWCAP = {"crc": 7, "lse": 8, "fullfp16": 10, "rdm": 12, "dotprod": 20}
_HWCAP2 = {"i8mm": 13, "bf16": 14}


def arm_features() -> frozenset[str]:
    """The instruction sets of an AArch64 machine; the base profile's alone where the system does not say more."""
    ask = getattr(ctypes.CDLL(None), "getauxval", None)
    if ask is None:
        return ARM_BASE
    ask.argtypes, ask.restype = (ctypes.c_ulong,), ctypes.c_ulong
    words = ((ask(_AT_HWCAP), _HWCAP), (ask(_AT_HWCAP2), _HWCAP2))
    return ARM_BASE | {name for word, bits in words for name, bit in bits.items() if word >> bit & 1}


def read_cpuinfo(path: Path) -> dict[str, str]:
    """Read the first processor's entries of /proc/cpuinfo; empty where there is no such file."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def detect_caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> CacheSizes:
    """Read the data caches of one core from sysfs, else ask the C library, else assume a common machine."""
    sizes = _caches_from_sysfs(folder) or _caches_from_sysconf()
    return CacheSizes(
        sizes.get(1, USUAL_CACHE.l1_bytes),
        sizes.get(2, USUAL_CACHE.l2_bytes),
        sizes.get(3, sizes.get(2, USUAL_CACHE.l3_bytes)),  # machines without a third level: the second is the last
    )


def _caches_from_sysfs(folder: Path) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = parse_size((index / "size").read_text())
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and size > 0:
            sizes[level] = size
    return sizes


def _caches_from_sysconf() -> dict[int, int]:
    names = {1: "SC_LEVEL1_DCACHE_SIZE", 2: "SC_LEVEL2_CACHE_SIZE", 3: "SC_LEVEL3_CACHE_SIZE"}
    sizes: dict[int, int] = {}
    for level, name in names.items():
        if name in os.sysconf_names:
            size = os.sysconf(name)
            if size > 0:
                sizes[level] = size
    return sizes


def parse_size(text: str) -> int:
    """Read a size such as "32K" or "8M" as bytes.

    Raises ValueError if the text is no size.
    """
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]?)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is no size")
    return int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]


def count_cores(folder: Path = Path("/sys/devices/system/cpu")) -> int:
    """Count physical cores: hyper-threads that share a core count once."""
    siblings = set()
    for topology in folder.glob("cpu[0-9]*/topology"):
        for name in ("core_cpus_list", "thread_siblings_list"):
            try:
                siblings.add((topology / name).read_text().strip())
                break
            except OSError:
                continue
    return len(siblings) or os.cpu_count() or 1
