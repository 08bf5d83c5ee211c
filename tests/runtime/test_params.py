import struct

import numpy as np
import pytest

from autosched.errors import ArtifactError
from autosched.runtime import (
    array,
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)

_PARAMS = {
    "weight": np.arange(6, dtype="float32").reshape(2, 3),
    "größe": np.array(7, "int64"),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 3), "uint8"),
    "half": np.ones(2, "float16"),
}


def test_round_trip():
    loaded = load_param_dict(save_param_dict(_PARAMS))
    assert list(loaded) == list(_PARAMS)
    for name, value in _PARAMS.items():
        assert loaded[name].dtype == str(value.dtype)
        np.testing.assert_array_equal(loaded[name].numpy(), value)


def test_the_bytes_are_tvms():
    data = save_param_dict({"ab": array(np.array([1.5], "float32"))})
    assert data == (
        struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 1, 2)
        + b"ab"
        + struct.pack("<Q", 1)
        + struct.pack("<QQiii", 0xDD5E40F096B4A13F, 0, 1, 0, 1)
        + struct.pack("<BBH", 2, 32, 1)
        + struct.pack("<qqf", 1, 4, 1.5)
    )


def test_every_cut_is_noticed():
    data = save_param_dict(_PARAMS)
    for length in range(len(data)):
        with pytest.raises(ArtifactError):
            load_param_dict(data[:length])


def test_damage_is_noticed():
    with pytest.raises(ArtifactError, match="no parameter file"):
        load_param_dict(b"x" * 100)
    data = bytearray(save_param_dict({"a": np.zeros(2, "float32")}))
    data[16:24] = struct.pack("<Q", 1 << 60)  # the count of names
    with pytest.raises(ArtifactError, match="cut short"):
        load_param_dict(data)


def test_files(tmp_path):
    save_param_dict_to_file(_PARAMS, tmp_path / "model.params")
    found = load_param_dict_from_file(tmp_path / "model.params")
    assert save_param_dict(found) == save_param_dict(_PARAMS)
