# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.frontend.onnx.converters import supported_operators as supported_operators
from autosched.frontend.onnx.importer import from_onnx as from_onnx
from autosched.frontend.onnx.importer import load_model_file as load_model_file
from autosched.frontend.onnx.model_file import parse_shapes as parse_shapes
from autosched.frontend.onnx.model_file import read_model as read_model
