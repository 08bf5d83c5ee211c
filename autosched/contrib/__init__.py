"""Modules that TVM keeps under `contrib`."""
