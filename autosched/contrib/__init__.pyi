# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.contrib import cblas as cblas
from autosched.contrib import cc as cc
from autosched.contrib import debugger as debugger
from autosched.contrib import download as download
from autosched.contrib import graph_executor as _graph_runtime
from autosched.contrib import graph_executor as graph_executor
from autosched.contrib import tar as tar
from autosched.contrib import utils as utils
graph_runtime = _graph_runtime
