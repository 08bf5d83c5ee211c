"""`Target`: the device that code is generated for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from autosched.errors import InvalidTypeError, TargetError
from autosched.json_types import JsonObject
from autosched.target.cpus import (
    ARM_BASE,
    architecture_of,
    check_feature,
    features_of,
    level_of,
    llvm_names,
    unit_bits_of,
)
from autosched.target.cuda_host import (
    cuda_attribute,
    cuda_capability,
    cuda_device_count,
    cuda_name,
    cuda_total_memory,
    cuda_version,
)
from autosched.target.fingerprint import CpuFingerprint, Fingerprint, GpuFingerprint, OtherFingerprint
from autosched.target.gpus import GpuFacts, device_named, gpu_facts, usual_arch, with_limits
from autosched.target.host import USUAL_CACHE, CacheSizes, host_cpu
from autosched.target.kinds import KINDS, TargetKind
from autosched.target.parse import AttrValue, Parsed, parse_mapping, parse_target
from autosched.target.threads import count_affinity

_stack: ContextVar[tuple[Target, ...]] = ContextVar("autosched_targets", default=())

_BITS = {"bool": 8, "bfloat16": 16}


TargetLike: TypeAlias = "str | Mapping[str, object] | Target"  # what stands for a target: its text, its parts, itself


@lru_cache(8)
def _every_feature(wanted: frozenset[str], others: frozenset[str]) -> str:
    """All features for LLVM, each with whether it is wanted: each kernel asks."""
    return ",".join(f"{'+' if name in wanted else '-'}{name}" for name in sorted(wanted | others))


class Target:
    """A device to generate code for; immutable, compared by value, usable as a dictionary key.

    target  a kind or tag ("llvm", "cpu", "cuda") with TVM's options ("llvm -mcpu=x86-64-v3 -num-cores=2"), a
            dictionary {"kind": "llvm", "mcpu": …}, its JSON text, or a Target
    host    the target of the code that drives a device; None where there is none
    Raises  TargetError (a ValueError) if the kind, an attribute or a CPU name is unknown.

    >>> Target("llvm -mcpu=x86-64-v3").lanes("float32")
    8
    """

    __slots__ = ("_device", "_features", "attrs", "host", "keys", "kind", "tag")

    kind: TargetKind
    tag: str
    keys: list[str]
    attrs: Mapping[str, AttrValue]
    host: Target | None
    _features: frozenset[str] | None  # worked out when first asked for
    _device: Fingerprint | None  # the machine that is meant, where it is not this one

    def __init__(self, target: TargetLike, host: TargetLike | None = None):
        parsed = _parse(target)
        attrs = dict(parsed.attrs)
        if parsed.tag == "cpu":
            attrs.setdefault("mcpu", host_cpu().mcpu)
        if parsed.kind.backend == "cuda":
            _choose_gpu(attrs, parsed.kind.arch_attribute)
        if parsed.kind.backend == "cpu":
            _check_cpu_name(attrs)
        changes = attrs.get("mattr")
        for change in changes if isinstance(changes, tuple) and parsed.kind.backend == "cpu" else ():
            check_feature(change.lstrip("+-"), str(attrs.get("mcpu", "")))
        given_host = host if host is not None else parsed.host
        put = object.__setattr__
        put(self, "kind", parsed.kind)
        put(self, "tag", parsed.tag)
        put(self, "keys", list(parsed.keys))
        put(self, "attrs", MappingProxyType(attrs))
        put(self, "host", None if given_host is None else Target(given_host))
        put(self, "_features", None)
        put(self, "_device", target._device if isinstance(target, Target) else None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Target cannot be changed; make a new one instead of setting '{name}'")

    # What identifies it

    def _identity(self) -> tuple[object, ...]:
        return self.kind.name, self.tag, tuple(self.keys), tuple(sorted(self.attrs.items())), self.host, self._device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.to_json(), self._device)

    def __str__(self) -> str:
        words = [self.kind.name, f"-keys={','.join(self.keys)}"]
        for name, value in sorted(self.attrs.items()):
            words.append(f"-{name}={','.join(value) if isinstance(value, tuple) else value}")
        return " ".join(words)

    def __repr__(self) -> str:
        return f'Target("{self}")'

    def export(self) -> JsonObject:
        """Give the dictionary form, which `Target` reads back."""
        entries: JsonObject = {"kind": self.kind.name, "tag": self.tag, "keys": list(self.keys)}
        entries |= {name: list(value) if isinstance(value, tuple) else value for name, value in self.attrs.items()}
        if self.host is not None:
            entries["host"] = self.host.export()
        return entries

    def to_json(self) -> str:
        """Give the dictionary form as canonical JSON text."""
        return json.dumps(self.export(), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Target:
        """Read what `to_json` wrote."""
        return Target(text)

    def on(self, device: Fingerprint) -> Target:
        """Give this target for another machine: records are filed under that machine's fingerprint.

        The JSON form does not hold it, a pickle does.
        """
        return _rebuild(self.to_json(), device)

    def fingerprint(self) -> Fingerprint:
        """Describe the device as it is used through this target.

        That is this machine's CPU with the target's instruction sets, or its first GPU of the target's compute
        capability; without such a GPU the device that the target names, with the numbers of its data sheet.
        """
        if self._device is not None:
            return self._device
        if self.kind.backend == "cuda":
            return _gpu_fingerprint(self.gpu)
        if not self.is_cpu:
            return OtherFingerprint(self.kind.name, self.model)
        machine, cache = host_cpu(), self.cache
        if not self.is_native:  # some machine with this CPU
            machine = replace(machine, vendor=self.architecture, family=0, model_name=self.mcpu, cores=self.num_cores)
        return CpuFingerprint(
            vendor=machine.vendor,
            cpu_family=machine.family,
            model_name=machine.model_name,
            isa_level=self.family,
            vector_bits=self.vector_bits,
            l1_bytes=cache.l1_bytes,
            l2_bytes=cache.l2_bytes,
            l3_bytes=cache.l3_bytes,
            cores=machine.cores,
        )

    # What generates code for it

    @property
    def backend(self) -> str:
        """The back end: the name of its sub-packages in `codegen`, `templates` and `runtime`.

        Raises TargetError for a kind that no code can be generated for.
        """
        if not self.kind.backend:
            names = ", ".join(kind.name for kind in KINDS.values() if kind.backend)
            raise TargetError(f"no code generator for target '{self.kind.name}'", hint=f"there is one for {names}")
        return self.kind.backend

    @property
    def is_cpu(self) -> bool:
        """Whether its code runs on threads of a CPU."""
        return self.kind.device_type == 1

    @property
    def gpu(self) -> GpuFacts:
        """What a CUDA target's code may use, and how fast its device is.

        Raises TargetError for a target of another kind, and for an architecture that no code can be generated for.
        """
        if self.kind.backend != "cuda":
            raise TargetError(f"target '{self.kind.name}' is no CUDA device", hint='use "cuda" or "nvidia/nvidia-h200"')
        given = {
            "max_shared_memory_per_block": "max_shared_memory_per_block",
            "l2_bytes": "l2_cache_size_bytes",
            "max_threads_per_block": "max_threads_per_block",
            "registers_per_sm": "registers_per_block",
        }
        numbers = {name: self._int(attr, 0) or None for name, attr in given.items()}
        return with_limits(gpu_facts(self.arch or "", self.model), **numbers)

    def _check_cpu(self, what: str) -> None:
        """Refuse to answer for a device what is asked of CPUs: the host's answer would be wrong there."""
        if not self.is_cpu:
            raise TargetError(f"a target of kind '{self.kind.name}' has no {what}", hint="ask `target.gpu` instead")

    # What a CPU's machine code may use; each raises TargetError for a target that is no CPU

    @property
    def mcpu(self) -> str:
        """LLVM's name of the CPU; this machine's where none was given."""
        self._check_cpu("CPU")
        return str(
            self.attrs.get("mcpu")
            or (host_cpu().mcpu if self.is_native else _PLAIN_CPUS.get(self.architecture, "generic"))
        )

    @property
    def architecture(self) -> str:
        """A CPU's architecture, "x86_64" or "aarch64": the triple's, else the CPU name's, else this machine's."""
        self._check_cpu("architecture of a CPU")
        return _architecture(self.attrs)

    @property
    def is_native(self) -> bool:
        """Whether its code is for CPUs of this machine's architecture."""
        return self.architecture == host_cpu().architecture

    def check_triple(self) -> None:
        """See that code can be generated for a CPU target's system. Raises TargetError."""
        if self.architecture not in _PLAIN_CPUS:
            known = ", ".join(_PLAIN_CPUS)
            raise TargetError(f"no code generator for {self.architecture}", hint=f"there is one for {known}")
        if not self.is_native and "linux" not in self.triple.split("-"):
            usual = f"{self.architecture}-linux-gnu"
            raise TargetError(f"no code generator for the system of triple '{self.triple}'", hint=f"use {usual}")

    @property
    def triple(self) -> str:
        """LLVM's name of the system that a CPU's code is for: -mtriple, else this one, or Linux on another CPU."""
        if "mtriple" in self.attrs or not self.is_native:
            return str(self.attrs.get("mtriple") or f"{self.architecture}-unknown-linux-gnu")
        import llvmlite.binding as llvm

        return str(llvm.get_process_triple())

    @property
    def features(self) -> frozenset[str]:
        """The instruction sets that generated code may use, in LLVM's names."""
        self._check_cpu("instruction sets of a CPU")
        if self._features is None:
            object.__setattr__(self, "_features", self._find_features())
        assert self._features is not None, "just found"
        return self._features

    def _find_features(self) -> frozenset[str]:
        machine = host_cpu()
        is_here = self.is_native and self.mcpu == machine.mcpu
        found = set(machine.features if is_here else features_of(self.mcpu))
        for change in self.mattr:
            if change.startswith("-"):
                found.discard(change[1:])
            else:
                found.add(change.removeprefix("+"))
        return frozenset(found)

    @property
    def llvm_features(self) -> str:
        """The features for LLVM's target machine: what `mcpu` alone would not say, such as "+fma,-avx512f".

        For this machine's own CPU every feature is named, since a virtual machine may lack some of what the name
        stands for.
        """
        if not self.is_native or self.mcpu != host_cpu().mcpu:
            return ",".join(change if change[0] in "+-" else f"+{change}" for change in self.mattr)
        return _every_feature(self.features, llvm_names())

    @property
    def mattr(self) -> tuple[str, ...]:
        """Changes to the CPU's instruction sets, such as ("+avx512f", "-fma")."""
        return self._list("mattr")

    @property
    def vector_bits(self) -> int:
        """Width of a vector register: 512 with AVX-512, 256 with AVX2, else 128; `-vector-width` lowers it."""
        features = self.features
        widest = 512 if {"avx512f", "avx512vl"} <= features else 256 if "avx2" in features else 128
        return min(widest, int(self._int("vector-width", widest)))

    @property
    def unit_bits(self) -> int:
        """Width of a unit that multiplies and adds: where it is less than `vector_bits`, so wide ones are as fast."""
        return unit_bits_of(self.mcpu, self.vector_bits)

    def lanes(self, dtype: str) -> int:
        """Count the values of a dtype that one vector register holds, at least 1."""
        bits = _BITS.get(dtype) or int("".join(c for c in dtype if c.isdigit()) or 32)
        return max(1, self.vector_bits // bits)

    @property
    def num_registers(self) -> int:
        """Number of vector registers: 32 with AVX-512 and on ARM, else 16."""
        return 32 if self.features & {"avx512vl", "neon"} else 16

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return bool(self.features & {"fma", "neon"})

    @property
    def family(self) -> str:
        """The instruction-set level that shipped logs are chosen by, such as "x86-64-v3"; a GPU's architecture."""
        if self.is_cpu:
            return level_of(self.features)
        return self.gpu.family if self.kind.backend == "cuda" else str(self.attrs.get("arch", self.kind.name))

    @property
    def cache(self) -> CacheSizes:
        """Cache sizes in bytes: -l1-bytes, -l2-bytes and -l3-bytes, else this machine's, or usual ones of another
        architecture.
        """
        self._check_cpu("caches of a CPU")
        machine = host_cpu().cache if self.is_native else USUAL_CACHE
        return CacheSizes(
            self._int("l1-bytes", machine.l1_bytes),
            self._int("l2-bytes", machine.l2_bytes),
            self._int("l3-bytes", machine.l3_bytes),
        )

    @property
    def num_cores(self) -> int:
        """Cores that code is scheduled for: -num-cores, else the physical cores that this process may use."""
        self._check_cpu("cores of a CPU")
        return self._int("num-cores", min(host_cpu().cores, count_affinity()))

    # TVM's other attributes

    @property
    def model(self) -> str:
        """The device's model, "unknown" where none was given."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        """The -device option, empty where none was given."""
        return str(self.attrs.get("device", ""))

    @property
    def libs(self) -> list[str]:
        """The -libs option."""
        return list(self._list("libs"))

    @property
    def arch(self) -> str | None:
        """A GPU's architecture, such as "sm_90a"."""
        value = self.attrs.get(self.kind.arch_attribute)
        return None if value is None else str(value)

    @property
    def max_num_threads(self) -> int:
        """Threads in a block; 1 on a CPU."""
        return self._int("max_num_threads", 1)

    @property
    def thread_warp_size(self) -> int:
        """Threads that run in lockstep; 1 on a CPU."""
        return self._int("thread_warp_size", 1)

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of shared memory that a block may use; 0 on a CPU."""
        return self._int("max_shared_memory_per_block", 49152 if self.kind.device_type != 1 else 0)

    def get_target_device_type(self) -> int:
        """Give DLPack's code of the device."""
        return self.kind.device_type

    def get_kind_attr(self, name: str) -> object:
        """Give an attribute of the target's kind, None if it has none of that name."""
        return self.kind.defaults.get(name)

    def with_host(self, host: TargetLike) -> Target:
        """Give this target with another host."""
        return Target(self, host)

    def _int(self, name: str, default: int) -> int:
        value = self.attrs.get(name, default)
        assert isinstance(value, int), f"attribute {name} was not converted"
        return value

    def _list(self, name: str) -> tuple[str, ...]:
        value = self.attrs.get(name, ())
        assert isinstance(value, tuple), f"attribute {name} was not converted"
        return value

    # The current target

    def __enter__(self) -> Target:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _stack.set(_stack.get()[:-1])

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """Give the target of the innermost `with target:`, None outside.

        Raises TargetError if there is none and `allow_none` is False.
        """
        targets = _stack.get()
        if not targets and not allow_none:
            raise TargetError("no current target", hint='use `with Target("cpu"):`')
        return targets[-1] if targets else None

    # TVM's canonical forms

    @staticmethod
    def list_kinds() -> list[str]:
        """List the names of all kinds."""
        return list(KINDS)

    @staticmethod
    def canon_target(target: Any) -> Target | None:
        """Make a Target of whatever stands for one; None stays None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(target: object, target_host: object = None) -> tuple[Target | None, Target | None]:
        """Make Targets of both; the host is the target's own where none is given, and becomes part of the target."""
        device, host = Target.canon_target(target), Target.canon_target(target_host)
        if device is None:
            if host is not None:
                raise TargetError("a target host is given without a target")
            return None, None
        host = host or device.host
        return (device if host is None else device.with_host(host)), host

    @staticmethod
    def canon_multi_target(targets: object) -> list[Target]:
        """Make a list of Targets of one target, several, or a dictionary from devices to targets."""
        if targets is None:
            return []
        if isinstance(targets, Mapping) and "kind" not in targets:
            return [Target(target) for target in targets.values()]
        if isinstance(targets, (str, Mapping, Target)):
            return [Target(targets)]
        if isinstance(targets, Iterable):
            return [Target(target) for target in targets]
        raise InvalidTypeError(f"{targets!r} is neither a target, nor several, nor a dictionary of them")

    @staticmethod
    def canon_multi_target_and_host(targets: object, target_host: Any = None) -> list[Target]:
        """Make a list of Targets as `canon_multi_target` does, each with the host."""
        found = Target.canon_multi_target(targets)
        if not found:
            raise TargetError("at least one target is needed")
        return found if target_host is None else [target.with_host(target_host) for target in found]


_PLAIN_CPUS = {"x86_64": "x86-64", "aarch64": "generic"}  # by architecture: what each of its CPUs can execute


def _architecture(attrs: Mapping[str, AttrValue]) -> str:
    """The architecture that a CPU target's attributes name; this machine's where they name none."""
    if triple := str(attrs.get("mtriple", "")):
        return architecture_of(triple.split("-")[0])
    machine, mcpu = host_cpu(), str(attrs.get("mcpu", ""))
    if not mcpu or mcpu == machine.mcpu or (mcpu == "generic" and machine.architecture == "aarch64"):
        return machine.architecture
    return "aarch64" if features_of(mcpu) >= ARM_BASE else "x86_64"


def _check_cpu_name(attrs: Mapping[str, AttrValue]) -> None:
    """Refuse a CPU name that nobody knows, or of another architecture than the triple's. Raises TargetError."""
    machine, mcpu, architecture = host_cpu(), attrs.get("mcpu"), _architecture(attrs)
    if mcpu is None or (mcpu == machine.mcpu and architecture == machine.architecture):
        return
    is_arm = features_of(str(mcpu)) >= ARM_BASE
    if architecture in _PLAIN_CPUS and is_arm != (architecture == "aarch64"):
        raise TargetError(f"'{mcpu}' in -mcpu is no CPU of {architecture}", hint="give its -mtriple")


DEFAULT_ARCH = "sm_75"  # the oldest that code is generated for: where none is given and no GPU is there


def _choose_gpu(attrs: dict[str, AttrValue], arch: str) -> None:
    """Fill in the architecture, where none was given, with that of this machine's first GPU, and its name."""
    if arch in attrs:
        return
    capability = cuda_capability(0)
    attrs[arch] = DEFAULT_ARCH if capability is None else usual_arch(capability)
    if name := device_named(cuda_name(0) or "") if capability is not None else "":
        attrs.setdefault("model", name)


def _gpu_fingerprint(facts: GpuFacts) -> GpuFingerprint:
    """The first GPU here of the facts' compute capability, else the device that the facts are of."""
    capability = ".".join(map(str, facts.compute_capability))
    for index in range(cuda_device_count()):
        if cuda_capability(index) == facts.compute_capability:
            version = cuda_version() or 0
            return GpuFingerprint(
                model_name=cuda_name(index) or facts.device,
                arch=facts.arch,
                compute_capability=capability,
                sm_count=cuda_attribute(index, "multi_processor_count") or 0,
                clock_khz=cuda_attribute(index, "clock_rate") or 0,
                memory_clock_khz=cuda_attribute(index, "memory_clock_rate") or 0,
                memory_bytes=cuda_total_memory(index) or 0,
                l2_bytes=cuda_attribute(index, "l2_cache_size") or 0,
                shared_bytes_per_sm=cuda_attribute(index, "max_shared_memory_per_multiprocessor") or 0,
                registers_per_sm=cuda_attribute(index, "max_registers_per_multiprocessor") or 0,
                driver=f"{version // 1000}.{version % 1000 // 10}",
            )
    return GpuFingerprint(
        model_name=facts.device,
        arch=facts.arch,
        compute_capability=capability,
        sm_count=facts.sm_count,
        clock_khz=int(facts.clock_hz / 1e3),
        memory_clock_khz=0,
        memory_bytes=facts.memory_bytes,
        l2_bytes=facts.l2_bytes,
        shared_bytes_per_sm=facts.shared_per_sm,
        registers_per_sm=facts.registers_per_sm,
        driver="",
    )


def _rebuild(text: str, device: Fingerprint | None) -> Target:
    made = Target(text)
    object.__setattr__(made, "_device", device)
    return made


def _parse(target: object) -> Parsed:
    if isinstance(target, Target):
        return Parsed(target.kind, target.tag, tuple(target.keys), dict(target.attrs), target.host)
    if isinstance(target, str):
        return parse_target(target)
    if isinstance(target, Mapping):
        return parse_mapping(target)
    raise InvalidTypeError(
        f"a target is a text, a dictionary or a Target, not {type(target).__name__}", hint='use "cpu" or "cuda"'
    )
