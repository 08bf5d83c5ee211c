"""Facts of GPUs: against NVIDIA's tables and data sheets."""

from __future__ import annotations

import pytest

from autosched.errors import TargetError
from autosched.target import Target, gpu_facts, known_archs


def test_the_facts_of_an_h200() -> None:
    gpu = Target("nvidia/nvidia-h200").gpu
    assert (gpu.arch, gpu.family, gpu.compute_capability) == ("sm_90a", "sm_90", (9, 0))
    assert (gpu.sm_count, gpu.max_shared_memory_per_block, gpu.memory_bandwidth) == (132, 232448, 4.8e12)
    assert gpu.peak_flops("float16") == pytest.approx(989.4e12, rel=0.01)
    assert gpu.peak_flops("float32") == pytest.approx(61.8e12, rel=0.01)


@pytest.mark.parametrize(
    ("tag", "dtype", "tera"),
    [("nvidia-a100", "float32", 19.5), ("nvidia-a100", "bfloat16", 312), ("nvidia-a100", "tfloat32", 156),
     ("nvidia-t4", "float16", 65), ("geforce-rtx-3090", "float16", 71), ("nvidia-l4", "float16", 121),
     ("geforce-rtx-4090", "float32", 82.6)],
)  # fmt: skip
def test_peaks_are_those_of_the_data_sheets(tag: str, dtype: str, tera: float) -> None:
    assert Target(f"nvidia/{tag}").gpu.peak_flops(dtype) == pytest.approx(tera * 1e12, rel=0.03)


def test_a_rate_that_is_not_there() -> None:
    with pytest.raises(TargetError, match="no rate for bfloat16"):
        Target("nvidia/nvidia-t4").gpu.peak_flops("bfloat16")


@pytest.mark.parametrize("arch", known_archs())
def test_every_architecture_has_facts(arch: str) -> None:
    gpu = Target(f"cuda -arch={arch}").gpu
    assert gpu.arch == arch
    assert gpu.static_shared <= gpu.max_shared_memory_per_block <= gpu.shared_per_sm
    assert Target("cuda", None) == Target("cuda")
    assert Target(str(Target(f"cuda -arch={arch}"))).gpu == gpu


def test_a_named_device_survives_the_texts() -> None:
    target = Target("nvidia/geforce-rtx-4090")
    assert Target(str(target)).gpu == Target(target.to_json()).gpu == target.gpu
    assert target.gpu.sm_count == 128


def test_attributes_go_before_the_table() -> None:
    gpu = Target("cuda -arch=sm_80 -max_shared_memory_per_block=49152 -l2_cache_size_bytes=1000").gpu
    assert (gpu.max_shared_memory_per_block, gpu.l2_bytes) == (49152, 1000)


def test_an_unknown_architecture() -> None:
    with pytest.raises(TargetError, match="sm_61"):
        _ = Target("cuda -arch=sm_61").gpu
    for text, meant in (("90", "sm_90"), ("8.6", "sm_86"), ("compute_80", "sm_80")):
        with pytest.raises(TargetError, match=f"did you mean {meant}\\?"):
            gpu_facts(text)
    with pytest.raises(TargetError, match="no CUDA device"):
        _ = Target("cpu").gpu


@pytest.mark.parametrize(
    "fact", ["mcpu", "features", "llvm_features", "vector_bits", "num_registers", "has_fma", "cache", "num_cores"]
)
def test_a_gpu_has_none_of_a_cpus_facts(fact: str) -> None:
    with pytest.raises(TargetError, match="ask `target.gpu`"):
        getattr(Target("cuda"), fact)
    with pytest.raises(TargetError, match="ask `target.gpu`"):
        Target("cuda").lanes("float32")


def test_nvptx_names_its_architecture_by_mcpu() -> None:
    assert Target("nvptx -mcpu=sm_90").gpu.compute_capability == (9, 0)


# By NVIDIA's occupancy calculator.
@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks"),
    [
        ("sm_80", 256, 32, 0, 8),
        ("sm_80", 256, 128, 0, 2),
        ("sm_80", 256, 255, 0, 1),
        ("sm_80", 128, 32, 49152, 3),
        ("sm_86", 256, 32, 0, 6),
        ("sm_90", 384, 168, 0, 1),
        ("sm_90", 128, 32, 232448, 1),
        ("sm_90", 128, 32, 232449, 0),
        ("sm_75", 64, 32, 0, 16),
        ("sm_75", 1024, 64, 65536, 1),
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, blocks: int) -> None:
    gpu = gpu_facts(arch)
    assert gpu.blocks_per_sm(threads, registers, shared) == blocks
    assert gpu.occupancy(threads, registers, shared) == blocks * threads / gpu.max_threads_per_sm
