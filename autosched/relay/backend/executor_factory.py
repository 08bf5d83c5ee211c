"""TVM's name of what a build for the graph executor gives."""

from autosched.runtime.executable import Executable as ExecutorFactoryModule
from autosched.runtime.executable import Executable as GraphExecutorFactoryModule

__all__ = ["ExecutorFactoryModule", "GraphExecutorFactoryModule"]
