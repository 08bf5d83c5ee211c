"""`relax.frontend.onnx.from_onnx`, attached on first use."""

from autosched.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
