"""Import of ONNX models, opsets 1 to 28."""

from autosched.frontend.onnx.converters import supported_operators
from autosched.frontend.onnx.importer import from_onnx, load_model_file
from autosched.frontend.onnx.model_file import parse_shapes, read_model

__all__ = ["from_onnx", "load_model_file", "parse_shapes", "read_model", "supported_operators"]
