from __future__ import annotations

import math
from typing import cast

import pytest

from autosched.runtime.kernel import Kernel
from autosched.task import Measurement, Status
from autosched.tuner.measure.base import Built, Candidate, Compared
from autosched.tuner.measure.compare import check_winners
from tests.tuner.measure.kernels import config, matmul_task

TASK = matmul_task()
KERNEL = cast(Kernel, None)  # it is never run
WRONG = Measurement(Status.WRONG_RESULT, error="right by luck until now")


def compared(number: int, ratio: float, low: float) -> Compared:
    return Compared(
        config("right", number=number), Measurement(Status.OK, (ratio * 1e-3,)), ratio, low, 2 * ratio - low
    )


def check(*lows: tuple[float, float], has_first: bool = True, wrong: int | None = None) -> tuple[list[int], list[bool]]:
    """(the positions that are checked on further inputs, whether each is good in the end); per position ratio, low."""
    found = [compared(i, ratio, low) for i, (ratio, low) in enumerate(lows)]
    built = [Built(Candidate(TASK, one.config), KERNEL) for one in found]
    asked: list[int] = []

    def on_more(one: Built) -> Measurement | None:
        asked.append(int(one.candidate.config.knobs["number"]))
        return WRONG if asked[-1] == wrong else None

    results = check_winners(found, built, on_more, has_first=has_first)
    return asked, [one.measurement.is_ok for one in results]


def test_nothing_is_checked_where_nothing_comes_near_the_baseline() -> None:
    assert check((1.0, 1.0), (1.3, 1.2), (1.5, 1.12)) == ([], [True] * 3)


@pytest.mark.parametrize("low", [0.7, 1.0, 1.09])
def test_what_may_win_is_checked_and_so_is_the_baseline_beside_it(low: float) -> None:
    assert check((1.0, 1.0), (1.2, low), (1.5, 1.3)) == ([0, 1], [True] * 3)


def test_what_is_far_behind_the_fastest_is_not_checked() -> None:
    assert check((1.0, 1.0), (0.5, 0.45), (0.6, 0.58)) == ([1], [True] * 3)


def test_where_a_winner_fails_all_others_are_checked() -> None:
    assert check((1.0, 1.0), (0.5, 0.45), (0.9, 0.88), wrong=1) == ([1, 0, 2], [True, False, True])


def test_where_the_baseline_has_failed_the_fastest_is_checked() -> None:
    assert check((1.0, 1.0), (1.3, 1.2), has_first=False) == ([0], [True] * 2)
    assert check((1.0, 1.0), (1.3, 1.2), has_first=False, wrong=0) == ([0, 1], [False, True])


def test_a_failure_is_no_winner() -> None:
    failed = Compared(config("right"), Measurement(Status.RUN_ERROR), math.inf)
    built = Built(Candidate(TASK, failed.config), KERNEL)
    assert check_winners([failed], [built], lambda _: WRONG, has_first=True)[0].measurement.status is Status.RUN_ERROR
