# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.frontend import nn as nn
from autosched.relax.frontend import onnx as onnx
from autosched.relax.frontend import params as _common
from autosched.relax.frontend import torch as torch
from autosched.relax.frontend.params import detach_params as detach_params
common = _common
