"""The matrix of a discrete Fourier transform."""

from __future__ import annotations

import numpy as np

MOST_ELEMENTS = 1 << 22  # of a matrix: 1024 complex values; beyond, a library's n log n is less work


def dft_matrix(size: int, length: int, wanted: int, inverse: bool) -> np.ndarray:
    """What each of `size` values contributes to each of the first `wanted` frequencies of `length`; float64.

    Gives [size, 2, wanted, 2]: which value, its part (real, imaginary), which frequency, its part. Values past a length
    contribute to none. Nothing is divided by the length.
    """
    j, k = np.arange(size), np.arange(wanted)
    turns = np.outer(j, k) % length  # whole turns taken off as integers, which is exact
    angle = 2 * np.pi / length * turns
    real = np.where(4 * turns % (2 * length) == length, 0.0, np.cos(angle))  # quarters of a turn are exact too
    sine = np.where(2 * turns % length == 0, 0.0, np.sin(angle))
    imaginary = sine if inverse else 0.0 - sine
    rows = [np.stack([real, imaginary], axis=-1), np.stack([0.0 - imaginary, real], axis=-1)]
    matrix = np.stack(rows, axis=1)
    matrix[length:] = 0
    return matrix
