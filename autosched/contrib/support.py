"""What this build can do, as TVM's `support` says it."""

from __future__ import annotations

from autosched.version import __version__


def libinfo() -> dict[str, str]:
    """Versions and switches."""
    from llvmlite import binding

    return {
        "AUTOSCHED_VERSION": __version__, "LLVM_VERSION": ".".join(map(str, binding.llvm_version_info)),
        "USE_LLVM": "ON", "USE_CUDA": "OFF",
    }  # fmt: skip


def describe() -> None:
    """Print it."""
    for name, value in libinfo().items():
        print(f"{name}: {value}")
