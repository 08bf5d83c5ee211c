"""Default configurations become machine code for the oldest and the newest architecture, without stack or spills."""

from __future__ import annotations

import pytest

from autosched.target import Target
from autosched.templates import default_config, space_for
from tests.check_cuda import CASES, run_case, run_open_case
from tests.cuda_open import OPEN_CASES
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")


@pytest.mark.parametrize("case", ["attention 1x4096 d128 in parts", "matmul 1x768x3072", "matmul 8x4096x512"])
def test_parts_of_sums_become_machine_code(case: str) -> None:
    assert not run_case(case, 0, ("sm_75", "sm_120")).failures


@pytest.mark.parametrize(
    "case",
    ["topk 50 of 8x50257 float16", "cumsum 2x1000003 bfloat16", "scatter 300 by 1000 float16", "concat 8x640x7x7"],
)
def test_defaults_become_machine_code(case: str) -> None:
    row = run_case(case, 0, ("sm_75", "sm_120"))
    template = case.replace("topk", "sort").replace("cumsum", "scan").split()[0]
    assert not row.failures and row.made == {(template, "sm_75"): 1, (template, "sm_120"): 1}


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_120"])
def test_every_default_is_in_its_space(arch: str) -> None:
    """Where a block has little shared memory as well: 64 KB on sm_75, 99 KB on sm_86 and sm_120."""
    target = Target(f"cuda -arch={arch}")
    for make in CASES.values():
        func = make()
        assert space_for(func, target).contains(default_config(func, target))


@spread(15, "case", [*OPEN_CASES], first=9)
def test_functions_over_open_sizes_become_machine_code(case: str) -> None:
    """With the registers that places and conditions take where lengths are not known."""
    assert not run_open_case(case, ("sm_75", "sm_80", "sm_90", "sm_120")).failures
