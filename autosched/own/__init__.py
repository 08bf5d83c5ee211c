"""Tuning of the user's own Numba functions: `decorate.autotune`, which users know as `autosched.autotune`.

Nothing is imported here: workers load the parts that they need and no compiler of models.
"""
