import dataclasses
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from autosched.codegen import compile_func
from autosched.driver.settings import check_runs_here
from autosched.errors import ArtifactError, TargetError, UsageError
from autosched.runtime.loader import load_objects
from autosched.target import LEVELS, Target, choose_threads, detect_cpu, host, host_cpu, threads
from autosched.target.cpus import NEVER_GENERATED, features_from_linux, features_of, known_cpus, level_of
from autosched.target.host import CacheSizes, count_cores, detect_caches, parse_size, read_cpuinfo
from tests.driver.programs import matmul

pytestmark = pytest.mark.host


def test_this_machine_is_plausible():
    machine = host_cpu()
    assert machine.cores >= 1
    assert 1024 <= machine.cache.l1_bytes <= machine.cache.l2_bytes
    assert machine.mcpu


def test_caches_from_sysfs(tmp_path):
    for index, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2M")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert detect_caches(tmp_path) == CacheSizes(48 << 10, 2 << 20, 2 << 20)


def test_caches_without_sysfs(tmp_path):
    assert detect_caches(tmp_path / "missing").l1_bytes > 0


def test_hyper_threads_count_once(tmp_path):
    for cpu in range(4):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "core_cpus_list").write_text(f"{cpu % 2},{cpu % 2 + 2}")
    assert count_cores(tmp_path) == 2


@pytest.mark.parametrize(("text", "size"), [("32K", 32768), ("8M\n", 8 << 20), ("512", 512)])
def test_sizes(text, size):
    assert parse_size(text) == size


def test_no_size():
    with pytest.raises(ValueError, match="no size"):
        parse_size("big")


def test_cpuinfo_of_the_first_processor(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("vendor_id : A\ncpu family\t: 25\n\nvendor_id : B\n")
    assert read_cpuinfo(path) == {"vendor_id": "A", "cpu family": "25"}
    assert read_cpuinfo(tmp_path / "none") == {}


def test_the_environment_says_what_this_machine_is_taken_for(monkeypatch):
    real = detect_cpu()
    if "sse4.2" not in real.features:
        pytest.skip("the names are for x86-64")
    monkeypatch.setenv("AUTOSCHED_HOST_CPU", "x86-64-v2")
    monkeypatch.setenv("AUTOSCHED_HOST_CORES", "64")
    monkeypatch.setenv("AUTOSCHED_HOST_CACHES", "16K,256K,64M")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    target = Target("cpu")
    assert (target.family, target.vector_bits, target.num_cores) == ("x86-64-v2", 128, 64)
    assert target.cache == CacheSizes(16 << 10, 256 << 10, 64 << 20) and choose_threads() == 64
    assert "-avx2" in target.llvm_features.split(",")
    assert target.fingerprint().model_name == f"{real.model_name} taken for x86-64-v2, 64 cores, other caches"
    monkeypatch.setenv("AUTOSCHED_HOST_CPU", "sapphirerapids")
    taken = host_cpu()
    assert "amx-tile" in taken.features and taken.runnable == taken.features & real.features
    for name, part in (("neoverse-n1", "architecture"), ("x86-64-v9", "names no known CPU")):
        monkeypatch.setenv("AUTOSCHED_HOST_CPU", name)
        with pytest.raises(TargetError, match=part):
            host_cpu()


@pytest.mark.skipif("sse4.2" not in host_cpu().features, reason="the names are for x86-64")
def test_code_that_the_machine_lacks_instructions_for_is_built_and_not_run(monkeypatch):
    """The machine is taken for one that has them; what counts is what was detected."""
    lacking = dataclasses.replace(detect_cpu(), detected=frozenset({"sse2"}))
    monkeypatch.setattr(host, "detect_cpu", lambda: lacking)
    monkeypatch.setenv("AUTOSCHED_HOST_CORES", "3")  # asked for the first time: nothing is remembered
    kernel = dataclasses.replace(compile_func(matmul(), Target("cpu"), name="k").kernel, features=("sse4.2",))
    with pytest.raises(ArtifactError, match="which this machine lacks"):
        load_objects([kernel])
    with pytest.raises(UsageError, match="this machine lacks"):
        check_runs_here(Target("cpu"))
    host._taken_for.cache_clear()


def test_each_level_is_its_own_level():
    for name, features in LEVELS.items():
        assert level_of(features) == name
    assert level_of(frozenset({"neon"})) == "aarch64"


def test_llvm_knows_every_cpu_name(capfd):
    """LLVM only warns of an unknown name, on stderr."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    native = llvm.Target.from_default_triple()
    if not native.triple.startswith("x86_64"):
        pytest.skip("the names are for x86-64")
    for name in known_cpus():
        if "avx" in features_of(name) or name in LEVELS:
            native.create_target_machine(cpu=name)
    assert "not a recognized processor" not in capfd.readouterr().err


def test_what_the_system_lists_is_what_llvm_finds():
    """A machine that serves has no LLVM, and loads what was built with its names."""
    info = read_cpuinfo(Path("/proc/cpuinfo"))
    listed = features_from_linux((info.get("flags") or info.get("Features", "")).split())
    found = frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)
    usual = features_of("x86-64-v4" if host_cpu().architecture == "x86_64" else "neoverse-n1")
    assert (found - listed) & usual <= NEVER_GENERATED, "an old system has no names for what is newer"
    known = {name for cpu in known_cpus() for name in features_of(cpu)}
    assert listed & known <= found


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("lm fpu cmov cx8 fxsr mmx sse sse2", "x86-64"),
        ("lm cmov cx8 fxsr mmx sse sse2 cx16 popcnt lahf_lm pni ssse3 sse4_1 sse4_2", "x86-64-v2"),
        ("fp asimd evtstrm aes crc32 atomics asimdhp asimdrdm asimddp", "aarch64"),
    ],
)
def test_levels_from_what_the_system_lists(flags, level):
    assert level_of(features_from_linux(flags.split())) == level


def test_linux_names_become_those_of_llvm():
    flags = "avx512_bf16 avx512_vnni avx_vnni amx_tile amx_int8 amx_bf16 sha_ni pclmulqdq abm bmi1 rdrand ht fsrm"
    wanted = "avx512bf16 avx512vnni avxvnni amx-tile amx-int8 amx-bf16 sha pclmul lzcnt bmi rdrnd"
    assert features_from_linux(flags.split()) == set(wanted.split())


def test_instruction_sets_that_no_kernel_uses_are_not_missed():
    machine = host_cpu()
    assert machine.lacks({"rtm", "serialize", *machine.runnable}) == frozenset()
    assert machine.lacks({"rtm", "imaginary"}) == {"imaginary"}
