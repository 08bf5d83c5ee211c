"""Modules that TVM keeps under `contrib`."""

from autosched.contrib import graph_executor as graph_executor
