"""Tune your own Numba function: choose its block size and threads, and call the result.

    python -m examples.own_kernel [--budget 20s] [--db own.db]
    autosched tune examples.own_kernel:smooth --budget 20s

The function blurs an image: a first pass along rows, a second along columns. How many rows are done at once decides
whether the second pass finds its data in the cache.
"""

from __future__ import annotations

import argparse

import numba
import numpy as np

import autosched


def reference(image, out, radius):
    """What `smooth` computes, in NumPy."""
    width = 2 * radius + 1
    whole = np.pad(image, radius)
    rows = sum(whole[:, i : i + image.shape[1]] for i in range(width)) / width
    out[:] = sum(rows[i : i + image.shape[0]] for i in range(width)) / width


@autosched.autotune({"block": [4, 16, 64, 256, 1024], "fastmath": [False, True]}, check=reference)
@numba.njit
def smooth(image, out, radius, block=16):
    """Write the mean over a square around each pixel to `out`; outside of the image everything is 0."""
    height, width = image.shape
    part = np.empty((block + 2 * radius, width), image.dtype)
    scale = image.dtype.type(1.0 / (2 * radius + 1))
    for top in range(0, height, block):
        bottom = min(top + block, height)
        for y in range(top - radius, bottom + radius):  # along rows, with the rows that overlap
            row = part[y - top + radius]
            row[:] = 0
            if 0 <= y < height:
                for d in range(-radius, radius + 1):
                    for x in range(max(0, -d), min(width, width - d)):
                        row[x] += image[y, x + d] * scale
        for y in range(top, bottom):  # along columns
            out[y] = 0
            for d in range(2 * radius + 1):
                for x in range(width):
                    out[y, x] += part[y - top + d, x] * scale


@smooth.example
def image_and_result():
    """The arguments that `autosched tune` takes."""
    image = np.random.default_rng(0).random((720, 1280), np.float32)
    return image, np.empty_like(image), 3


def main(argv: list[str] | None = None) -> None:
    """Tune, then call what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--db", default="own.db")
    arguments = parser.parse_args(argv)
    image, out, radius = image_and_result()
    report = smooth.tune(image, out, radius, budget=arguments.budget, trials=arguments.trials, records=arguments.db)
    task = report.tasks[0]
    print(f"{report.n_trials} trials, {report.n_failed} failed, {task.state}: {task.config}")
    if task.default_s and task.best_s:
        print(f"default {1e3 * task.default_s:.2f} ms, now {1e3 * task.best_s:.2f} ms")
    print("\n".join(f"border: {text}" for text in task.border))
    smooth(image, out, radius)  # the tuned function
    expected = np.empty_like(out)
    reference(image, expected, radius)
    print(f"largest difference from NumPy: {np.abs(out - expected).max():.2g}")
    print(smooth.source(image, out, radius))


if __name__ == "__main__":
    main()
