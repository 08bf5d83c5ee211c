"""TVM's functions that make a target of a kind."""

from __future__ import annotations

from autosched.target.target import Target


def _make(kind: str, model: str, options: str | list[str] | None, **attrs: object) -> Target:
    text = " ".join(options) if isinstance(options, list) else options or ""
    given = Target(f"{kind} {text}").export()
    given.pop("keys")  # they follow from the kind and the device
    return Target({**given, "model": model, **attrs})


def cuda(model: str = "unknown", arch: str | None = None, options: str | list[str] | None = None) -> Target:
    """Make a CUDA target; `arch` such as "sm_90"."""
    return _make("cuda", model, options, **({} if arch is None else {"arch": arch}))


def arm_cpu(model: str = "unknown", options: str | list[str] | None = None) -> Target:
    """Make a target for an ARM CPU: kind llvm, device arm_cpu."""
    return _make("llvm", model, options, device="arm_cpu")


def rocm(model: str = "unknown", options: str | list[str] | None = None) -> Target:
    """Make a ROCm target."""
    return _make("rocm", model, options)


def vta(model: str = "unknown", options: str | list[str] | None = None) -> Target:
    """Make a target for the VTA accelerator: kind ext_dev, device vta."""
    return _make("ext_dev", model, options, device="vta", keys=["vta", "cpu"])


def mali(model: str = "unknown", options: str | list[str] | None = None) -> Target:
    """Make a target for an ARM Mali GPU: kind opencl, device mali."""
    return _make("opencl", model, options, device="mali")


def intel_graphics(model: str = "unknown", options: str | list[str] | None = None) -> Target:
    """Make a target for Intel's graphics: kind opencl, device intel_graphics."""
    return _make("opencl", model, options, device="intel_graphics", thread_warp_size=16)


def create(target: str | dict[str, object] | Target) -> Target:
    """Make a target of its text; TVM's older name for `Target(target)`."""
    return Target(target)
