# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.autotvm.tuner import callback as callback
from autosched.autotvm.tuner.tuner import GATuner as GATuner
from autosched.autotvm.tuner.tuner import GridSearchTuner as GridSearchTuner
from autosched.autotvm.tuner.tuner import RandomTuner as RandomTuner
from autosched.autotvm.tuner.tuner import Tuner as Tuner
from autosched.autotvm.tuner.tuner import XGBTuner as XGBTuner
