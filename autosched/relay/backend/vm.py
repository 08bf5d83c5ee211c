"""TVM's `relay.backend.vm`: `relay.vm` under its old path."""

from autosched.relay.vm import VMCompiler as VMCompiler
from autosched.relay.vm import VMExecutor as VMExecutor
from autosched.relay.vm import compile as compile
from autosched.runtime.vm import Executable as Executable
