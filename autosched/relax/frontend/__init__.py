"""TVM's path to the importers, which live in a higher package; `onnx` is attached on first use."""

from autosched.lazy_names import lazy_names
from autosched.relax.frontend.params import detach_params

__getattr__, __dir__ = lazy_names(__name__)

__all__ = ["detach_params"]
