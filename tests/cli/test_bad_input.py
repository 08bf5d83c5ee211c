"""Bad input ends with code 2 and one or two lines; nothing is lost, half-written or executed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from autosched.env import child_environment
from tests.cli.models import dense_file, refuse
from tests.frontend.onnx_models import make, node
from tests.runtime.kernels import ROW, chain

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return dense_file(tmp_path / "m.onnx")


@pytest.fixture
def dynamic(tmp_path: Path) -> Path:
    return dense_file(tmp_path / "dynamic.onnx", batch="batch")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """An artifact with input x [3, 64] and output y."""
    path = tmp_path / "small.asx"
    chain(3, 2, constant=True).save(path)
    return path


# Model files


@pytest.mark.parametrize("command", ["tune", "build", "run", "bench"])
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"a text, no model\n" * 9, "is not an ONNX model"), (bytes(range(256)) * 9, "is not an ONNX")],
)
def test_a_file_that_is_no_model(command: str, content: bytes, message: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    refuse(capsys, [command, str(path)], "bad.onnx", message)
    assert [item.name for item in tmp_path.iterdir()] == ["bad.onnx"]


def test_a_truncated_model(model: Path, capsys: Capture) -> None:
    data = model.read_bytes()
    for size in (1, 10, len(data) // 2, len(data) - 1):
        model.write_bytes(data[:size])
        refuse(capsys, ["build", str(model), "-q"], "is not an ONNX model, or it is truncated")


@pytest.mark.parametrize("command", ["tune", "build", "run", "bench"])
def test_a_folder_a_pipe_and_nothing(command: str, tmp_path: Path, capsys: Capture) -> None:
    refuse(capsys, [command, str(tmp_path)], "is a folder")
    refuse(capsys, [command, str(tmp_path / "none.onnx")], "no file")
    os.mkfifo(tmp_path / "pipe.onnx")
    refuse(capsys, [command, str(tmp_path / "pipe.onnx")], "is no regular file")


def test_another_format(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "model.txt").write_text("text")
    refuse(capsys, ["build", str(tmp_path / "model.txt")], "cannot import 'model.txt'; models are .onnx and .pt2 files")


def test_a_file_that_may_not_be_read(model: Path, capsys: Capture) -> None:
    model.chmod(0)
    if os.access(model, os.R_OK):
        pytest.skip("nothing is forbidden to this user")
    refuse(capsys, ["build", str(model)], "not readable")


def test_all_unsupported_operators_at_once(tmp_path: Path, capsys: Capture) -> None:
    nodes = [node("Blur", "x", "a"), node("Smear", "a", "b"), node("Smear", "b", "y")]
    path = tmp_path / "strange.onnx"
    path.write_bytes(make(nodes, {"x": (2, 3)}, ["y"]).SerializeToString())
    refuse(capsys, ["build", str(path)], "not supported: Blur (n_a); Smear (n_b, n_y)")


# Shapes


def test_dynamic_dimensions_name_the_inputs_and_the_flag(dynamic: Path, capsys: Capture) -> None:
    for command in (["tune", "--list"], ["bench"]):
        refuse(capsys, [*command, str(dynamic)], "'x' [batch, 16]", '--shapes "x:1x16"')
    assert main(["run", str(dynamic), "-q"]) == 0  # sizes of one where nothing else is said
    assert "1x8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("x", "cannot read the shape at 'x'"),
        ("x:", "has shape [batch, 16] in the model, and a scalar does not fit"),
        ("x:0x16", "a dimension of 'x' is zero"),
        ("x:-1x16", "cannot read the shape"),
        ("x:2x16,x:3x16", "two shapes for 'x'"),
        ("x:2,5x16", "cannot read the shape at '5x16'"),
        ("z:2x16", "no input 'z'; it has 'x'"),
        ("x:2x16,z:1", "no input 'z'"),
        ("x:2x16x1", "has shape [batch, 16] in the model, and 2x16x1 does not fit"),
        ("x:2x17", "2x17 does not fit"),
        ("x:99999999999999999999x16", "larger than any memory"),
    ],
)
def test_shapes_that_do_not_fit(dynamic: Path, shapes: str, message: str, capsys: Capture) -> None:
    refuse(capsys, ["build", str(dynamic), "-q", "--shapes", shapes], message)


# Options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", "--trials", "0"], "0 is not in the range x>=1"),
        (["tune", "--trials", "-3"], "-3 is not in the range"),
        (["tune", "--trials", "many"], "'many' is not a valid whole number"),
        (["tune", "--budget", "0"], "no time at all"),
        (["tune", "--budget", "-5s"], "no duration"),
        (["tune", "--strategy", "luck", "--trials", "1"], "luck"),
        (["tune", "--tasks", "7", "--trials", "1"], "no task 7"),
        (["tune", "--target", "llvm -mcpu=x86-64 -mattr=+amx-tile,+xop", "--trials", "1"], "this machine lacks"),
        (["bench", "--time", "0s"], "no time at all"),
        (["bench", "--threads", "0"], "--threads"),
        (["bench", "--sweep", "threads=0"], "no sweep"),
        (["bench", "--sweep", "threads=1", "--threads", "1"], "exclude each other"),
        (["build", "--threads", "-1"], "--threads"),
        (["build", "--target", "bogus"], "unknown target 'bogus'"),
        (["build", "--target", "cpux"], "did you mean cpu?"),
        (["build", "--target", "opencl"], "no code generator for target 'opencl'"),
        (["build", "--target", "llvm -mcpu=bogus"], "unknown CPU 'bogus'"),
        (["build", "--target", "llvm -mattr=+bogus"], "unknown instruction set 'bogus'"),
        (["build", "--target", "llvm -num-cores=0"], "-num-cores=0 is not a positive number"),
        (["build", "--target", "llvm -bogus=1"], "no attribute 'bogus'"),
        (["build", "--target", "{"], "not valid JSON"),
        (["run", "--seed", "-1"], "-1 is not in the range"),
        (["run", "--rtol", "nan"], "--rtol"),
        (["run", "--print-top", "0"], "0 is not in the range"),
    ],
)
def test_impossible_options(model: Path, words: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    database = ["--db", str(tmp_path / "new.db")] if words[0] == "tune" else []
    refuse(capsys, [words[0], str(model), "-q", *words[1:], *database], message)
    assert not list(tmp_path.glob("*.asx"))


def test_code_for_another_cpu_is_not_started(model: Path, capsys: Capture) -> None:
    """An instruction that the CPU lacks would end the process without a word."""
    words = ["run", str(model), "-q", "--target", "llvm -mcpu=x86-64 -mattr=+amx-tile,+xop"]
    refuse(capsys, words, "which this machine lacks")


# Inputs of a run


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((3, ROW), np.float32)}, "no input 'z'; it has 'x'"),
        ({"x": np.zeros((3, 5), np.float32)}, "shape [3, 5], the model takes [3, 64]"),
        ({"x": np.zeros((3, ROW))}, "float64, the model takes float32"),
        ({"x": np.array(["a", "b"])}, "shape [2]"),
        ({"x": np.array([print], dtype=object)}, "holds Python objects"),
        ({}, "no data for input 'x'"),
    ],
)
def test_arrays_that_do_not_fit(
    artifact: Path, arrays: dict[str, np.ndarray], message: str, tmp_path: Path, capsys: Capture
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    refuse(capsys, ["run", str(artifact), "-i", str(tmp_path / "in.npz")], message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "in.npz"),
        (b"just text", "it is no NumPy file"),
        (pickle.dumps({"x": 1}), "it is no NumPy file"),
        (b"PK\x03\x04 broken", "in.npz"),
    ],
)
def test_files_that_are_no_arrays(
    artifact: Path, content: bytes, message: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    refuse(capsys, ["run", str(artifact), "-i", str(tmp_path / "in.npz")], message)
    refuse(capsys, ["run", str(artifact), "--input", f"x={tmp_path / 'in.npz'}"], message)


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    sprung, trap = tmp_path / "sprung", Trap(tmp_path / "sprung")
    np.savez(tmp_path / "a.npz", x=np.array([trap], dtype=object))
    np.save(tmp_path / "b.npy", np.array([trap], dtype=object), allow_pickle=True)
    (tmp_path / "c.npz").write_bytes(pickle.dumps(trap))
    for name in ("a.npz", "b.npy", "c.npz"):
        refuse(capsys, ["run", str(artifact), "-i", str(tmp_path / name)])
        refuse(capsys, ["run", str(artifact), "--check", str(tmp_path / name)])
    refuse(capsys, ["run", str(tmp_path / "c.npz")])
    assert not sprung.exists()
    pickle.loads((tmp_path / "c.npz").read_bytes())
    assert sprung.exists()  # the trap would have worked


def test_damaged_archives(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.ones((3, ROW), np.float32))
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], data[:300] + bytes([data[300] ^ 255]) + data[301:]):
        path.write_bytes(damaged)
        refuse(capsys, ["run", str(artifact), "-i", str(path)], "cannot read")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.txt", "text")
    refuse(capsys, ["run", str(artifact), "-i", str(path)], "'x.txt'", "is no array")


def test_inputs_by_name(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    for text, message in (("x", "names no file"), ("=a.npy", "names no file"), ("x=none.npy", "no file none.npy")):
        refuse(capsys, ["run", str(artifact), "--input", text], message)
    refuse(capsys, ["run", str(artifact), "-i", str(tmp_path)], "is a")


def test_the_other_byte_order_is_the_same_dtype(artifact: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, ROW)).astype(np.float32)
    for name, array in (("big", x.astype(">f4")), ("own", x)):
        np.savez(tmp_path / "in.npz", x=array)
        assert main(["run", str(artifact), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / name), "-q"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "big")["y"], np.load(tmp_path / "own")["y"])


# Outputs


def test_outputs_that_cannot_be_written(model: Path, artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((3, ROW), np.float32))
    np.save(tmp_path / "x.npy", np.ones((3, ROW), np.float32))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for output, message in (
        (tmp_path / "none" / "out", "there is no folder"),
        (tmp_path, "it is a folder"),
        (Path(os.devnull), "no regular file"),
    ):
        refuse(capsys, ["build", str(model), "-o", str(output)], message)
        refuse(capsys, ["run", str(artifact), "-o", str(output)], message)
    message = "it is an input of this command"
    (tmp_path / "link.onnx").symlink_to(model)
    refuse(capsys, ["build", str(model), "-o", str(model)], message)
    refuse(capsys, ["build", str(model), "-o", str(tmp_path / "link.onnx")], message)
    refuse(capsys, ["run", str(artifact), "-o", str(artifact)], message)
    refuse(capsys, ["run", str(artifact), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "in.npz")], message)
    words = ["run", str(artifact), "--input", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "x.npy")]
    refuse(capsys, words, message)
    (tmp_path / "link.onnx").unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_may_not_be_written(model: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    if os.access(tmp_path / "locked", os.W_OK):
        pytest.skip("nothing is forbidden to this user")
    refuse(capsys, ["build", str(model), "-o", str(tmp_path / "locked" / "m.asx")], "is read-only")


def test_a_full_disk_leaves_the_old_file_alone(model: Path, artifact: Path, tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: both fail in the middle of writing."""
    old = tmp_path / "old"
    old.write_bytes(b"precious")
    before = sorted(path.name for path in tmp_path.iterdir())
    code = (
        "import resource, sys; from autosched.cli import main; import signal;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)); sys.exit(main(sys.argv[1:]))"
    )
    for words in (["build", str(model), "--no-db"], ["run", str(artifact)]):
        command = [sys.executable, "-c", code, *words, "-q", "-o", str(old)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.returncode == 2, done.stderr
        assert f"cannot write {old}: File too large" in done.stderr
        assert "Traceback" not in done.stderr
        assert old.read_bytes() == b"precious"
        assert sorted(path.name for path in tmp_path.iterdir()) == before


# Artifacts


def test_artifacts_that_are_none(model: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bad.asx"
    for content, message in (
        (b"", "is empty"),
        (b"text", "no autosched artifact"),
        (model.read_bytes(), "no autosched artifact"),
        (b"PK\x03\x04" + bytes(99), "no autosched artifact"),
    ):
        path.write_bytes(content)
        for command in ("run", "bench"):
            refuse(capsys, [command, str(path)], "bad.asx", message)
        refuse(capsys, ["build", str(path)], "is built already")


def test_options_that_an_artifact_does_not_take(artifact: Path, capsys: Capture) -> None:
    refuse(capsys, ["run", str(artifact), "--shapes", "x:3x64"], "--shapes is for models")
    refuse(capsys, ["run", str(artifact), "--target", "llvm"], "--target does not apply")
    refuse(capsys, ["bench", str(artifact), "--with", "onnxruntime"], "needs an .onnx file")


# The environment


def test_nonsense_in_the_environment(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name, value in (
        ("AUTOSCHED_NUM_THREADS", "lots"),
        ("AUTOSCHED_TUNE", "maybe"),
        ("AUTOSCHED_CACHE_LIMIT_MB", "x"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            refuse(capsys, ["build", str(model), "-q"], name, value)
    monkeypatch.setenv("AUTOSCHED_LOG", "loud")
    refuse(capsys, ["doctor"], "no log level 'loud'")


def test_models_run_where_numba_may_not_compile(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setenv("AUTOSCHED_CACHE_LIMIT_MB", "0")
    assert main(["run", str(model), "-q"]) == 0


@pytest.mark.parametrize("name", ["HOME", "AUTOSCHED_CACHE_DIR"])
def test_no_home_and_no_cache_are_no_errors(model: Path, tmp_path: Path, name: str) -> None:
    """Building and running work in a container without a home, and where the cache is a place that takes no files."""
    changes = {"HOME": None, "AUTOSCHED_DB": None} if name == "HOME" else {"AUTOSCHED_CACHE_DIR": os.devnull}
    environment = child_environment({"PYTHONPATH": str(ROOT), **changes})
    words = ["-m", "autosched", "build", str(model), "-o", str(tmp_path / "m.asx")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING") == (name == "AUTOSCHED_CACHE_DIR")
    words = ["-m", "autosched", "run", str(tmp_path / "m.asx"), "-f", "csv"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("output,shape,dtype,min,mean,max\ny,")
