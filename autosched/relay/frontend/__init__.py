"""TVM's `relay.frontend`: the importers, with Relay's signatures; each gives (module, parameters)."""

from autosched.relay.frontend.onnx import from_onnx as from_onnx
from autosched.relay.frontend.pytorch import from_pytorch as from_pytorch
