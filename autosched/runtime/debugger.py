"""TVM's debug executor: runs a graph node by node, times each node, and dumps what it has computed."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import IndexOutOfRangeError, InvalidTypeError, InvalidValueError, NameNotFoundError, refuse
from autosched.runtime import graph_module
from autosched.runtime.array import NDArray, array, as_numpy
from autosched.runtime.device import Device
from autosched.runtime.executable import Executable
from autosched.runtime.graph import NOP
from autosched.runtime.graph_executor import GraphExecutor
from autosched.runtime.graph_json import JsonGraph, JsonNode, layout_of, parse_graph
from autosched.runtime.graph_module import GraphModule
from autosched.runtime.module import Module
from autosched.runtime.params import save_param_dict
from autosched.runtime.profiling import Report, layout
from autosched.runtime.timing import BenchmarkResult, MeasureOptions, measure

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

_DUMP_PREFIX = "_tvmdbg_"
_GRAPH_FILE = "_tvmdbg_graph_dump.json"
_TRACE_FILE = "_tvmdbg_execution_trace.json"
_TENSOR_FILE = "output_tensors.params"


def create(
    graph_json_str: str, libmod: Module | Executable, device: Device | Sequence[Device], dump_root: str | None = None
) -> GraphModuleDebug:
    """Make a debug executor of a graph in TVM's JSON.

    libmod     a library of functions, or what a build gives: then its parameters are loaded
    dump_root  folder under which it dumps; None: a temporary one
    """
    executor: GraphExecutor = graph_module.create(graph_json_str, libmod, device).module
    module = GraphModuleDebug(executor, executor.device, graph_json_str, dump_root)
    params = libmod.get_params() if isinstance(libmod, Executable) else _stored_params(libmod)
    if params:
        for name, value in params.items():
            module["set_input"](name, value)
        executor.mark_params(params)
    return module


def _stored_params(libmod: Module) -> dict[str, NDArray]:
    if not libmod.implements_function("get_graph_params", True):
        return {}
    found: Any = libmod.get_function("get_graph_params", True)()
    return dict(found)


class GraphModuleDebug(GraphModule):
    """A graph executor whose nodes can be run, timed and looked at one by one.

    module           an executor
    graph_json_str   its graph in TVM's JSON, as `get_graph_json` gives it
    dump_root        folder under which it dumps; None: a temporary one
    """

    _executor_per_thread = False  # it looks into the memory of one

    def __init__(
        self,
        module: object,
        device: Device | Sequence[Device] | None = None,
        graph_json_str: str = "",
        dump_root: str | None = None,
    ):
        super().__init__(module, device if isinstance(device, Device) else None)
        if not isinstance(self.module, GraphExecutor):
            raise InvalidTypeError(f"the debug executor takes a graph executor, not {type(module).__name__}")
        self.executor = self.module
        self.device = self.executor.device
        found = layout_of(self.executor.executable.graph, self.executor.executable.manifest)
        self._text, self._values, self._spans = graph_json_str or found.text, found.values, found.spans
        self.graph: JsonGraph = parse_graph(self._text)
        if (len(self.graph.nodes), len(self.graph.shapes)) != (len(self._spans), len(self._values)):
            raise InvalidValueError("the graph JSON is not that of the executor", hint="use lib.get_graph_json()")
        self._made_root = None if dump_root else Path(tempfile.mkdtemp(prefix="tvmdbg_"))
        folder = f"{_DUMP_PREFIX}device_{self.device.type.upper()}_{self.device.device_id}"
        self.dump_folder = Path(dump_root or self._made_root or "") / folder
        self.dump_folder.mkdir(parents=True, exist_ok=True)
        self._dump_path = str(self.dump_folder)

    # Running nodes

    def run_individual(
        self,
        number: int,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> list[list[float]]:
        """Time every node by itself: per node `repeat` times in seconds, zeros for inputs."""
        options: MeasureOptions = {
            "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
            "limit_zero_time_iterations": limit_zero_time_iterations,
            "cooldown_interval_ms": cooldown_interval_ms, "repeats_to_cooldown": repeats_to_cooldown,
        }  # fmt: skip
        super().run()
        return [list(self._time(index, options).results) for index in range(len(self.graph.nodes))]

    def run_individual_node(
        self,
        index: int,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
    ) -> BenchmarkResult:
        """Time one node. Raises IndexError if there is none of that number."""
        options: MeasureOptions = {
            "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
            "limit_zero_time_iterations": limit_zero_time_iterations,
            "cooldown_interval_ms": cooldown_interval_ms, "repeats_to_cooldown": repeats_to_cooldown,
        }  # fmt: skip
        return self._time(self._node(index), options)

    def _time(self, index: int, options: MeasureOptions) -> BenchmarkResult:
        span = self._spans[index]
        if not span or self.graph.nodes[index].function == NOP:
            return BenchmarkResult([0.0] * options["repeat"])
        return measure(lambda count: self.executor.program.run_nodes(span, count), **options)

    def _node(self, node: int | str) -> int:
        if isinstance(node, str):
            for number, found in enumerate(self.graph.nodes):
                if found.name == node:
                    return number
            raise NameNotFoundError(f"no node is called '{node}'")
        if not 0 <= node < len(self.graph.nodes):
            raise IndexOutOfRangeError(f"node {node} of {len(self.graph.nodes)}")
        return node

    def debug_get_output(self, node: int | str, out: NDArray | int = 0) -> NDArray:  # type: ignore[override]
        """Run all nodes up to one and give its output: in `out`, or as a new array where `out` is a number.

        Raises AttributeError on an unknown name, IndexError on an unknown number, ValueError on another shape.
        """
        index = self._node(node)
        for number in range(index + 1):
            self.executor.program.run_nodes(self._spans[number])
        position = 0 if isinstance(out, NDArray) else int(out)
        outputs = self.graph.nodes[index].outputs
        if not 0 <= position < len(outputs):
            raise IndexOutOfRangeError(f"output {position} of node '{self.graph.nodes[index].name}'")
        found = self._entry(outputs[position])
        return out.copyfrom(found) if isinstance(out, NDArray) else array(found)

    def _entry(self, entry: int) -> np.ndarray:
        """The memory of an entry of the JSON."""
        return as_numpy(self.executor.program.array(self._values[entry]))

    def execute_next_node_get_output(self, node_index: int, output_index: int) -> NDArray:
        """Run one node and give one of its outputs."""
        index = self._node(node_index)
        self.executor.program.run_nodes(self._spans[index])
        return array(self._entry(self.graph.nodes[index].outputs[output_index]))

    # TVM's debug run

    def run(
        self,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 1,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        sort_by_time: bool = True,
        **input_dict: Any,
    ) -> None:
        """Time each node, compute, dump graph, outputs and trace, and print a table of the nodes."""
        if input_dict:
            self.set_input(**input_dict)
        times = self.run_individual(
            number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
        )
        outputs, starts = self._run_and_keep()
        folder = self.dump_folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _GRAPH_FILE).write_text(json.dumps(self._graph_dump(), indent=2))
        (folder / _TENSOR_FILE).write_bytes(save_param_dict(outputs))
        (folder / _TRACE_FILE).write_text(json.dumps(self._trace(starts, times)))
        print(self.table(times, sort_by_time))

    def _run_and_keep(self) -> tuple[dict[str, NDArray], list[float]]:
        """Compute node by node; every output by TVM's key, and when each node began, in seconds."""
        outputs: dict[str, NDArray] = {}
        starts, zero = [], time.perf_counter()
        for order, node in enumerate(self.graph.nodes):
            starts.append(time.perf_counter() - zero)
            self.executor.program.run_nodes(self._spans[order])
            for index, entry in enumerate(node.outputs):
                outputs[f"{node.name}____topo-index:{order}____output-num:{index}"] = array(self._entry(entry))
        return outputs, starts

    def _graph_dump(self) -> JsonObject:
        content = dict(json.loads(self._text))
        names = {entry: node.name for node in self.graph.nodes for entry in node.outputs}
        content["nodes"] = [
            {
                "op": node.function or "param",
                "name": node.name,
                "attrs": {**node.attrs, "T": f"type: {self.graph.dtypes[node.outputs[0]]}" if node.outputs else ""},
                "shape": list(self.graph.shapes[node.outputs[0]]) if node.outputs else [],
                "inputs": [names[entry] for entry in node.inputs],
            }
            for node in self.graph.nodes
        ]
        return content

    def _trace(self, starts: Sequence[float], times: Sequence[Sequence[float]]) -> JsonObject:
        events, clock = [], 0.0
        for node, start, seconds in zip(self.graph.nodes, starts, times):
            begin = max(clock, start * 1e6)
            clock = begin + float(np.mean(seconds)) * 1e6
            for phase, at in (("B", begin), ("E", clock)):
                event = {"name": node.function or node.name, "cat": "perf", "ph": phase, "ts": at, "pid": 1, "tid": 1}
                events.append({**event, "args": {"node.name": node.name}})
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def table(self, times: Sequence[Sequence[float]], sort_by_time: bool = True) -> str:
        """Times of nodes, as `run_individual` gives them, as text."""
        total = sum(float(np.mean(seconds)) for seconds in times)
        rows = []
        for node, seconds in zip(self.graph.nodes, times):
            if node.function in ("", NOP):
                continue
            mean = float(np.mean(seconds))
            share = 100 * mean / total if total else 0.0
            rows.append((mean, _row(self.graph, node, seconds, mean, share)))
        if sort_by_time:
            rows.sort(key=lambda row: -row[0])
        header = ["Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)"]
        last = ["Total_time", "-", f"{total * 1e6:.3f}", "-", "-", "-", "-", "-"]
        return layout(header, [row for _, row in rows] + [last])

    def profile(self, collectors: object = None, **input_dict: Any) -> Report:  # type: ignore[override]
        """Run once and say what each node took."""
        refuse("profile", collectors=collectors)
        if input_dict:
            self.set_input(**input_dict)
        super().run()
        calls, begin = [], time.perf_counter()
        for node, span in zip(self.graph.nodes, self._spans):
            if not span or node.function == NOP:
                continue
            start = time.perf_counter()
            self.executor.program.run_nodes(span)
            calls.append((node, (time.perf_counter() - start) * 1e6))
        total = (time.perf_counter() - begin) * 1e6
        device = str(self.device).replace(":", "")
        rows = [
            {
                "Name": node.function,
                "Duration (us)": duration,
                "Percent": 100 * duration / total,
                "Device": device,
                "Count": 1,
                "Argument Shapes": ", ".join(
                    f"{self.graph.dtypes[e]}{list(self.graph.shapes[e])}" for e in (*node.inputs, *node.outputs)
                ),
            }
            for node, duration in calls
        ]
        return Report(rows, {device: {"Duration (us)": total, "Percent": 100.0}}, {"Executor": "Graph"})

    def exit(self) -> None:
        """Remove what was dumped."""
        shutil.rmtree(self._made_root or self.dump_folder, ignore_errors=True)


def _row(graph: JsonGraph, node: JsonNode, seconds: Sequence[float], mean: float, share: float) -> list[str]:
    shape = str(tuple(graph.shapes[node.outputs[0]])) if node.outputs else "-"
    measured = ", ".join(f"{second * 1e6:.3f}" for second in seconds)
    return [
        node.name, node.function, f"{mean * 1e6:.3f}", f"{share:.3f}", shape,
        str(len(node.inputs)), str(len(node.outputs)), f"[{measured}]",
    ]  # fmt: skip
