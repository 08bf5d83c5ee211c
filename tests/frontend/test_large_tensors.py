"""Models' files in two parts: the same values as protobuf reads, and whatever is unusual is left to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.errors import ImportModelError
from autosched.frontend.onnx import load_model_file, read_model
from autosched.frontend.onnx.importer import from_onnx
from autosched.frontend.onnx.large_tensors import LARGE_BYTES, ModelParts, split_file
from autosched.frontend.onnx.model_file import read_parts
from autosched.relax.evaluate import evaluate

SIDE = 100  # of square weights: 40 kB
X = np.random.default_rng(1).standard_normal((2, SIDE)).astype(np.float32)


def weights(n: int = 3, side: int = SIDE) -> list[TensorProto]:
    rng = np.random.default_rng(0)
    return [numpy_helper.from_array(rng.standard_normal((side, side)).astype(np.float32), f"w{i}") for i in range(n)]


def chain(tensors: list[TensorProto]) -> onnx.ModelProto:
    """Products with several matrices, behind each other."""
    names = ["x", *(f"h{i}" for i in range(len(tensors) - 1)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], t.name], [names[i + 1]]) for i, t in enumerate(tensors)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, SIDE])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write(folder: Path, data: bytes) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(data)
    return path


def check_same(path: Path) -> ModelParts:
    """What the file's two parts say is what protobuf says."""
    parts = read_parts(path)
    whole = onnx.load_model_from_string(path.read_bytes())
    ours, expected = (evaluate(from_onnx(m), {"x": X}) for m in (parts, whole))
    np.testing.assert_array_equal(ours, expected)
    assert read_model(path) == whole
    return parts


def test_large_tensors_are_read_apart(tmp_path: Path) -> None:
    parts = check_same(write(tmp_path, chain(weights()).SerializeToString()))
    assert [*parts.contents] == [0, 1, 2]
    assert all(
        data.readonly and np.frombuffer(data, np.uint8).ctypes.data % 64 == 0 for data in parts.contents.values()
    )


def test_small_ones_stay(tmp_path: Path) -> None:
    middle = numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), "eye")
    small = numpy_helper.from_array(np.float32([2.0]), "two")
    model = chain([weights(1)[0], middle])
    model.graph.initializer.insert(0, small)
    parts = check_same(write(tmp_path, model.SerializeToString()))
    assert [*parts.contents] == [1, 2] and len(small.raw_data) < LARGE_BYTES


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"])
def test_types(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, (300, 200)).astype(dtype)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), values.shape)],
        [numpy_helper.from_array(values, "w")],
    )
    path = write(tmp_path, helper.make_model(graph, ir_version=9).SerializeToString())
    assert read_parts(path).contents
    np.testing.assert_array_equal(evaluate(load_model_file(path), {}), values)


def typed(tensor: TensorProto) -> TensorProto:
    return helper.make_tensor(tensor.name, TensorProto.FLOAT, tensor.dims, numpy_helper.to_array(tensor).ravel())


def with_raw_twice(tensor: TensorProto) -> bytes:
    """The last one counts."""
    zeros = TensorProto(raw_data=bytes(len(tensor.raw_data)))
    return zeros.SerializeToString() + tensor.SerializeToString()


def field(number: int, data: bytes) -> bytes:
    size, head = len(data), bytearray([number << 3 | 2])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + data


def test_values_in_typed_fields_are_left_to_protobuf(tmp_path: Path) -> None:
    first, *rest = weights()
    assert [*check_same(write(tmp_path, chain([typed(first), *rest]).SerializeToString())).contents] == [1, 2]


def test_fields_in_another_order_and_twice(tmp_path: Path) -> None:
    """Repeated fields of messages are joined, of others the last counts; unknown ones are passed over."""
    first, second = weights(2)
    model = chain([first, second])
    graph = model.graph
    both = [*graph.initializer]
    del graph.initializer[:]
    head, nodes = onnx.ModelProto(), graph.SerializeToString()
    head.CopyFrom(model)
    head.ClearField("graph")
    data = b"".join(
        [
            field(7, field(5, with_raw_twice(both[0])) + field(9, b"unknown")),
            head.SerializeToString(),
            field(7, nodes + field(5, both[1].SerializeToString())),
        ]
    )
    parts = check_same(write(tmp_path, data))
    assert [*parts.contents] == [1]


def test_sizes_that_do_not_fit_their_bytes(tmp_path: Path) -> None:
    model = chain(weights())
    model.graph.initializer[1].dims[0] = SIDE + 1
    with pytest.raises(ImportModelError, match="tensor 'w1' cannot be read"):
        load_model_file(write(tmp_path, model.SerializeToString()))


def test_truncated_and_changed_bytes_are_judged_by_protobuf(tmp_path: Path) -> None:
    data = chain(weights()).SerializeToString()
    for size in range(1, len(data), 4999):
        with pytest.raises(ImportModelError, match="truncated"):
            load_model_file(write(tmp_path, data[:size]))
    rng = np.random.default_rng(0)
    places = [
        *range(400),
        *(data.index(t.raw_data) - 1 - i for t in chain(weights()).graph.initializer for i in range(20)),
    ]
    for place in places:
        changed = bytearray(data)
        changed[place] = rng.integers(256)
        path = write(tmp_path, bytes(changed))
        try:
            whole = onnx.load_model_from_string(bytes(changed))
        except Exception:
            with pytest.raises(ImportModelError):
                read_parts(path)
            continue
        try:
            found = read_model(path)
        except ImportModelError:
            assert not whole.ir_version or not whole.opset_import or not whole.graph.output or any_external(whole)
        else:
            assert found == whole


def any_external(model: onnx.ModelProto) -> bool:
    return any(t.data_location == t.EXTERNAL for t in model.graph.initializer)


def test_no_split_of_what_is_no_message(tmp_path: Path) -> None:
    for data in (bytes(50_000), b"\xff" * 50_000, b"text" * 20_000, field(7, field(5, b"\x08" * 20_000))):
        path = write(tmp_path, data)
        with open(path, "rb", buffering=0) as file:
            assert split_file(file, len(data)) is None
        with pytest.raises(ImportModelError):
            load_model_file(path)


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autosched.frontend.onnx import model_file

    path = write(tmp_path, chain(weights()).SerializeToString())

    def split(*args: object) -> object:
        found = split_file(*args)  # type: ignore[arg-type]
        path.write_bytes(path.read_bytes()[:-SIDE])
        return found

    monkeypatch.setattr(model_file, "split_file", split)
    with pytest.raises(ImportModelError, match="shorter"):
        load_model_file(path)
