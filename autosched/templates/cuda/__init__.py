"""Schedules for NVIDIA's GPUs, in the order in which they are asked: special ones first."""

from autosched.templates.base import Template

TEMPLATES: tuple[Template, ...] = ()
