"""Over how many threads a kernel is worth splitting: an estimate from its arithmetic and its data."""

from __future__ import annotations

from autosched.runtime.kernel import Kernel

# Measured on AMD Zen 3 and Zen 5: a split costs 1 to 3 µs. More threads than two need a longer kernel where it is bound
# by memory: much of its data lies in the cache of the core that wrote it, from where another core reads it no faster
# than from memory. Two pay from 6 µs on, where 20 were asked for (Zen 5, two threads: CRNN takes .90 of the time,
# BlazeFace .90, LCNet .95).
LEAST_COMPUTE_S = 3e-6
LEAST_MEMORY_S = 10e-6
LEAST_SHARED_S = 6e-6
FLOPS_PER_S_AND_LANE = 9e9  # one core with two multiply-add units at 3 GHz, three quarters busy
BYTES_PER_S = 40e9  # one core, from its caches
DEFAULT_LANES = 8
MOST_THREADS = 4096  # of a node: what is read from a file has no more


def most_threads(flops: int, size_bytes: int, lanes: int = DEFAULT_LANES) -> int:
    """The most threads of which each has enough to do; 1 for a kernel that is short or moves little data.

    flops, size_bytes  of one call; arguments counted once
    lanes              of the target's float32 vectors
    """
    compute_s, memory_s = _parts_s(flops, size_bytes, lanes)
    if compute_s > 2 * memory_s:
        return min(max(1, int(compute_s / LEAST_COMPUTE_S)), MOST_THREADS)
    return min(max(2 if memory_s >= LEAST_SHARED_S else 1, int(memory_s / LEAST_MEMORY_S)), MOST_THREADS)


def estimated_s(flops: int, size_bytes: int, lanes: int = DEFAULT_LANES) -> float:
    """The seconds of a call on one thread, roughly; see `most_threads`."""
    return max(_parts_s(flops, size_bytes, lanes))


def _parts_s(flops: int, size_bytes: int, lanes: int) -> tuple[float, float]:
    return flops / (FLOPS_PER_S_AND_LANE * lanes), size_bytes / BYTES_PER_S


def most_threads_of(kernel: Kernel) -> int:
    """The same for a kernel of which nothing else is known."""
    return most_threads(kernel.flops, sum(arg.size_bytes for arg in kernel.args))
