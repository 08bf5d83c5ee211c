"""Code for CPUs: lowered loops to Numba source with SIMD tiles, and on to object code."""
