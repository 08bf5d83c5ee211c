"""What code is generated for, and what this machine is."""

from autosched.target.constructors import arm_cpu, create, cuda, intel_graphics, mali, rocm, vta
from autosched.target.cpus import LEVELS, architecture_of, known_cpus
from autosched.target.fingerprint import CpuFingerprint, Fingerprint, GpuFingerprint
from autosched.target.gpus import GpuFacts, gpu_facts, known_archs
from autosched.target.host import CacheSizes, HostCpu, detect_cpu, host_cpu
from autosched.target.kinds import KINDS, TargetKind
from autosched.target.target import Target
from autosched.target.threads import ThreadLimits, choose_threads, thread_limits

__all__ = [
    "KINDS",
    "LEVELS",
    "CacheSizes",
    "CpuFingerprint",
    "Fingerprint",
    "GpuFacts",
    "GpuFingerprint",
    "HostCpu",
    "Target",
    "TargetKind",
    "ThreadLimits",
    "architecture_of",
    "arm_cpu",
    "choose_threads",
    "create",
    "cuda",
    "gpu_facts",
    "detect_cpu",
    "host_cpu",
    "intel_graphics",
    "known_archs",
    "known_cpus",
    "mali",
    "rocm",
    "thread_limits",
    "vta",
]
