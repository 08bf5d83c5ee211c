"""The debug executor: every node's output, its time, and what is dumped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autosched.runtime import cpu, empty, load_param_dict
from autosched.runtime.debugger import GraphModuleDebug, create
from tests.runtime.kernels import chain

X = np.random.default_rng(0).random((3, 64), dtype=np.float32)


@pytest.fixture
def module(tmp_path: Path) -> GraphModuleDebug:
    executable = chain(3, 2, constant=True)
    module = create(executable.get_graph_json(), executable, cpu(0), dump_root=str(tmp_path))
    module.set_input("x", X)
    return module


def test_run_dumps_graph_outputs_and_trace(
    module: GraphModuleDebug, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module.run(number=2, repeat=2)
    folder = tmp_path / "_tvmdbg_device_CPU_0"
    assert module.dump_folder == folder
    nodes = json.loads((folder / "_tvmdbg_graph_dump.json").read_text())["nodes"]
    assert [node["op"] for node in nodes] == ["param", "param", "double", "double", "add"]
    assert nodes[4]["inputs"] == ["double1", "bias"] and nodes[2]["shape"] == [3, 64]
    trace = json.loads((folder / "_tvmdbg_execution_trace.json").read_text())
    assert trace["displayTimeUnit"] == "ns" and [e["ph"] for e in trace["traceEvents"]] == ["B", "E"] * 5
    times = [event["ts"] for event in trace["traceEvents"]]
    assert times == sorted(times)
    outputs = load_param_dict((folder / "output_tensors.params").read_bytes())
    np.testing.assert_array_equal(outputs["double0____topo-index:2____output-num:0"].numpy(), 2 * X)
    np.testing.assert_array_equal(outputs["double1____topo-index:3____output-num:0"].numpy(), 4 * X)
    table = capsys.readouterr().out
    assert table.splitlines()[0].split()[:3] == ["Node", "Name", "Ops"] and "Total_time" in table.splitlines()[-1]
    module.exit()
    assert not folder.exists()


def test_values_inside(module: GraphModuleDebug) -> None:
    out = empty((3, 64))
    assert module.debug_get_output("double0", out) is out
    np.testing.assert_array_equal(out.numpy(), 2 * X)
    np.testing.assert_array_equal(module.debug_get_output(3).numpy(), 4 * X)
    np.testing.assert_array_equal(module.execute_next_node_get_output(3, 0).numpy(), 4 * X)
    with pytest.raises(AttributeError, match="'nobody'"):
        module.debug_get_output("nobody", out)
    with pytest.raises(IndexError):
        module.debug_get_output(9, out)


def test_times_of_nodes(module: GraphModuleDebug) -> None:
    times = module.run_individual(number=1, repeat=3)
    assert [len(seconds) for seconds in times] == [3] * 5 and times[0] == [0.0] * 3 and min(times[4]) > 0
    assert len(module.run_individual_node(4, number=2, repeat=2).results) == 2
    report = module.profile(x=X)
    assert [call["Name"] for call in report.calls] == ["double", "double", "add"]
    assert "Sum" in str(report) and report.csv().startswith("Name,") and json.loads(report.json())["calls"]


def test_a_built_model_s_own_executor_can_be_debugged(tmp_path: Path) -> None:
    executable = chain(3, 2, constant=True)
    executor = executable["debug_create"]("default", cpu(0))
    module = GraphModuleDebug(executor, [cpu(0)], executable.get_graph_json(), str(tmp_path))
    module.set_input("x", X)
    np.testing.assert_array_equal(module.debug_get_output("add").numpy(), 4 * X + executable.constants[0])
    with pytest.raises(ValueError, match="not that of the executor"):
        GraphModuleDebug(executor, cpu(0), chain(3, 1).get_graph_json())
    with pytest.raises(TypeError):
        GraphModuleDebug("executor", cpu(0))
