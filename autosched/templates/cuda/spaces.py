"""The search space of a template for GPUs, by its file in `search_spaces/cuda/`."""

from __future__ import annotations

from autosched.space import ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Template


def device_space(template: Template, anchor: Anchor, target: Target, **more: int) -> ConfigSpace:
    """The space for an anchor on a device. Its file may speak of these values, the anchor's sizes and `more`."""
    gpu = target.gpu
    device = {
        "warp": gpu.warp_size, "most_threads": gpu.max_threads_per_block, "registers": gpu.registers_per_sm,
        "shared_bytes": gpu.max_shared_memory_per_block, "sm_count": gpu.sm_count,
    }  # fmt: skip
    space = load_space(target.backend, template.name, {**device, **anchor.sizes, **more})
    return space.with_default(template.default(anchor, target))
