"""`autotune` of kernels that users write for `numba.cuda`: compiled, run and timed through the CUDA back end."""
