"""TVM's graph tuners by name: the build chooses layouts between kernels by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autosched.errors import InvalidTypeError
from autosched.ir import IRModule
from autosched.relax.expr import Function


class BaseGraphTuner:
    """Takes TVM's calls in their order; there is nothing to search for.

    graph         a function or module; input_shapes {name: shape}; records, target_ops, target as in TVM
    """

    def __init__(
        self, graph: Any, input_shapes: Mapping[str, Any], records: Any, target_ops: Any, target: Any,
        max_sch_num: int = 20, dtype: str = "float32", verbose: bool = True, log_file: str = "", log_level: Any = None,
        name: str = "graph_tuner",
    ):  # fmt: skip
        if not isinstance(graph, Function | IRModule):
            raise InvalidTypeError(f"a graph tuner takes a function or a module, not a {type(graph).__name__}")
        self.graph, self.records, self.target = graph, records, target

    def benchmark_layout_transform(self, *_: Any, **__: Any) -> None:
        """Nothing: layouts are chosen by the build."""

    def run(self, **_: Any) -> None:
        """Nothing: layouts are chosen by the build."""

    def write_opt_sch2record_file(self, record_file: str = "graph_opt_schedule.log") -> None:
        """Write the records that the tuner was given, unchanged."""
        is_file = isinstance(self.records, str) and Path(self.records).is_file()
        known = Path(self.records).read_text(encoding="utf-8") if is_file else ""
        Path(record_file).write_text(known, encoding="utf-8")


class DPTuner(BaseGraphTuner):
    """TVM's search by dynamic programming."""


class PBQPTuner(BaseGraphTuner):
    """TVM's search by quadratic programming."""
