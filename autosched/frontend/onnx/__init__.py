"""Import of ONNX models, opsets 7 to 28."""

from autosched.frontend.onnx.importer import from_onnx
from autosched.frontend.onnx.model_file import load_model_file, parse_shapes, read_model
from autosched.frontend.onnx.registry import supported_operators

__all__ = ["from_onnx", "load_model_file", "parse_shapes", "read_model", "supported_operators"]
