"""The data of arrays that are too large for the text: JSON with base64, little endian, row-major."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.script.intrinsics import DTYPES


def _entry(array: Any) -> dict[str, object]:
    values = np.ascontiguousarray(array.numpy() if hasattr(array, "numpy") else array)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    shape = list(np.shape(values if np.ndim(array) else array))
    return {"dtype": str(values.dtype), "shape": shape, "data": base64.b64encode(little.tobytes()).decode()}


def metadata_lines(metadata: Mapping[str, Sequence[object]]) -> list[str]:
    """`metadata = load_json("…")`, to stand above the text that refers to it."""
    entries = {kind: [_entry(a) for a in arrays] for kind, arrays in metadata.items()}
    return ["", f'metadata = autosched.script.load_json("""{json.dumps(entries)}""")']


def load_json(text: str) -> dict[str, list[np.ndarray]]:
    """Read what `metadata_lines` wrote between the quotes. Raises ValueError or KeyError where it is malformed."""
    out: dict[str, list[np.ndarray]] = {}
    for kind, entries in json.loads(text).items():
        out[kind] = []
        for entry in entries:
            if entry["dtype"] not in DTYPES:
                raise ValueError(f"unknown dtype {entry['dtype']!r}")
            flat = np.frombuffer(base64.b64decode(entry["data"]), np.dtype(entry["dtype"]).newbyteorder("<"))
            out[kind].append(flat.astype(entry["dtype"]).reshape(entry["shape"]))
    return out
