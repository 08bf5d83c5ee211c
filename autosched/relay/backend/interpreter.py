"""TVM's `relay.backend.interpreter`: the interface of executors."""

from autosched.relay.build_module import Executor as Executor
