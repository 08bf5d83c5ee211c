"""TVM's `contrib.graph_executor`: the graph executor of the runtime under its old path."""

from autosched.runtime.graph_executor import GraphModule as GraphModule
