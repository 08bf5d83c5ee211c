"""Where the start values of reductions are written."""

import numpy as np

from autosched.codegen import lower_func
from autosched.tir import Schedule, interpret
from tests.tir.programs import matmul, run


def test_a_loop_that_only_a_condition_names_stays_around_the_start_value():
    sch = Schedule(matmul())
    sch.split(sch.add_unit_loop("C"), [None, 5])
    arrays = run(matmul())
    found = [*arrays[:2], np.full_like(arrays[2], 77)]
    interpret(lower_func(sch.func), found)
    np.testing.assert_allclose(found[2], arrays[2], rtol=1e-5, atol=1e-6)
