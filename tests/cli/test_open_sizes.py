"""Commands with models and artifacts over open sizes: what is asked for, and what is measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from autosched.cli import main
from autosched.runtime.library import load
from tests.frontend.onnx_models import make, node

QUICK = ("--runs", "20", "--warmup", "1ms", "--threads", "1")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A product of a batch, rows of four from a vector, a convolution of 7×7: models and artifacts."""
    folder, rng = tmp_path_factory.mktemp("open"), np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 4), np.float32)}
    filters = {"w": rng.standard_normal((2, 3, 7, 7), np.float32)}
    models = {
        "rows": make([node("MatMul", "x w", "y")], {"x": ("batch", 8)}, ["y"], weights),
        "fours": make([node("Reshape", "x s", "y")], {"x": ("n",)}, ["y"], {"s": np.array([-1, 4])}),
        "windows": make([node("Conv", "x w", "y")], {"x": ("batch", 3, "h", "w2")}, ["y"], filters),
    }
    found = {}
    for name, model in models.items():
        found[f"{name}.onnx"] = folder / f"{name}.onnx"
        found[f"{name}.asx"] = folder / f"{name}.asx"
        onnx.save(model, folder / f"{name}.onnx")
        assert main(["build", str(found[f"{name}.onnx"]), "-o", str(found[f"{name}.asx"]), "-q"]) == 0
    return found


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("name", "shapes"), [("rows", "x:1x8"), ("fours", "x:8"), ("windows", "x:1x3x8x8")])
def test_the_shapes_that_an_error_shows_are_ones_that_the_model_takes(
    name: str, shapes: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    said = error_of(capsys, "tune", str(files[f"{name}.onnx"]))
    assert f'--shapes "{shapes}"' in said
    assert main(["tune", str(files[f"{name}.onnx"]), "--shapes", shapes, "--list", "-q"]) == 0


@pytest.mark.parametrize(("name", "shapes"), [("rows", "x:1x8"), ("fours", "x:4"), ("windows", "x:1x3x7x7")])
def test_an_artifact_for_all_sizes_is_measured_at_given_ones(
    name: str, shapes: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    said = error_of(capsys, "bench", str(files[f"{name}.asx"]), *QUICK)
    assert "is built for all sizes" in said and f'--shapes "{shapes}"' in said
    assert main(["bench", str(files[f"{name}.asx"]), *QUICK, "--shapes", shapes, "-f", "json"]) == 0
    assert '"median_s"' in capsys.readouterr().out


def test_shapes_that_do_not_fit_are_refused(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows, windows = str(files["rows.asx"]), str(files["windows.asx"])
    assert "no input 'q'" in error_of(capsys, "bench", rows, *QUICK, "--shapes", "q:1x8")
    assert "[1, 9] instead of [batch, 8]" in error_of(capsys, "bench", rows, *QUICK, "--shapes", "x:1x9")
    assert "'h' is 6" in error_of(capsys, "bench", windows, *QUICK, "--shapes", "x:1x3x6x9")


def test_a_static_artifact_is_not_measured_at_other_shapes(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = tmp_path / "two.asx"
    assert main(["build", str(files["rows.onnx"]), "--shapes", "x:2x8", "-o", str(built), "-q"]) == 0
    both = ("bench", str(built), str(files["rows.asx"]), *QUICK, "--shapes")
    assert main([*both, "x:2x8"]) == 0
    assert "built for x:2x8" in error_of(capsys, *both, "x:3x8")
    assert "of open sizes" in error_of(capsys, "run", str(built), "--shapes", "x:2x8")


def test_a_profile_of_an_artifact_for_all_sizes(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("bench", str(files["rows.asx"]), "--profile", "--time", "10ms", "--threads", "1")
    assert "such as" in error_of(capsys, *asked)
    assert main([*asked, "--shapes", "x:37x8"]) == 0
    assert "matmul" in capsys.readouterr().out


def test_times_and_a_drawing_of_an_artifact_for_all_sizes(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("inspect", str(files["rows.asx"]), "--time")
    assert 'give sizes with --shapes: such as "x:1x8"' in error_of(capsys, *asked)
    assert main([*asked, "--shapes", "x:67x8", "-f", "json"]) == 0
    kernels = {row["kernel"]: row for row in json.loads(capsys.readouterr().out)["kernels"]}
    assert sum(row["share"] for row in kernels.values()) == pytest.approx(1)
    assert kernels.keys() == {"matmul_16", "matmul_3"}, "67 rows have none of the other blocks"
    assert main([*asked, "--shapes", "x:3x8", "--graph", str(tmp_path / "rows.svg")]) == 0
    assert (tmp_path / "rows.svg").exists()


def test_a_missing_gpu_is_said_before_anything_is_built(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autosched.cli.profile.open_executable", lambda *_: pytest.fail("it was built"))
    model = str(files["rows.onnx"])
    for arguments in (["bench", model, "--profile", "--shapes", "x:1x8"], ["tune", model]):
        assert "cuda:0 does not exist" in error_of(capsys, *arguments, "--target", "cuda")


def test_run_makes_up_inputs_that_the_model_takes(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for name, shape in (("rows", "1x4"), ("fours", "1x4"), ("windows", "1x2x1x1")):
        assert main(["run", str(files[f"{name}.asx"])]) == 0
        assert shape in capsys.readouterr().out
    assert main(["run", str(files["windows.asx"]), "--shapes", "x:2x3x9x8"]) == 0
    assert "2x2x3x2" in capsys.readouterr().out


def test_windows_that_fit_no_small_image_bound_the_sizes(files: dict[str, Path], tmp_path: Path) -> None:
    model = load(files["windows.asx"])
    assert [(size.name, size.low) for size in model.form.sizes] == [("batch", 1), ("h", 7), ("w2", 7)]
    x = np.ones((2, 3, 9, 8), np.float32)
    weights = onnx.numpy_helper.to_array(onnx.load(files["windows.onnx"]).graph.initializer[0])
    np.testing.assert_allclose(model(x).numpy()[1, :, 2, 1], weights.sum(axis=(1, 2, 3)), rtol=1e-4)


def test_dimensions_without_a_name_are_open_each_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Relu", "x", "h"), node("Transpose", "h", "y", perm=[1, 0])]
    (tmp_path / "one.onnx").write_bytes(make(nodes, {"x": (None, None)}, ["y"]).SerializeToString())
    assert main(["build", str(tmp_path / "one.onnx")]) == 0
    assert "once for every size of 'x_0' and 'x_1'" in capsys.readouterr().err
    model = load(tmp_path / "one.asx")
    for shape in ((1, 1), (3, 5), (16, 1), (7, 33)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        np.testing.assert_array_equal(model(x).numpy(), np.maximum(x, 0).T)


def test_sizes_without_a_name_that_a_model_needs_to_be_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make([node("Add", "x z", "y")], {"x": (None, 3), "z": (None, 3)}, ["y"])
    (tmp_path / "two.onnx").write_bytes(model.SerializeToString())
    assert main(["build", str(tmp_path / "two.onnx")]) == 0
    found = load(tmp_path / "two.asx")
    for a, b in ((4, 4), (1, 5), (5, 1)):
        x, z = np.full((a, 3), 2, np.float32), np.full((b, 3), 3, np.float32)
        np.testing.assert_array_equal(np.asarray(found(x, z)), x + z)
    assert main(["run", str(tmp_path / "two.asx"), "--shapes", "x:2x3,z:2x3"]) == 0
    assert "2x3" in capsys.readouterr().out
    assert "how large 'z_0' is" in error_of(capsys, "run", str(tmp_path / "two.asx"), "--shapes", "x:2x3")


def test_a_range_says_at_which_end_it_does_not_fit(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(capsys, "tune", str(files["windows.onnx"]), "--shapes", "x:1x3x1..64x9")
    assert "at x:1x3x1x9" in said
    said = error_of(capsys, "build", str(files["rows.onnx"]), "--shapes", "x:1..8x9")
    assert "not 9 where that is 8" in said
