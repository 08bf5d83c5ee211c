"""Models that are compiled when they are called, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from tests.cli.models import refuse
from tests.frontend.onnx_models import make, node

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x [batch, 3] and z [batch, 3]: the distinct elements of their sum, and the sum."""
    path = tmp_path / "m.onnx"
    nodes = [node("Add", "x z", "y"), node("Unique", "y", "n")]
    path.write_bytes(make(nodes, {"x": ("batch", 3), "z": ("batch", 3)}, ["y", "n"]).SerializeToString())
    return path


def test_build_without_shapes_and_run(model: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["build", str(model)]) == 0
    assert "compiled when it is called, for each size of batch" in capsys.readouterr().err
    x = np.array([[1, 0, 2], [0, 0, 3]], "f4")
    np.savez(tmp_path / "in.npz", x=x, z=x)
    for what in (model.with_suffix(".asx"), model):
        assert main(["run", str(what), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]) == 0
        with np.load(tmp_path / "out.npz") as out:
            np.testing.assert_array_equal(out["y"], 2 * x)
            np.testing.assert_array_equal(out["n"], np.unique(2 * x))
    refuse(capsys, ["run", str(model)], "sizes of input 'x' are not known")
    np.savez(tmp_path / "bad.npz", x=x, z=x[:1])
    refuse(capsys, ["run", str(model), "-i", str(tmp_path / "bad.npz")], "share the dimension 'batch'", code=2)


def test_a_program_of_pytorch(tmp_path: Path, capsys: Capture) -> None:
    import torch

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.bincount(x.abs().to(torch.int64).flatten()), x[x > 0] * 2

    path, x = tmp_path / "m.pt2", np.array([[1, 0, 2], [0, -1, 3]], "f4")
    shapes = ({0: torch.export.Dim("batch", min=2, max=9)},)
    torch.export.save(torch.export.export(Model(), (torch.ones(3, 3),), dynamic_shapes=shapes), path)
    assert main(["build", str(path)]) == 0
    assert "compiled when it is called, for each size of" in capsys.readouterr().err
    np.savez(tmp_path / "in.npz", x=x)
    for what in (path.with_suffix(".asx"), path):
        assert main(["run", str(what), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]) == 0
        with np.load(tmp_path / "out.npz") as out:
            np.testing.assert_array_equal(out["output0"], np.bincount(np.abs(x).astype(int).ravel()))
            np.testing.assert_array_equal(out["output1"], x[x > 0] * 2)
    refuse(capsys, ["run", str(path)], "sizes of input 'x' are not known")
    assert main(["build", str(path), "--shapes", "x:2x3"]) == 0
    assert "bincount by PyTorch (bincount)" in capsys.readouterr().err


def test_the_shape_of_one_input_gives_those_that_share_it(model: Path, capsys: Capture) -> None:
    assert main(["build", str(model), "--shapes", "x:2x3"]) == 0
    assert "computed by a library: Unique by onnx.reference (n_n)" in capsys.readouterr().err
    assert main(["run", str(model), "--shapes", "x:2x3", "--fill", "ones"]) == 0
    assert "n       1 " in capsys.readouterr().out
    refuse(capsys, ["build", str(model), "--shapes", "x:2x3,z:4x3"], "share the dimension 'batch'")
    refuse(capsys, ["bench", str(model), "--shapes", "x:2x3"], "Unique")


def test_kernels_for_all_sizes_are_not_those_of_one(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "all.onnx"
    path.write_bytes(make([node("Relu", "x", "y")], {"x": ("batch", 3)}, ["y"]).SerializeToString())
    assert main(["build", str(path), "-o", str(tmp_path / "all.asx")]) == 0
    capsys.readouterr()
    artifact = str(tmp_path / "all.asx")
    said = refuse(capsys, ["inspect", artifact, "--time"], "is built for all sizes (x: ", "give sizes with --shapes")
    assert "compiled when it is called" not in said
    assert main(["inspect", artifact, "-f", "json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["inputs"] == [{"name": "x", "shape": ["batch", 3], "dtype": "float32"}]
    assert known["sizes"] == [{"name": "batch", "low": 1, "high": None}]
    kernel = known["kernels"][0]["kernel"]
    assert main(["inspect", artifact]) == 0
    assert "arena as the sizes need" in (said := capsys.readouterr().out) and "batch: 1 or more" in said
    assert main(["inspect", artifact, "--kernel", kernel, "--source"]) == 0
    assert f"def {kernel}" in capsys.readouterr().out
    assert main(["inspect", str(path), "--shapes", "x:2x3"]) == 0
