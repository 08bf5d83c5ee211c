import math

import pytest

from autosched.errors import InvalidValueError
from autosched.space import Config
from autosched.task import Measurement, Status, Trial


def test_median_and_failures() -> None:
    good = Measurement(Status.OK, (3.0, 1.0, 2.0))
    assert good.median_s == 2.0 and good.is_ok
    bad = Trial(Config("t"), Measurement(Status.CRASH, error="signal 11"))
    assert bad.median_s == math.inf and not bad.is_ok and bad.measurement.status.is_failure
    assert not Status.LOST.is_failure


@pytest.mark.parametrize(
    ("status", "times"),
    [(Status.OK, ()), (Status.OK, (0.0,)), (Status.OK, (math.nan,)), (Status.OK, (-1.0,)), (Status.CRASH, (1.0,))],
)
def test_no_invented_times(status: Status, times: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValueError):
        Measurement(status, times)
