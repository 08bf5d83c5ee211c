# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.relax.testing import nn as nn
from autosched.relax.testing import vm as vm
