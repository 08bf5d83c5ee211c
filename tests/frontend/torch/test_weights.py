"""Weights whose shape says more elements than any memory has: a view of one number, as a damaged file may have it."""

from __future__ import annotations

import pytest
import torch

from autosched.errors import ImportModelError
from autosched.frontend.torch.graph import array_of


def test_a_weight_that_no_memory_holds_is_refused_by_name() -> None:
    huge = torch.zeros(1).as_strided((2**40, 2**20, 4), (0, 0, 0))
    with pytest.raises(ImportModelError, match=r"tensor 'w' of shape \[1099511627776, 1048576, 4\] cannot be read"):
        array_of(huge, "w")
