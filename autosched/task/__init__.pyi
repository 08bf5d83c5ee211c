# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.task.trial import ConfigLike as ConfigLike
from autosched.task.trial import Measurement as Measurement
from autosched.task.trial import Status as Status
from autosched.task.trial import Trial as Trial
from autosched.task.workload import Task as Task
from autosched.task.workload import Workload as Workload
