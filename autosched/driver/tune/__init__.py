"""The search for the best configurations of a model's kernels: one run of the tuner, its budget, its report."""
