"""CUDA kernels: the manifest's round trip, and what it may say."""

from __future__ import annotations

import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from autosched.errors import ArtifactError, DeviceError
from autosched.runtime import ArgSpec, Kernel
from autosched.runtime.cuda import CudaKernel, Launch, LaunchResources, Resources
from autosched.runtime.kernel import pack_text
from autosched.target import Target


def cuda_kernel(**more: Any) -> CudaKernel:
    fields: dict[str, Any] = {
        "name": "scale",
        "args": (ArgSpec("x", "input", "float32", (300,)), ArgSpec("out", "output", "float32", (300,))),
        "launches": (
            Launch("scale_0", (3, 1, 1), (128, 1, 1)),
            Launch("scale_1", (1, 2, 3), (32, 4, 1), (2, 1, 1), 256),
        ),
        "images": {"sm_90a": b"cubin", "compute_80": b".version 9.0"},
        "resources": Resources((LaunchResources(40, 0, 0, 0, 1.0), LaunchResources(128, 1256, 8, 4, 0.5))),
        "ptx_packed": pack_text(".version 9.0\n.target sm_90a"),
        "llvm_packed": pack_text("define void @scale()"),
        "scratch_bytes": 1200,
        "source": "# source",
        "target": Target("nvidia/nvidia-h200").to_json(),
        **more,
    }
    return CudaKernel(**fields)


def test_manifest_round_trip() -> None:
    kernel = cuda_kernel()
    entry = json.loads(json.dumps(kernel.to_manifest()))
    assert Kernel.from_manifest(entry, kernel.code) == kernel
    CudaKernel.check_manifest("kernel 'scale'", entry)


def test_the_worst_launch_is_what_a_kernel_uses() -> None:
    resources = cuda_kernel().resources
    assert (resources.registers, resources.shared_bytes, resources.occupancy) == (128, 1256, 0.5)
    assert (resources.stack_bytes, resources.spill_bytes) == (8, 4)
    assert Resources(()).registers == 0


def test_texts_and_images() -> None:
    kernel = cuda_kernel()
    assert kernel.cubin == b"cubin"
    assert kernel.ptx.endswith(".target sm_90a")
    assert kernel.llvm == "define void @scale()"
    with pytest.raises(ArtifactError, match="no machine code for sm_80"):
        _ = cuda_kernel(target=Target("nvidia/nvidia-a100").to_json()).cubin


def test_a_missing_disassembler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="nvdisasm") as found:
        _ = cuda_kernel().sass
    assert "pip install nvidia-cuda-nvdisasm" in str(found.value)


def test_the_disassembler_of_the_package_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    spec = ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    tool = tmp_path / "cu13" / "bin" / "nvdisasm"
    tool.parent.mkdir(parents=True)
    tool.write_text('#!/bin/sh\nread -r code < "$2"\necho "$1 $code"\n')
    tool.chmod(0o755)
    assert cuda_kernel(images={"sm_90a": b"machine code\n"}).sass == "-c machine code\n"


def test_images_that_do_not_fill_the_section_are_refused() -> None:
    kernel = cuda_kernel()
    with pytest.raises(ValueError, match="its section"):
        Kernel.from_manifest(kernel.to_manifest(), kernel.code + b"x")


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (["s", [0, 1, 1], [32, 1, 1], [1, 1, 1], 0], "extent of a launch"),
        (["s", [1, 65536, 1], [32, 1, 1], [1, 1, 1], 0], "extent of a launch"),
        (["s", [1, 1, 1], [1024, 2, 1], [1, 1, 1], 0], "blocks of"),
        (["s", [1, 1, 1], [32, 1, 1], [4, 4, 4], 0], "clusters of"),
        (["s", [1, 1, 1], [32, 1, 1], [1, 1, 1], -1], "shared memory"),
        (["s", [1, 1], [32, 1, 1], [1, 1, 1], 0], "zip"),
    ],
)
def test_impossible_launches_are_refused(launch: list[Any], message: str) -> None:
    entry = {**cuda_kernel().to_manifest(), "launches": [launch]}
    with pytest.raises(ValueError, match=message):
        CudaKernel.check_manifest("kernel 'scale'", entry)
