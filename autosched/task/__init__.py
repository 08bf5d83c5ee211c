"""Workloads, tasks, trials and measurements: what tuner, records and driver pass to each other."""

from autosched.task.trial import ConfigLike as ConfigLike
from autosched.task.trial import Measurement as Measurement
from autosched.task.trial import Status as Status
from autosched.task.trial import Trial as Trial
from autosched.task.workload import Task as Task
from autosched.task.workload import Workload as Workload
