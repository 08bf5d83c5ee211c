"""AutoTVM's tuners and their callbacks."""

from autosched.autotvm.tuner import callback as callback
from autosched.autotvm.tuner.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
