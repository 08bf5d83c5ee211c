"""A task's search space and its default: the templates' own, with the knob `threads` where there are several."""

from __future__ import annotations

import math

import numpy as np

from autosched.driver.work import count_work
from autosched.runtime.team import most_threads
from autosched.space import Config, ConfigSpace
from autosched.task import Task
from autosched.templates import default_config, space_for
from autosched.templates.thread_knob import space_with_threads, with_threads


def default_of(task: Task) -> Config:
    """The configuration that a task gets without any record, as many threads included as the build would choose."""
    config = default_config(task.func, task.target)
    if task.threads == 1:
        return config
    sizes = (math.prod(b.const_shape()) * np.dtype(b.dtype).itemsize for b in task.func.buffers)
    most = most_threads(count_work(task.func), int(sum(sizes)), task.target.lanes("float32"))
    return with_threads(config, most, task.threads)


def space_of(task: Task) -> ConfigSpace:
    """The configurations that a task may have. Raises SpaceError for a space's file that is malformed."""
    return space_with_threads(space_for(task.func, task.target), default_of(task), task.threads)
