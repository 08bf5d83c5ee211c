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
    angle = 2 * np.pi / length * (np.outer(j, k) % length)  # whole turns taken off as integers, which is exact
    real, imaginary = np.cos(angle), np.sin(angle) if inverse else -np.sin(angle)
    rows = [np.stack([real, imaginary], axis=-1), np.stack([-imaginary, real], axis=-1)]
    matrix = np.stack(rows, axis=1)
    matrix[length:] = 0
    return matrix
