"""Models whose branches run side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched import relax
from autosched.driver.build.graph_options import VERSION, GraphOptions, graph_task
from autosched.ir import IRModule
from autosched.records import make_record, open_store
from autosched.records.record import current_versions
from autosched.relax import op
from autosched.runtime import GraphExecutor, check_graph
from autosched.runtime.description import facts
from autosched.runtime.graph import sections_of
from autosched.target import Target
from autosched.task import Measurement, Status, Trial

CPU = Target("cpu")


def inception(channels: int = 32, rounds: int = 2) -> IRModule:
    """Modules of three branches over one image; their results lie side by side."""
    rng = np.random.default_rng(0)

    def conv(x: Any, out: int, size: int) -> Any:
        given = x.struct_info.static_shape[1]
        weight = relax.const((rng.standard_normal((out, given, size, size)) * 0.1).astype("float32"))
        return builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, weight, padding=size // 2))))

    builder = relax.BlockBuilder()
    image = x = relax.Var("x", relax.TensorStructInfo((1, channels, 14, 14), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            for _ in range(rounds):
                pooled = builder.emit(op.nn.max_pool2d(image, (3, 3), padding=(1, 1)))
                parts = conv(conv(image, 16, 1), 32, 3), conv(conv(image, 16, 1), 32, 5), conv(pooled, 32, 1)
                image = builder.emit(op.concat(parts, axis=1))
            out = builder.emit_output(op.nn.relu(image))
        builder.emit_func_output(out)
    return builder.get()


def built(tmp_path: Path, module: IRModule, threads: int = 2) -> Any:
    """Built with the branches side by side, as records say."""
    config = GraphOptions(branches=True).config
    versions = {**current_versions(), "template": VERSION}
    measured = Measurement(Status.OK, (1e-3,) * 3, "untuned build", how={"cache": "cold"})
    with open_store(tmp_path / "r.db") as store:
        trial = Trial(config, measured)
        store.add(
            [make_record(graph_task(module, CPU, threads), trial, session="s", is_winner=True, versions=versions)]
        )
    return autosched.build(module, CPU, records=[tmp_path / "r.db"], threads=threads)


def results(executable: Any, threads: int, times: int = 1) -> list[np.ndarray]:
    """What the last of so many runs gives for a seeded input; what a run before has left is no part of it."""
    executor = GraphExecutor(executable, threads=threads)
    info = executable.inputs[0]
    executor.set_input(0, np.random.default_rng(1).standard_normal(info.shape).astype("float32"))
    for _ in range(times):
        executor.run()
    return [executor.get_output(i).numpy().copy() for i in range(executor.get_num_outputs())]


def test_branches_give_what_one_after_the_other_gives(tmp_path: Path) -> None:
    module = inception()
    usual, executable = autosched.build(module, CPU, records=[], threads=2), built(tmp_path, module)
    assert not sections_of(usual.graph.nodes) and len(sections_of(executable.graph.nodes)) == 2
    expected = results(usual, 1)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(results(executable, threads, times=50), expected)


def test_a_model_for_one_thread_has_none(tmp_path: Path) -> None:
    assert not sections_of(built(tmp_path, inception(), threads=1).graph.nodes)


def test_an_artifact_keeps_its_branches(tmp_path: Path) -> None:
    executable = built(tmp_path, inception())
    executable.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    assert loaded.graph == executable.graph and facts(loaded)["calls_side_by_side"] == 12
    np.testing.assert_array_equal(results(loaded, 2), results(executable, 1))


def test_parts_of_a_graph_can_be_run_and_timed(tmp_path: Path) -> None:
    executable = built(tmp_path, inception())
    executor = GraphExecutor(executable, threads=2)
    seconds = executor.program.profile(3)
    assert all(s > 0 for s, node in zip(seconds, executable.graph.nodes, strict=True) if node.kernel != "__nop")
    expected = results(executable, 2)
    executor.set_input(0, np.random.default_rng(1).standard_normal(executable.inputs[0].shape).astype("float32"))
    for n in range(len(executable.graph.nodes)):
        executor.program.run_nodes(range(n, n + 1))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected[0])


def test_nothing_is_written_over_what_another_branch_reads(tmp_path: Path) -> None:
    """An element-wise kernel, the last of the section, could write over its input, as nobody reads it later."""
    rng = np.random.default_rng(0)
    weights = [relax.const(rng.standard_normal((256, 256)).astype("float32") / 16) for _ in range(3)]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((256, 256), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.matmul(x, weights[0]))
            one, two = (builder.emit(op.matmul(a, weight)) for weight in weights[1:])
            gate = builder.emit(op.sigmoid(a))
            outputs = [builder.emit_output(op.matmul(gate, product)) for product in (one, two)]
        builder.emit_func_output(relax.Tuple(tuple(outputs)))
    module = builder.get()
    executable = built(tmp_path, module)
    assert sections_of(executable.graph.nodes)
    check_graph(executable.graph, executable.kernels, executable.constants)
    np.testing.assert_array_equal(
        results(executable, 2, times=50), results(autosched.build(module, CPU, records=[], threads=2), 1)
    )
