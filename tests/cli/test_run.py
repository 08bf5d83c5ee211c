"""`autosched run` on a small artifact: inputs, outputs, checks, and no compiler in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from autosched.target.cuda_host import has_cuda_driver
from tests.runtime.kernels import ROW, chain

ROWS = 3
BIAS = np.arange(ROWS * ROW, dtype=np.float32).reshape(ROWS, ROW)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact that computes y = 4 x + bias."""
    path = tmp_path_factory.mktemp("run") / "small.asx"
    chain(ROWS, 2, constant=True).save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((ROWS, ROW), dtype=np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    return tmp_path / "in.npz", x


def test_inputs_from_a_file_outputs_to_a_file(artifact: Path, data: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, x = data
    assert main(["run", str(artifact), "-i", str(path), "-o", str(tmp_path / "out.npz"), "-q"]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], 4 * x + BIAS, rtol=1e-6)


def test_print_top(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(artifact), "--fill", "ones", "--print-top", "2", "-f", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"output": "y", "index": [ROWS - 1, ROW - 1], "value": 4.0 + ROWS * ROW - 1}
    assert second["value"] == first["value"] - 1


def test_a_summary_where_nothing_else_is_asked(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(artifact), "--fill", "zeros", "--threads", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["y", "3x64", "float32", "0", "95.5", "191"]


def test_check_ends_with_4_where_results_differ(
    artifact: Path, data: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, x = data
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, y=4 * x + BIAS)
    np.savez(bad, y=4 * x + BIAS + 1)
    assert main(["run", str(artifact), "-i", str(path), "--check", str(good)]) == 0
    assert "agree" in capsys.readouterr().err
    assert main(["run", str(artifact), "-i", str(path), "--check", str(bad)]) == 4
    assert "output 'y' differs in 192 of 192 elements, first at [0, 0]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("array", "name", "message"),
    [
        (np.zeros((ROWS, 5), np.float32), "x", "shape [3, 5]"),
        (np.zeros((ROWS, ROW), np.float64), "x", "float64"),
        (np.zeros((ROWS, ROW), np.float32), "z", "no input 'z'"),
    ],
)
def test_wrong_inputs_end_with_2(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], array: np.ndarray, name: str, message: str
) -> None:
    np.save(tmp_path / "a.npy", array)
    assert main(["run", str(artifact), "--input", f"{name}={tmp_path / 'a.npy'}"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_damaged_artifact_ends_with_2(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = artifact.read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    for name, damaged in (("short", content[: len(content) // 2]), ("flipped", bytes(flipped)), ("empty", b"")):
        path = tmp_path / f"{name}.asx"
        path.write_bytes(damaged)
        assert main(["run", str(path)]) == 2, name
        err = capsys.readouterr().err
        assert str(path) in err
        assert err.count("\n") <= 2


def test_shapes_do_not_apply(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(artifact), "--shapes", "x:1x1"]) == 2
    assert "--shapes is for models" in capsys.readouterr().err


def test_the_process_loads_no_compiler(artifact: Path) -> None:
    code = (
        "import sys; from autosched.cli import main; "
        f"code = main(['run', {str(artifact)!r}, '--print-top', '1']); "
        "bad = {'numba', 'xgboost', 'sqlalchemy'} & set(sys.modules); "
        "bad |= {m for m in sys.modules if m.split('.')[:2] in (['autosched', 'codegen'], ['autosched', 'driver'], "
        "['autosched', 'tir'], ['autosched', 'relax'])}; sys.exit(f'{bad}' if bad else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_access_is_checked_where_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import autosched
    from autosched.relax import op
    from tests.driver.programs import one_call

    def lookup(table: object, rows: object) -> object:
        return op.nn.relu(op.take(table, rows, axis=0))

    path = tmp_path / "rows.asx"
    autosched.build(one_call(lookup, ((4, 8), "float32"), ((3,), "int64")), threads=1, records=[]).save(path)
    np.savez(tmp_path / "in.npz", x0=np.ones((4, 8), "float32"), x1=np.array([0, 3, -1]))
    command = ["run", str(path), "-i", str(tmp_path / "in.npz"), "--checks", "-o", str(tmp_path / "out.npz"), "-q"]
    assert main(command) == 0
    assert (np.load(tmp_path / "out.npz")["gv"] == 1).all()
    np.savez(tmp_path / "in.npz", x0=np.ones((4, 8), "float32"), x1=np.array([0, 4, -1]))
    assert main(command) == 2
    assert "index 4 is out of range [-4, 4)" in capsys.readouterr().err


@pytest.mark.skipif(has_cuda_driver(), reason="a CUDA driver is here")
@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_gpu_that_is_not_here_is_missed_before_anything_is_built(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cuda.core", reason="the CUDA packages are an extra")
    model = tmp_path / "model.onnx"
    model.write_bytes(b"not read")
    assert main([command, str(model), "--target", "cuda"]) == 2
    assert "cuda:0 does not exist" in capsys.readouterr().err
