"""Files that are no models are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.errors import ImportModelError, UsageError
from autosched.frontend.onnx import load_model_file, parse_shapes
from tests.frontend.onnx_models import make, node, small_conv_net


def write(folder: Path, data: bytes) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(data)
    return path


def test_a_good_file(tmp_path: Path) -> None:
    module = load_model_file(write(tmp_path, small_conv_net().SerializeToString()))
    assert module["main"].ret_struct_info.static_shape == (2, 5)


def test_shapes_as_text(tmp_path: Path) -> None:
    path = write(tmp_path, make([node("Relu", "x", "y")], {"x": ("n", 3)}, ["y"]).SerializeToString())
    assert load_model_file(path, "x:7x3")["main"].ret_struct_info.static_shape == (7, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"not a model, just text\n" * 9, "is not an ONNX model"),
        (b"\x00" * 100, "is not an ONNX model"),
        (small_conv_net().SerializeToString()[:200], "truncated"),
        (small_conv_net().SerializeToString()[:-3], "truncated"),
        (b"PK\x03\x04" + bytes(range(256)), "is not an ONNX model"),
    ],
)
def test_other_files(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ImportModelError, match=message) as error:
        load_model_file(write(tmp_path, data))
    assert "\n" not in str(error.value)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = small_conv_net().SerializeToString()
    for size in range(0, len(data), 97):
        with pytest.raises(ImportModelError):
            load_model_file(write(tmp_path, data[:size]))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="no such model file"):
        load_model_file(tmp_path / "none.onnx")
    with pytest.raises(ImportModelError, match="is a folder"):
        load_model_file(tmp_path)


def test_missing_external_data(tmp_path: Path) -> None:
    model = small_conv_net()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    with pytest.raises(ImportModelError, match="external data"):
        load_model_file(write(tmp_path, model.SerializeToString()))


def test_parse_shapes() -> None:
    assert parse_shapes("x:1x3x224x224, mask:1x128") == {"x": (1, 3, 224, 224), "mask": (1, 128)}
    assert parse_shapes("gpu_0/data:0:2x3") == {"gpu_0/data:0": (2, 3)}


@pytest.mark.parametrize("text", ["x", "x:", "x:ax2", "x:0x3", "x:-1", ":1x2"])
def test_shapes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--shapes"):
        parse_shapes(text)
