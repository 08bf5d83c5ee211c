# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.frontend.onnx import from_onnx as from_onnx
