"""TVM's graph JSON: read with a library of functions, written from a built model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched.errors import InvalidValueError, TVMError
from autosched.runtime import NOP, GraphModule, Module, cpu, cuda, load_param_dict, save_param_dict
from autosched.runtime.graph_json import parse_graph, read_graph
from autosched.runtime.graph_module import create, get_device
from tests.runtime.kernels import add_kernel, chain, double_kernel

SHAPE = [3, 64]


@pytest.fixture(scope="module")
def lib() -> Module:
    from autosched.codegen.native import native_object

    return Module({"add": add_kernel(), "double": double_kernel()}, native_object())


def op(name: str, function: str, inputs: list[list[int]], **more: str) -> dict[str, Any]:
    attrs = {"func_name": function, "num_inputs": str(len(inputs)), "num_outputs": "1", "flatten_data": "0", **more}
    return {"op": "tvm_op", "name": name, "inputs": inputs, "attrs": attrs}


def doubled_sum() -> dict[str, Any]:
    """x -> double -> + b, and the sum once more in another shape."""
    return {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "null", "name": "b", "inputs": []},
            op("double0", "double", [[0, 0, 0]], hash="abc"),
            op("add0", "add", [[2, 0, 0], [1, 0]]),
            op("flat", NOP, [[3, 0, 0]]),
        ],
        "arg_nodes": [0, 1],
        "heads": [[3, 0, 0], [4, 0, 0]],
        "node_row_ptr": [0, 1, 2, 3, 4, 5],
        "attrs": {
            "shape": ["list_shape", [SHAPE, SHAPE, SHAPE, SHAPE, [192]]],
            "dltype": ["list_str", ["float32"] * 5],
            "storage_id": ["list_int", [0, 1, 2, 3, 3]],
            "device_index": ["list_int", [1] * 5],
            "workspace": ["size_t", 3],
        },
    }


def test_a_graph_made_by_hand_runs(lib: Module) -> None:
    module = create(json.dumps({**doubled_sum(), "metadata": {"anything": 1}}), lib, cpu(0))
    x, b = np.random.default_rng(0).random((2, *SHAPE), dtype=np.float32)
    module.set_input("b", b)
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * x + b)
    np.testing.assert_array_equal(module.get_output(1).numpy(), (2 * x + b).reshape(-1))
    assert module.get_num_inputs() == 2 and module.get_num_outputs() == 2
    assert module.get_input_info()[0] == {"x": (3, 64), "b": (3, 64)}
    module.load_params(save_param_dict({"b": b, "stranger": b}))
    assert module.get_input_info()[0] == {"x": (3, 64)}


def test_one_storage_is_as_large_as_its_largest_entry(lib: Module) -> None:
    graph = doubled_sum()
    graph["attrs"]["storage_id"] = ["list_int", [0, 1, 2, 0, 0]]  # the result overwrites x
    module = create(json.dumps(graph), lib, cpu(0))
    x = np.ones(SHAPE, np.float32)
    module.run(x=x, b=x)
    assert module.get_output(0).numpy()[0, 0] == 3 and module.get_input("x").numpy()[0, 0] == 3


def test_data_may_be_handed_over_flat(lib: Module) -> None:
    graph = doubled_sum()
    graph["attrs"]["shape"][1] = [[192], [192], [192], [192], [192]]
    with pytest.raises(InvalidValueError, match="gives 'double'"):
        create(json.dumps(graph), lib, cpu(0))


def test_a_copy_between_devices_is_the_same_memory(lib: Module) -> None:
    graph = doubled_sum()
    graph["nodes"][4] = op("copy0", "__copy", [[3, 0, 0]])
    graph["attrs"]["shape"][1][4] = SHAPE
    graph["attrs"]["storage_id"][1][4] = 4
    module = create(json.dumps(graph), lib, cpu(0))
    x = np.ones(SHAPE, np.float32)
    module.run(x=x, b=x)
    assert module.get_output(1).numpy()[0, 0] == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda g: g.update(extra=1), "key 'extra'"),
        (lambda g: g.pop("heads"), "'heads' is missing"),
        (lambda g: g["nodes"][2].update(color="red"), "key 'color'"),
        (lambda g: g["nodes"][2]["attrs"].pop("flatten_data"), "lacks attribute 'flatten_data'"),
        (lambda g: g["nodes"][2]["attrs"].update(func_name="triple"), "function 'triple', which the library lacks"),
        (lambda g: g["nodes"][2]["attrs"].update(num_inputs="2"), "attributes say others"),
        (lambda g: g["nodes"][2].update(op="conv"), "has op 'conv'"),
        (lambda g: g["nodes"][2].update(inputs=[[4, 0, 0]]), "comes later"),
        (lambda g: g["attrs"].pop("storage_id"), "'storage_id' is missing"),
        (lambda g: g["attrs"].update(notes=["list_str", ["a"]]), "cannot be skipped"),
        (lambda g: g["attrs"]["shape"][1].pop(), "5|4 entries"),
        (lambda g: g["attrs"]["dltype"][1].__setitem__(0, "float33"), "unknown dtype"),
        (lambda g: g["attrs"]["dltype"][1].__setitem__(2, "float64"), "which is float32"),
        (lambda g: g["attrs"]["storage_id"][1].__setitem__(4, 9), "does not share"),
        (lambda g: g["attrs"]["device_index"][1].__setitem__(4, 2), "several devices"),
        (lambda g: g["arg_nodes"].append(2), "no input"),
        (lambda g: g.update(node_row_ptr=[0, 1]), "one more than nodes"),
    ],
)
def test_a_wrong_graph_is_refused(lib: Module, change: Callable[[dict[str, Any]], object], problem: str) -> None:
    graph = doubled_sum()
    change(graph)
    with pytest.raises(InvalidValueError, match=problem) as caught:
        create(json.dumps(graph), lib, cpu(0))
    assert isinstance(caught.value, TVMError)


def test_what_is_no_graph_is_refused(lib: Module) -> None:
    with pytest.raises(AssertionError, match="JSON text"):
        create(doubled_sum(), lib, cpu(0))  # type: ignore[arg-type]
    for text in ("{", "[1]", "3", '{"nodes": 3}'):
        with pytest.raises(InvalidValueError, match="graph JSON"):
            parse_graph(text)
    with pytest.raises(TypeError, match="functions of a Module"):
        read_graph(json.dumps(doubled_sum()), "lib")  # type: ignore[arg-type]


def test_devices() -> None:
    assert get_device(None, cpu(1)) == ([cpu(1)], 0, [1, 1])
    assert get_device(None, (cuda(1), cpu(0))) == ([cuda(1), cpu(0)], 0, [2, 1, 1, 0])
    for wrong in ("cpu", 3, [cpu(), "cpu"], None):
        with pytest.raises(ValueError, match="expected a device"):
            get_device(None, wrong)


def test_a_built_model_is_written_and_read_again() -> None:
    executable = chain(3, 4, constant=True)
    text = executable.get_graph_json()
    parsed = parse_graph(text)
    assert [node.name for node in parsed.nodes[:2]] == ["x", "bias"]
    assert parsed.storage_ids[2] == parsed.storage_ids[4]  # two places in the arena take turns
    module = create(text, executable.get_lib(), cpu())
    module.load_params(save_param_dict(executable.get_params()))
    x = np.random.default_rng(0).random((3, 64), dtype=np.float32)
    module.run(x=x)
    expected = GraphModule(executable)
    expected.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected.get_output(0).numpy())


def test_a_build_can_be_unpacked_as_old_scripts_do() -> None:
    executable = chain(3, 1, constant=True)
    with pytest.warns(DeprecationWarning):
        text, lib, params = executable
    assert json.loads(text)["arg_nodes"] == [0, 1] and lib.implements_function("double") and list(params) == ["bias"]
    assert load_param_dict(save_param_dict(params)).keys() == {"bias"}
    assert executable.get_devices() == [] and executable.get_executor_config() == text
