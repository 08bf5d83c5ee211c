# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.relay.frontend.onnx import from_onnx as from_onnx
from autosched.relay.frontend.pytorch import from_pytorch as from_pytorch
