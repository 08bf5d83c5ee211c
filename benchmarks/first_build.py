"""How long a model's first build takes, from an empty kernel cache, and that of a second model of its family."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fresh import fresh
from benchmarks.machine import Table
from benchmarks.models import get_model
from benchmarks.peers import save
from benchmarks.tables import Settings

if TYPE_CHECKING:
    import onnx

RUNS = 3
SECOND_BAR_S = 1.5
BUILD = """
import time; t = time.perf_counter()
import autosched
from autosched.driver import load_model
from autosched.records import FallbackContext
if __name__ == "__main__":
    autosched.build(load_model({path!r}), target="cpu", records=FallbackContext())
    print(time.perf_counter() - t)
"""


@dataclass(frozen=True)
class Family:
    """A model with its bar, and one that is built behind it with the kernels that the first has left in the cache."""

    name: str
    model: Callable[[], onnx.ModelProto]
    bar_s: float
    second_name: str = ""
    second: Callable[[], onnx.ModelProto] | None = None


def families() -> tuple[Family, ...]:
    """The models of the table."""
    from benchmarks import torch_models
    from benchmarks.more_models import CASES, Case, images, model_of

    def image_model(name: str) -> Callable[[], onnx.ModelProto]:
        return lambda: model_of(Case(name, getattr(torch_models, name), images(1, 224, 224)))

    efficientnet = next(case for case in CASES if case.name == "efficientnet_b0")
    return (
        Family("ResNet-18", image_model("resnet18"), 4, "ResNet-34", image_model("resnet34")),
        Family("ResNet-50", image_model("resnet50"), 4, "ResNet-101", image_model("resnet101")),
        Family("DenseNet-121", lambda: get_model("densenet121"), 5),
        Family("EfficientNet-B0", lambda: model_of(efficientnet), 8),
    )


def first_build(settings: Settings) -> Table:
    """Builds in new processes, untuned: first ones with an empty kernel cache, second ones with what those left."""
    table = Table(
        "First builds from an empty kernel cache, untuned, import and model file included, s",
        ("model", "median", "max", "bar"),
        notes=[f"medians of {RUNS} new processes, each with a cache of its own"],
    )
    for family in families():
        path = save(family.model(), settings.folder, "first")
        caches = [settings.folder / f"cache of {family.name} {run}" for run in range(RUNS)]
        table.rows.append(_row(family.name, path, caches, family.bar_s))
        if family.second is not None:
            path = save(family.second(), settings.folder, "second")
            table.rows.append(_row(f"{family.second_name} after it", path, caches, SECOND_BAR_S))
    return table


def _row(name: str, path: Path, caches: list[Path], bar_s: float) -> tuple[str, ...]:
    times = [fresh(BUILD.format(path=str(path)), {"AUTOSCHED_CACHE_DIR": str(cache)}, runs=1)[0] for cache in caches]
    return name, f"{statistics.median(times):.2f}", f"{max(times):.2f}", f"{bar_s:g}"
