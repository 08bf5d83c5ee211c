"""TVM's `contrib.debugger.debug_executor`: the debug executor of the runtime under its old path."""

from autosched.runtime.debugger import GraphModuleDebug as GraphModuleDebug
from autosched.runtime.debugger import create as create
from autosched.runtime.graph_module import get_device as get_device
