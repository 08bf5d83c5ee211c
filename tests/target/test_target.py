import json
import pickle

import pytest

from autosched import target as target_room
from autosched.errors import TargetError
from autosched.target import CpuFingerprint, Target, host_cpu

pytestmark = pytest.mark.host


@pytest.mark.parametrize(
    ("text", "bits", "registers", "lanes"),
    [("x86-64", 128, 16, 4), ("x86-64-v2", 128, 16, 4), ("x86-64-v3", 256, 16, 8), ("x86-64-v4", 512, 32, 16)],
)
def test_levels_decide_vectors_whatever_the_host_is(text, bits, registers, lanes):
    target = Target(f"llvm -mcpu={text}")
    assert (target.vector_bits, target.num_registers, target.lanes("float32")) == (bits, registers, lanes)
    assert target.family == text
    assert target.lanes("float64") == lanes // 2
    assert target.lanes("int8") == lanes * 4


def test_real_cpu_names():
    assert Target("llvm -mcpu=skylake-avx512").vector_bits == 512
    assert Target("llvm -mcpu=haswell").vector_bits == 256
    assert Target("llvm -mcpu=sandybridge").family == "x86-64-v2"


@pytest.mark.parametrize(
    ("text", "vector", "unit"),
    [("znver4", 512, 256), ("znver4 -vector-width=256", 256, 256), ("znver5", 512, 512), ("sapphirerapids", 512, 512),
     ("znver3", 256, 256), ("x86-64", 128, 128)],
)  # fmt: skip
def test_units_may_be_half_as_wide_as_vectors(text, vector, unit):
    target = Target(f"llvm -mcpu={text}")
    assert (target.vector_bits, target.unit_bits) == (vector, unit)


def test_mattr_changes_features():
    other = "skylake-avx512" if host_cpu().mcpu == "x86-64-v4" else "x86-64-v4"  # of this machine's CPU all are named
    target = Target(f"llvm -mcpu={other} -mattr=-avx512f,-avx512vl,+sha")
    assert target.vector_bits == 256
    assert "sha" in target.features
    assert target.llvm_features == "-avx512f,-avx512vl,+sha"


def test_cpu_is_this_machine():
    target = Target("cpu")
    assert target.kind.name == "llvm"
    assert target.mcpu == host_cpu().mcpu
    assert target.features == host_cpu().features
    wanted = set(target.llvm_features.split(","))
    assert {f"+{name}" for name in host_cpu().features} <= wanted  # a virtual machine may lack some of the CPU's


@pytest.mark.parametrize(
    "text", ["cpu", "cuda", "llvm -mcpu=x86-64-v3 -num-cores=2", "llvm -keys=arm_cpu,cpu -model=x"]
)
def test_every_form_reads_back(text):
    target = Target(text)
    for again in (
        Target(target.to_json()),
        Target(target.export()),
        Target(target),
        pickle.loads(pickle.dumps(target)),
    ):
        assert again == target
        assert hash(again) == hash(target)
    assert Target(str(target)).attrs == target.attrs
    assert len({target, Target(target)}) == 1


def test_tvm_attributes():
    target = Target("llvm -mcpu=x86-64-v3 -keys=arm_cpu,cpu -model=thing -num-cores=3 -libs=a,b")
    assert target.keys == ["arm_cpu", "cpu"]
    assert (target.model, target.num_cores, target.libs) == ("thing", 3, ["a", "b"])
    assert target.attrs["mcpu"] == "x86-64-v3"
    assert str(target).startswith("llvm -keys=arm_cpu,cpu -libs=a,b -mcpu=x86-64-v3")
    assert Target("cpu").keys == ["cpu"]
    assert Target("cuda").keys == ["cuda", "gpu"]
    assert Target("cuda").thread_warp_size == 32
    assert Target("llvm").model == "unknown"
    assert target.host is None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("nothing", "unknown target 'nothing'"),
        ("llvm -mcpu=haswel", "did you mean haswell"),
        ("sm_90a", "did you mean 'cuda -arch=sm_90a'"),
        ("cuda:sm_90", "did you mean 'cuda -arch=sm_90'"),
        ("cuda -arch=sm_90 -cores=1", "options look like -arch=sm_90a"),
        ("h200", "did you mean nvidia/nvidia-h200"),
        ("cuda:0", "did you mean cuda"),
        ("llvm -mcpus=haswell", "did you mean -mcpu"),
        ("llvm -num-cores=two", "whole number"),
        ("llvm haswell", "no option"),
        ("{", "JSON"),
        ("", "empty"),
        ({"mcpu": "haswell"}, '"kind"'),
    ],
)
def test_wrong_targets_say_what_is_wrong(bad, words):
    with pytest.raises(ValueError, match=words) as caught:
        Target(bad)
    assert isinstance(caught.value, TargetError)


def test_a_target_of_another_type_is_a_type_error():
    with pytest.raises(TypeError, match="not int"):
        Target(3)


def test_current_target_nests():
    assert Target.current() is None
    with pytest.raises(TargetError):
        Target.current(allow_none=False)
    with Target("cuda") as outer:
        with Target("cpu") as inner:
            assert Target.current() is inner
        assert Target.current() is outer
    assert Target.current() is None


def test_a_target_cannot_be_changed():
    target = Target("cpu")
    with pytest.raises(AttributeError):
        target.tag = "other"
    with pytest.raises(AttributeError):
        target._features = frozenset()
    with pytest.raises(TypeError):
        target.attrs["mcpu"] = "haswell"


def test_canonical_forms():
    device, host = Target.canon_target_and_host("cuda", "llvm")
    assert device.host == host == Target("llvm")
    assert Target("cuda", host="llvm").host == host
    assert [t.kind.name for t in Target.canon_multi_target(["llvm", "cuda"])] == ["llvm", "cuda"]
    assert [t.kind.name for t in Target.canon_multi_target({"cpu": "llvm", 2: "cuda"})] == ["llvm", "cuda"]
    assert Target.canon_multi_target("llvm") == [Target("llvm")]
    assert Target.canon_multi_target_and_host("cuda", "llvm")[0].host == Target("llvm")
    with pytest.raises(TargetError):
        Target.canon_target_and_host(None, "llvm")


def test_constructors():
    assert target_room.cuda(arch="sm_90").arch == "sm_90"
    assert target_room.arm_cpu("rasp3b").keys == ["arm_cpu", "cpu"]
    assert target_room.create("llvm") == Target("llvm")


def test_cache_sizes_can_be_given():
    target = Target("llvm -l2-bytes=1048576")
    assert target.cache.l2_bytes == 1 << 20
    assert target.cache.l1_bytes == host_cpu().cache.l1_bytes


def test_fingerprint_follows_the_target_and_reads_back():
    wide, narrow = Target("llvm -mcpu=x86-64-v4").fingerprint(), Target("llvm -mcpu=x86-64-v3").fingerprint()
    assert wide.key != narrow.key
    assert (wide.isa_level, narrow.family) == ("x86-64-v4", "x86-64-v3")
    assert type(wide).from_json(wide.to_json()) == wide
    assert json.loads(wide.to_json())["vector_bits"] == 512


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llvm -mcpu=haswell -mattr=+nonsense", "unknown instruction set 'nonsense'"),
        ("llvm -mcpu=haswell -mattr=+avx512ff", "did you mean avx512f"),
        ("llvm -num-cores=0", "-num-cores=0 is not a positive number"),
        ("cuda -max_threads_per_block=-4", "-max_threads_per_block=-4 is not a positive number"),
        ("llvm -l1-bytes=-1", "-l1-bytes=-1 is not a positive number"),
    ],
)
def test_attributes_that_nothing_could_follow(text, message):
    with pytest.raises(TargetError, match=message):
        Target(text)


def test_a_target_of_another_architecture() -> None:
    """128-bit vectors, 32 registers, caches that are not this machine's, a fingerprint of its own."""
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=4")
    assert (target.vector_bits, target.num_registers, target.has_fma, target.family) == (128, 32, True, "aarch64")
    assert {"neon", "dotprod"} <= target.features and target.triple == "aarch64-linux-gnu"
    device = target.fingerprint()
    assert isinstance(device, CpuFingerprint)
    assert (device.vendor, device.model_name, device.cores) == ("aarch64", "neoverse-n1", 4)
    assert Target("llvm -mcpu=cortex-a72 -l2-bytes=1048576").cache.l2_bytes == 1 << 20


def test_a_cpu_of_another_architecture_than_the_triple() -> None:
    with pytest.raises(TargetError, match="'haswell' in -mcpu is no CPU of aarch64"):
        Target("llvm -mtriple=aarch64-linux-gnu -mcpu=haswell")
    with pytest.raises(TargetError, match="unknown instruction set 'avx2' in -mattr"):
        Target("llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+avx2")


def test_an_option_has_one_value():
    """Of two architectures the last one was taken, and nothing said of the first."""
    with pytest.raises(TargetError, match="-arch is given twice"):
        Target("cuda -arch=sm_80,cuda -arch=sm_90a")
    assert Target("cuda -arch=sm_80 -arch=sm_80").gpu.arch == "sm_80"
