# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.relay.backend import executor_factory as executor_factory
from autosched.relay.backend import interpreter as interpreter
from autosched.relay.backend import vm as vm
from autosched.relay.backend.options import Executor as Executor
from autosched.relay.backend.options import Runtime as Runtime
