"""Measurement: builders and a runner in worker processes, every result checked against a float64 reference.

`LocalMeasurer` is in `local`: workers, which import parts of this package, do without what it imports.
"""

from autosched.tuner.measure.base import AheadMeasurer as AheadMeasurer
from autosched.tuner.measure.base import Builder as Builder
from autosched.tuner.measure.base import Built as Built
from autosched.tuner.measure.base import Candidate as Candidate
from autosched.tuner.measure.base import Failed as Failed
from autosched.tuner.measure.base import ForeseeingMeasurer as ForeseeingMeasurer
from autosched.tuner.measure.base import Foresight as Foresight
from autosched.tuner.measure.base import MeasureOptions as MeasureOptions
from autosched.tuner.measure.base import Measurer as Measurer
from autosched.tuner.measure.base import Runner as Runner
from autosched.tuner.measure.base import Compared as Compared
