"""Triton's own autotuner on a float16 matrix product, over a space like ours; only where Triton and a GPU are there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns, "STEP": step, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for rows, columns, step, (stages, warps) in itertools.product(
        (64, 128), (64, 128, 256), (32, 64), ((3, 4), (4, 4), (3, 8), (4, 8))
    )
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def product(
    a, b, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """c = a @ b for row-major matrices whose sizes the tiles divide; blocks go over the result in groups of rows."""
    block = tl.program_id(0)
    across = tl.cdiv(n, COLUMNS)
    in_group = GROUP * across
    first = block // in_group * GROUP
    high = min(tl.cdiv(m, ROWS) - first, GROUP)
    row, column = first + block % in_group % high, block % in_group // high
    rows, columns = row * ROWS + tl.arange(0, ROWS), column * COLUMNS + tl.arange(0, COLUMNS)
    steps = tl.arange(0, STEP)
    left, right = a + rows[:, None] * k + steps[None, :], b + steps[:, None] * n + columns[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in range(0, tl.cdiv(k, STEP)):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += STEP
        right += STEP * n
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@dataclass(frozen=True)
class Tuned:
    """What the autotuner did: configurations, seconds for all, the best of them, and a call with it."""

    configs: int
    seconds: float
    best: str
    call: Callable[[], Any]


def tune_matmul(torch: Any, size: int) -> Tuned:
    """Tune a square product, from an empty cache of this process."""
    a, b = (torch.randn((size, size), device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)

    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(size, meta["ROWS"]) * triton.cdiv(size, meta["COLUMNS"]),)

    def call() -> Any:
        return product[grid](a, b, c, size, size, size)

    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    spent = time.perf_counter() - start
    expected = a.float() @ b.float()
    if not torch.allclose(c.float(), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max())):
        raise AssertionError("Triton's product is wrong: the benchmark is")
    return Tuned(len(CONFIGS), spent, str(product.best_config), call)
