# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.frontend import nn as nn
from autosched.frontend import onnx as onnx
from autosched.frontend import torch as torch
