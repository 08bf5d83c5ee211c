"""Small models that TVM's tutorials use."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from autosched.ir import IRModule
from autosched.relay.expr import GraphFunction
from autosched.relay.testing import mlp as mlp
from autosched.relay.testing import resnet as resnet
from autosched.relay.testing.init import create_workload as create_workload
from autosched.runtime import NDArray

T = TypeVar("T")


def run_infer_type(expr: T) -> T:
    """The expression itself: types are inferred as expressions are made."""
    return expr


__all__ = ["GraphFunction", "IRModule", "NDArray", "create_workload", "mlp", "np", "resnet", "run_infer_type"]
