"""Fingerprints of both kinds of devices."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autosched.target import CpuFingerprint, Fingerprint, GpuFingerprint, Target
from autosched.target.gpus import device_named, usual_arch

H200 = Target("nvidia/nvidia-h200").fingerprint()


def test_each_kind_has_its_own_fields() -> None:
    gpu = json.loads(H200.to_json())
    assert (gpu["kind"], gpu["arch"], gpu["sm_count"]) == ("cuda", "sm_90a", 132)
    assert "vendor" not in gpu and "cores" not in gpu
    assert "kind" not in json.loads(Target("cpu").fingerprint().to_json())  # as in records of the time before GPUs


@pytest.mark.parametrize("target", ["cpu", "nvidia/nvidia-h200", "cuda -arch=sm_80"])
def test_json_round_trip(target: str) -> None:
    one = Target(target).fingerprint()
    assert Fingerprint.from_json(one.to_json()) == one
    assert one.name in one.summary


def test_the_family_is_the_architecture_without_its_suffix() -> None:
    assert (H200.family, H200.isa) == ("sm_90", "sm_90a")
    assert Target("nvidia/nvidia-h200").family == "sm_90"


def test_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="unknown kind of device 'abacus'"):
        Fingerprint.from_json({"kind": "abacus"})
    with pytest.raises(ValueError, match="no JSON object"):
        Fingerprint.from_json("[]")


def test_small_differences() -> None:
    assert isinstance(H200, GpuFingerprint)
    assert replace(H200, driver="12.8").difference(H200) == "tuned with the driver of CUDA 12.8, not ?"
    assert replace(H200, sm_count=100).difference(H200) is None
    h100 = Target("nvidia/nvidia-h100").fingerprint()
    assert h100.difference(H200) is None and h100.resources == H200.resources
    assert Target("nvidia/nvidia-a100").fingerprint().resources != H200.resources
    cpu = Target("cpu").fingerprint()
    assert isinstance(cpu, CpuFingerprint)
    assert replace(cpu, cores=99).difference(cpu) == f"tuned on 99 cores, not {cpu.cores}"
    assert cpu.difference(H200) is None and H200.difference(cpu) is None


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100"),
        ("NVIDIA A10G", "nvidia-a10g"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
        ("Tesla T4", ""),
    ],
)
def test_products_by_the_names_of_their_drivers(product: str, name: str) -> None:
    assert device_named(product) == name


def test_the_usual_architecture_of_a_chip() -> None:
    assert [usual_arch(c) for c in ((7, 5), (8, 6), (9, 0), (10, 0))] == ["sm_75", "sm_86", "sm_90a", "sm_100a"]
