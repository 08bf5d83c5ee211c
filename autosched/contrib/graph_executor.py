"""TVM's `contrib.graph_executor`: the graph executor of the runtime under its old path."""

from autosched.runtime.graph_module import GraphModule as GraphModule
from autosched.runtime.graph_module import create as create
from autosched.runtime.graph_module import get_device as get_device
