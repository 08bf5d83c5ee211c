"""The numeric form of knobs that all cost models share.

An int gives log2 and, where it says something more, log2 of the largest power of two that divides it: hardware cares
about both. A text gives one column per value, a bool one column, a split the columns of each of its parts.
"""

from __future__ import annotations

import numpy as np

from autosched.space.knob import Knob


def encode_knob(knob: Knob) -> tuple[np.ndarray, tuple[str, ...]]:
    """Per candidate a row of numbers, and the columns' names.

    returns [candidates, columns] float64; no columns for a knob with a single candidate
    """
    if len(knob.values) == 1:
        return np.zeros((1, 0)), ()
    if knob.kind == "text":
        return _one_hot(knob)
    if knob.kind == "bool":
        return knob.array.astype(np.float64)[:, None], (knob.name,)
    if knob.kind == "int":
        return _int_columns(knob.array, knob.name)
    blocks = [_int_columns(knob.array[:, part], f"{knob.name}[{part}]") for part in range(knob.array.shape[1])]
    names = tuple(name for _, block_names in blocks for name in block_names)
    return np.concatenate([block for block, _ in blocks], axis=1), names


def _one_hot(knob: Knob) -> tuple[np.ndarray, tuple[str, ...]]:
    names = tuple(f"{knob.name}={value}" for value in knob.values)
    table = np.eye(len(names))
    return (table[:, 1:], names[1:]) if len(names) == 2 else (table, names)


def _int_columns(values: np.ndarray, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """log2 of the magnitude (0 stands one step below 1) with its sign, and log2 of the power of two within."""
    size = np.sign(values) * np.log2(np.maximum(np.abs(values), 1)) - (values == 0)
    if np.any(values < 0):  # keeps the order of values around zero
        size = np.sign(values) * np.log2(1 + np.abs(values))
    power = np.log2(np.where(values == 0, 1, np.abs(values) & -np.abs(values)))
    columns: list[np.ndarray] = []
    names: list[str] = []
    for column, label in ((size, f"log2 {name}"), (power, f"pow2 {name}")):
        if np.ptp(column) > 0 and not any(np.array_equal(column, other) for other in columns):
            columns.append(column)
            names.append(label)
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0)), tuple(names)
