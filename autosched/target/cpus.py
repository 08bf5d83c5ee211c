"""What each CPU name and x86-64 level can execute.

LLVM ignores a CPU name that it does not know, with no more than a line on stderr; so the names are listed here and an
unknown one is refused. Sources: the x86-64 psABI (levels), LLVM's X86.td and AArch64Processors.td (names).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache

from autosched.errors import TargetError

_V1 = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
_V2 = _V1 | {"cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2", "crc32"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

LEVELS: dict[str, frozenset[str]] = {"x86-64": _V1, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}

_VNNI = frozenset({"avx512vnni"})
_ICELAKE = _VNNI | {"avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq", "vaes", "vpclmulqdq"}
_SAPPHIRE = _ICELAKE | {"avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16"}

# name -> its level and what it has beyond that level
_NAMES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    **{name: (features, frozenset()) for name, features in LEVELS.items()},
    **dict.fromkeys(("k8", "opteron", "athlon64", "nocona"), (_V1, frozenset())),
    **dict.fromkeys(("core2", "penryn"), (_V1, frozenset({"cx16", "sse3", "ssse3", "sahf"}))),
    **dict.fromkeys(("nehalem", "corei7", "westmere", "silvermont", "goldmont", "tremont"), (_V2, frozenset())),
    **dict.fromkeys(("sandybridge", "corei7-avx", "btver2", "bdver1"), (_V2, frozenset({"avx", "xsave"}))),
    **dict.fromkeys(("ivybridge", "core-avx-i"), (_V2, frozenset({"avx", "f16c", "xsave"}))),
    **dict.fromkeys(("haswell", "core-avx2", "broadwell", "skylake"), (_V3, frozenset())),
    **dict.fromkeys(("znver1", "znver2", "znver3", "bdver4"), (_V3, frozenset())),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake", "gracemont"), (_V3, frozenset({"avxvnni"}))),
    **dict.fromkeys(("arrowlake", "lunarlake", "sierraforest"), (_V3, frozenset({"avxvnni"}))),
    **dict.fromkeys(("skylake-avx512", "skx"), (_V4, frozenset())),
    "cascadelake": (_V4, _VNNI),
    "cooperlake": (_V4, _VNNI | {"avx512bf16"}),
    "cannonlake": (_V4, frozenset({"avx512ifma", "avx512vbmi"})),
    **dict.fromkeys(("icelake-client", "icelake-server", "tigerlake", "rocketlake"), (_V4, _ICELAKE)),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), (_V4, _SAPPHIRE)),
    "znver4": (_V4, _ICELAKE | {"avx512bf16"}),
    "znver5": (_V4, _ICELAKE | {"avx512bf16", "avxvnni"}),
}

# CPUs that run instructions of 512 bits in two halves: with vectors of 256 bits they multiply and add as fast.
_RUNS_IN_HALVES = frozenset({"znver4"})

# Instruction sets that LLVM uses only where a program asks for one of their instructions by name, which no kernel does,
# and names that stand for others. A machine that lacks them (TSX is off on many) runs the code all the same.
NEVER_GENERATED = frozenset((
    "avx10.1", "cldemote", "clflushopt", "clwb", "clzero", "enqcmd", "fsgsbase", "hreset", "invpcid", "kl", "lwp",
    "movdir64b", "movdiri", "mwaitx", "pconfig", "pku", "prefetchi", "ptwrite", "rdpid", "rdpru", "rdrnd", "rdseed",
    "rtm", "serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr", "waitpkg", "wbnoinvd", "widekl", "xsavec",
    "xsaveopt", "xsaves",
))  # fmt: skip

# What every AArch64 CPU can execute (its base profile, Armv8.0-A), and what the names have beyond it in LLVM's
# AArch64Processors.td. Vectors are NEON's 128 bits for all of them: no code is generated for SVE.
ARM_BASE = frozenset({"neon", "fp-armv8"})
_ARM_V82 = frozenset({"crc", "lse", "rdm", "fullfp16", "dotprod"})
_ARM_V86 = _ARM_V82 | {"bf16", "i8mm"}
_ARM_NAMES: dict[str, frozenset[str]] = {
    "generic": frozenset(),
    **dict.fromkeys(("cortex-a53", "cortex-a57", "cortex-a72", "cortex-a73"), frozenset({"crc"})),
    **dict.fromkeys(("cortex-a55", "cortex-a75", "cortex-a76", "neoverse-n1", "apple-m1"), _ARM_V82),
    **dict.fromkeys(("cortex-a710", "neoverse-n2", "neoverse-v1", "neoverse-v2", "ampere1"), _ARM_V86),
    **dict.fromkeys(("apple-m2", "apple-m3", "apple-m4"), _ARM_V86),
    "carmel": _ARM_V82 - {"dotprod"},
}

_X86_FEATURES = frozenset(name for level, more in _NAMES.values() for name in level | more)
_ARM_FEATURES = ARM_BASE.union(*_ARM_NAMES.values())

# How other programs name the same architecture.
ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


def known_cpus() -> tuple[str, ...]:
    """List the CPU names that `-mcpu=` takes, sorted."""
    return tuple(sorted({*_NAMES, *_ARM_NAMES}))


def features_of(mcpu: str) -> frozenset[str]:
    """Give the instruction sets of a CPU, in LLVM's names.

    Raises TargetError if the name is not known.
    """
    if mcpu in _NAMES:
        level, more = _NAMES[mcpu]
        return level | more
    if mcpu in _ARM_NAMES:
        return ARM_BASE | _ARM_NAMES[mcpu]
    close = difflib.get_close_matches(mcpu, known_cpus(), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else f"use one of {', '.join(LEVELS)} or a name such as haswell"
    raise TargetError(f"unknown CPU '{mcpu}' in -mcpu", hint=hint)


def unit_bits_of(mcpu: str, vector_bits: int) -> int:
    """How wide the units are that execute a CPU's vectors of so many bits."""
    return min(vector_bits, 256) if mcpu in _RUNS_IN_HALVES else vector_bits


@cache
def llvm_names() -> frozenset[str]:
    """LLVM's names of the instruction sets of this machine's architecture. Raises ImportError where llvmlite is not."""
    import llvmlite.binding as llvm

    return frozenset(llvm.get_host_cpu_features())  # a third of a millisecond, and each kernel asks


def check_feature(name: str, mcpu: str) -> None:
    """Refuse an instruction set that LLVM does not know, which it would ignore with no more than a line on stderr.

    Without LLVM, where no code is generated, those are known that are named here. Raises TargetError.
    """
    known = _ARM_FEATURES if mcpu in _ARM_NAMES else _X86_FEATURES
    if mcpu not in _ARM_NAMES:
        try:
            known |= llvm_names()
        except ImportError:
            known |= NEVER_GENERATED | _OTHERS
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "LLVM's names look like +avx512f or -fma"
        raise TargetError(f"unknown instruction set '{name}' in -mattr", hint=hint)


# Linux's names of instruction sets (/proc/cpuinfo) that differ from LLVM's by more than a sign.
_LINUX_NAMES = {
    **{"lm": "64bit", "pni": "sse3", "abm": "lzcnt", "bmi1": "bmi", "lahf_lm": "sahf", "pclmulqdq": "pclmul"},
    **{"sha_ni": "sha", "3dnowprefetch": "prfchw", "rdrand": "rdrnd", "sse4_1": "sse4.1", "sse4_2": "sse4.2"},
    **{"asimd": "neon", "fp": "fp-armv8", "crc32": "crc", "atomics": "lse", "asimddp": "dotprod", "asimdrdm": "rdm"},
    **{"asimdhp": "fullfp16", "pmull": "aes", "sm3": "sm4"},
}
# What generated code may use besides what the names above stand for.
_OTHERS = frozenset((
    "adx", "aes", "amx-complex", "amx-fp16", "avx10.2", "avx512vp2intersect", "avxifma", "avxneconvert",
    "avxvnniint16", "avxvnniint8", "fma4", "gfni", "pclmul", "prfchw", "sha", "sha2", "sha3", "sha512", "sm4",
    "sse4a", "sve", "sve2", "tbm", "xop",
))  # fmt: skip


def features_from_linux(flags: Iterable[str]) -> frozenset[str]:
    """Instruction sets in LLVM's names, from the flags that /proc/cpuinfo lists of a CPU.

    Linux lists what a process may use: what its CPU has, less what the system does not save and restore.
    """
    found = set()
    for flag in flags:
        if flag.startswith("avx"):
            flag = flag.replace("_", "")
        elif flag.startswith("amx_"):
            flag = flag.replace("_", "-")
        found.add(_LINUX_NAMES.get(flag, flag))
    if "sse4.2" in found:
        found.add("crc32")
    return frozenset(found & (_X86_FEATURES | _ARM_FEATURES | NEVER_GENERATED | _OTHERS))


def architecture_of(machine: str) -> str:
    """The architecture that `platform.machine()` or the first part of a triple names: "x86_64", "aarch64"."""
    name = machine.lower()
    return ARCHITECTURES.get(name, name)


def level_of(features: frozenset[str]) -> str:
    """Name the highest x86-64 level whose instruction sets are all there; "aarch64" or "generic" elsewhere."""
    for name in reversed(LEVELS):
        if LEVELS[name] <= features | _V1 and (name != "x86-64" or "sse2" in features):
            return name
    return "aarch64" if "neon" in features else "generic"
