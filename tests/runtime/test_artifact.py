import dataclasses
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched.env import child_environment
from autosched.errors import ArtifactError
from autosched.runtime import Executable, NeedsRebuildError, artifact, is_artifact
from autosched.runtime.artifact import load_contents
from autosched.runtime.library import load_module
from autosched.target import host_cpu
from tests.runtime.kernels import chain

_ENVIRONMENT = child_environment({"PYTHONPATH": str(Path(__file__).parents[2])})


@pytest.fixture
def executable():
    return chain(3, 2, constant=True)


@pytest.fixture
def saved(executable, tmp_path):
    path = tmp_path / "model.asx"
    executable.save(path)
    return path


def test_round_trip(executable, saved):
    loaded = Executable.load(saved)
    assert loaded.graph == executable.graph
    assert loaded.kernels == executable.kernels
    assert list(loaded.kernels) == list(executable.kernels)
    assert loaded.manifest == {"note": "test"}
    np.testing.assert_array_equal(loaded.constants[0], executable.constants[0])
    x = np.random.default_rng(0).random((3, 64), "float32")
    np.testing.assert_array_equal(loaded(x).numpy(), executable(x).numpy())
    assert isinstance(load_module(saved), Executable)
    assert is_artifact(saved)
    assert not is_artifact(saved.parent / "missing")


def test_equal_executables_give_equal_files(executable, saved):
    executable.save(saved.parent / "again.asx")
    assert (saved.parent / "again.asx").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("mapped", [False, True])
def test_constants_are_aligned_and_may_be_mapped(saved, mapped):
    constant = load_contents(saved, mapped=mapped).constants[0]
    assert constant.ctypes.data % 64 == 0
    assert not constant.flags.writeable
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert (saved.name in maps.read_text()) == mapped


def test_a_file_overwritten_in_use_changes_nothing(executable, saved):
    x = np.ones(executable.inputs[0].shape, "f")
    expected = executable(x).numpy()
    loaded = Executable.load(saved)
    data = saved.read_bytes()
    with open(saved, "r+b") as file:  # as `cp` does: the same file with other bytes
        file.write(b"\xff" * len(data))
    np.testing.assert_array_equal(loaded(x).numpy(), expected)
    os.truncate(saved, 0)
    np.testing.assert_array_equal(loaded(x).numpy(), expected)
    np.testing.assert_array_equal(Executable.load(_written(saved, data))(x).numpy(), expected)


def _written(path, data):
    path.write_bytes(data)
    return path


def test_code_of_older_formats_is_not_sealed_and_is_built_again(saved):
    data = bytearray(saved.read_bytes())
    data[8:12] = (2).to_bytes(4, "little")
    saved.write_bytes(data)
    with pytest.raises(NeedsRebuildError, match="older autosched") as caught:
        Executable.load(saved)
    assert caught.value.reason == "abi"


def test_another_process_runs_it_without_the_compiler(executable, saved, tmp_path):
    """The process that loads must never import Numba nor any package that compiles."""
    x = np.random.default_rng(0).random((3, 64), "float32")
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys
import numpy as np
from autosched.runtime import Executable, GraphModule
module = GraphModule(Executable.load({str(saved)!r}), threads=2)
module.run(x=np.load({str(tmp_path / "x.npy")!r}))
np.save({str(tmp_path / "y.npy")!r}, module.get_output(0).numpy())
packages = {{"codegen", "tir", "te", "topi", "relax", "templates", "tuner", "driver", "frontend", "ir"}}
found = [name for name in sys.modules if name.split(".")[0] == "numba" or
         name.startswith("autosched.") and name.split(".")[1] in packages]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], env=_ENVIRONMENT, check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * 4 + executable.constants[0])


def test_every_cut_is_noticed(saved, tmp_path):
    data = saved.read_bytes()
    cut = tmp_path / "cut.asx"
    for length in [*range(80), *range(80, len(data), 97), len(data) - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match="empty|no autosched artifact|cut short"):
            Executable.load(cut)


def test_every_changed_byte_is_noticed(saved, tmp_path):
    """But for the zeros between sections, which mean nothing."""
    data = saved.read_bytes()
    start, sections = _sections(data)
    spans = [(0, start)] + [(start + s["offset"], start + s["offset"] + s["size"]) for s in sections]
    manifest_end = struct.unpack_from("<Q", data, 16)[0] + 72
    changed = tmp_path / "changed.asx"
    for begin, end in spans:
        for at in [begin, *range(begin, end, 131), end - 1]:
            if manifest_end <= at < start or 12 <= at < 16:
                continue
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            changed.write_bytes(damaged)
            with pytest.raises(ArtifactError):
                Executable.load(changed)


def _sections(data):
    size, start = struct.unpack_from("<QQ", data, 16)
    return start, json.loads(data[72 : 72 + size])["sections"]


def test_the_message_says_what_is_damaged(saved):
    data = bytearray(saved.read_bytes())
    start, sections = _sections(data)
    for index, what in ((0, "the native loop"), (1, "kernel 'double'"), (3, "constant 0")):
        damaged = bytearray(data)
        damaged[start + sections[index]["offset"] + 5] ^= 1
        saved.write_bytes(damaged)
        with pytest.raises(ArtifactError, match=f"damaged: {what}"):
            Executable.load(saved)


def test_a_newer_format_is_named(saved):
    data = bytearray(saved.read_bytes())
    data[8:12] = struct.pack("<I", 99)
    saved.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"newer autosched \(format 99"):
        Executable.load(saved)


def test_what_is_no_artifact(tmp_path):
    path = tmp_path / "x.asx"
    with pytest.raises(ArtifactError, match="cannot read"):
        Executable.load(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ArtifactError, match="no autosched artifact"):
        Executable.load(path)
    with pytest.raises(ArtifactError, match="cannot read"):
        Executable.load(tmp_path)


def _with_features(executable, *features):
    kernels = {
        key: dataclasses.replace(kernel, features=features, config='{"rows":4}')
        for key, kernel in executable.kernels.items()
    }
    return Executable(kernels, executable.graph, executable.constants, executable.native, {"script": "text"})


def test_a_cpu_with_less_is_told_what_to_rebuild(executable, tmp_path):
    path = tmp_path / "wide.asx"
    _with_features(executable, "avx512f", "imaginary").save(path)
    with pytest.raises(NeedsRebuildError, match="imaginary") as caught:
        Executable.load(path)
    assert caught.value.reason == "features"
    assert "imaginary" in caught.value.missing
    contents = caught.value.contents
    assert contents.info["manifest"] == {"script": "text"}
    assert contents.kernels["double"].config == '{"rows":4}'
    np.testing.assert_array_equal(contents.constants[0], executable.constants[0])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_cpu_with_more_is_fine(executable, tmp_path, monkeypatch):
    path = tmp_path / "narrow.asx"
    _with_features(executable, "sse2").save(path)
    Executable.load(path)
    other = dataclasses.replace(artifact.host_cpu(), features=frozenset())
    monkeypatch.setattr(artifact, "host_cpu", lambda: other)
    with pytest.raises(NeedsRebuildError, match="sse2"):
        Executable.load(path)


def test_another_machine_or_interface(saved, monkeypatch):
    monkeypatch.setattr(artifact, "_ABIS", [[99, 99]])
    with pytest.raises(NeedsRebuildError) as caught:
        Executable.load(saved)
    assert caught.value.reason == "abi"
    abacus = dataclasses.replace(host_cpu(), architecture="abacus")
    monkeypatch.setattr(artifact, "host_cpu", lambda: abacus)
    with pytest.raises(NeedsRebuildError, match="this machine is abacus"):
        Executable.load(saved)


def test_saving_into_nowhere(executable, tmp_path):
    with pytest.raises(ArtifactError, match="cannot write"):
        executable.save(tmp_path / "missing" / "model.asx")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(saved):
    """A limit on file sizes stands in for a full disk: both fail in the middle of writing."""
    before = saved.read_bytes()
    code = f"""
import resource
from autosched.errors import ArtifactError
from autosched.runtime import Executable
executable = Executable.load({str(saved)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    executable.save({str(saved)!r})
except ArtifactError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env=_ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert "cannot write" in done.stdout, done.stderr
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
