"""Recorded spaces of the project's own kernels, in the format of `autosched.testing.replay`, and their maker."""

from pathlib import Path

FOLDER = Path(__file__).parent
