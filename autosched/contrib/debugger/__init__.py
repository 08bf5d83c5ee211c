"""TVM's `contrib.debugger`."""

from autosched.contrib.debugger import debug_executor as debug_executor
