"""A device as a worker tells it: complete on every machine, refused from another version."""

from __future__ import annotations

import json
import pickle

from autosched.target import Target
from autosched.tuner.measure.cluster.device import Device, this_device


def test_a_device_travels_whole() -> None:
    device = this_device(threads=1)
    there = Device.from_json(device.to_json())
    assert there == device and there.target.fingerprint() == Target("cpu").fingerprint()
    here = Target("cpu")
    assert (there.target.features, there.target.vector_bits, there.target.cache) == (
        here.features,
        here.vector_bits,
        here.cache,
    )
    assert there.target.llvm_features == here.llvm_features and there.target.num_cores == here.num_cores
    assert {"l1-bytes", "l2-bytes", "l3-bytes", "num-cores", "mcpu"} <= set(there.target.attrs)


def test_a_declared_device_has_its_own_tag() -> None:
    small, large = (this_device(f"llvm -mcpu=x86-64-v3 -l2-bytes={size}") for size in (1 << 18, 1 << 22))
    assert small.tag != large.tag and small.fingerprint.isa_level == "x86-64-v3"
    assert "caches 32/256/" in small.text or "/256/" in small.text


def test_what_is_no_device_of_ours() -> None:
    device = this_device()
    other = json.dumps({**json.loads(device.to_json()), "version": "0.0"})
    for text in (other, "", None, "[]", "{}", 3, '{"version": 1}'):
        assert Device.from_json(text) is None


def test_a_target_keeps_the_machine_it_is_meant_for() -> None:
    elsewhere = Target("llvm -mcpu=skylake-avx512 -l2-bytes=1048576").fingerprint()
    target = Target("cpu").on(elsewhere)
    assert target.fingerprint() == elsewhere and target != Target("cpu") and Target(target) == target
    assert (
        pickle.loads(pickle.dumps(target)) == target and pickle.loads(pickle.dumps(target)).fingerprint() == elsewhere
    )
    assert Target(target.to_json()) == Target("cpu")
