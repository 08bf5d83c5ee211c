import pytest

from autosched.target import LEVELS
from autosched.target.cpus import features_of, known_cpus, level_of
from autosched.target.host import CacheSizes, count_cores, detect_caches, host_cpu, parse_size, read_cpuinfo


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
