"""A task's search space and its default: the templates' own, with the knob `threads` where there are several.

Another kind of task, such as a function of the user's, brings `Spaces` of its own to the tuner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from autosched.codegen.lower.flops import count_work
from autosched.driver.tune.border import listed_values
from autosched.runtime.team import most_threads
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.task import Task
from autosched.templates import default_config, space_for, template_versions
from autosched.templates.thread_knob import space_with_threads, with_threads
from autosched.tir.expr import const_int


def default_of(task: Task) -> Config:
    """The configuration that a task gets without any record, as many threads included as the build would choose."""
    return with_usual_threads(default_config(task.func, task.target), task)


def with_usual_threads(config: Config, task: Task) -> Config:
    """A task's configuration over as many threads as a build chooses for a kernel whose record names none.

    Where its sizes come with a call, they are chosen then: the configuration as it is.
    """
    is_sized = any(const_int(size) is None for buffer in task.func.buffers for size in buffer.shape)
    if task.threads == 1 or not task.target.is_cpu or is_sized:
        return config
    sizes = (math.prod(b.const_shape()) * np.dtype(b.dtype).itemsize for b in task.func.buffers)
    most = most_threads(count_work(task.func), int(sum(sizes)), task.target.lanes("float32"))
    return with_threads(config, most, task.threads)


def space_of(task: Task) -> ConfigSpace:
    """The configurations that a task may have. Raises SpaceError for a space's file that is malformed."""
    return space_with_threads(space_for(task.func, task.target), default_of(task), task.threads)


class Spaces(Protocol):
    """What a tuning asks of its tasks' spaces."""

    def default_of(self, task: Task) -> Config:
        """The configuration without any record."""
        ...

    def space_of(self, task: Task) -> ConfigSpace:
        """The configurations that the task may have."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of each template: a record of another one is a hint and no fact."""
        ...

    def listed(self, space: ConfigSpace) -> Mapping[str, tuple[int, ...]]:
        """Per knob the ascending numbers that its author has listed, whatever the shape; without those of threads."""
        ...


class TemplateSpaces:
    """The spaces of operator templates on a target."""

    def __init__(self, target: Target):
        self.versions = template_versions(target.backend)

    def default_of(self, task: Task) -> Config:
        """See `Spaces`."""
        return default_of(task)

    def space_of(self, task: Task) -> ConfigSpace:
        """See `Spaces`."""
        return space_of(task)

    def listed(self, space: ConfigSpace) -> Mapping[str, tuple[int, ...]]:
        """See `Spaces`."""
        return listed_values(space.name)
