"""The graph level's options: what they do to a model, and what records say of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.cli import main
from autosched.driver import build_report, load_model
from autosched.driver.build.graph import prepare
from autosched.driver.build.graph_options import GRAPH, VERSION, GraphOptions, choose_graph, graph_space, graph_task
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.settings import resolve_records
from autosched.driver.tasks import extract_tasks
from autosched.ir import IRModule
from autosched.records import make_record, open_store
from autosched.records.record import current_versions
from autosched.relax import op
from autosched.relax.expr import Call
from autosched.runtime import GraphModule
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from tests.frontend.onnx_models import make, node

CPU = Target("cpu")
THREADS = 2
VERSIONS = {**current_versions(), "template": VERSION}


def model(seed: int = 0, channels: int = 32) -> IRModule:
    """A residual block: relu(conv(relu(conv(x))) + x)."""
    rng = np.random.default_rng(seed)
    weights = [relax.const(rng.standard_normal((channels, channels, 3, 3)).astype("float32") * 0.05) for _ in range(2)]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, channels, 12, 12), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.nn.relu(op.nn.conv2d(x, weights[0], padding=1)))
            out = builder.emit_output(op.nn.relu(op.add(op.nn.conv2d(a, weights[1], padding=1), x)))
        builder.emit_func_output(out)
    return builder.get()


def attention() -> IRModule:
    """softmax(q kᵀ) v of given q, k and v."""
    builder = relax.BlockBuilder()
    q, k, v = (relax.Var(name, relax.TensorStructInfo((2, 8, 16), "float32")) for name in "qkv")
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            scores = builder.emit(op.nn.softmax(op.matmul(q, op.permute_dims(k, (0, 2, 1)))))
            out = builder.emit_output(op.matmul(scores, v))
        builder.emit_func_output(out)
    return builder.get()


def bottleneck() -> IRModule:
    """A 1x1 convolution to 96 channels, relu6, a depthwise convolution, relu6."""
    rng = np.random.default_rng(0)
    expand, window = (relax.const(rng.standard_normal(s).astype("float32")) for s in ((96, 16, 1, 1), (96, 1, 3, 3)))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 16, 14, 14), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.clip(op.nn.conv2d(x, expand), 0, 6))
            out = builder.emit_output(op.clip(op.nn.conv2d(a, window, padding=1, groups=96), 0, 6))
        builder.emit_func_output(out)
    return builder.get()


def kernels(module: IRModule, options: GraphOptions) -> list[str]:
    """The kernels that `main` calls, in order."""
    calls = [b.value for b in prepare(module, CPU, {}, None, options)["main"].bindings()]
    return [c.args[0].name for c in calls if isinstance(c, Call) and c.op_name == "relax.call_tir"]


def record(path: Path, config: Config, threads: int = THREADS, module: IRModule | None = None) -> Path:
    """A database in which a configuration of the graph has won."""
    measured = Measurement(Status.OK, (1e-3,) * 3, "untuned build", how={"cache": "cold"})
    task = graph_task(module or model(), CPU, threads)
    with open_store(path) as store:
        store.add([make_record(task, Trial(config, measured), session="s", is_winner=True, versions=VERSIONS)])
    return path


def built(path: Path | None, threads: int = THREADS) -> Any:
    return autosched.build(model(), CPU, records=[] if path is None else [path], threads=threads)


def run(executable: Any) -> np.ndarray:
    """What it computes of seeded inputs."""
    module = GraphModule(executable)
    module.set_input("x", np.random.default_rng(1).standard_normal((1, 32, 12, 12)).astype("float32"))
    module.run()
    return module.get_output(0).numpy()


def test_each_option_changes_the_kernels() -> None:
    usual = kernels(model(), GraphOptions())
    assert not any("layout" in name for name in kernels(model(), GraphOptions(blocks="none")))
    assert usual != kernels(model(), GraphOptions(blocks="none"))
    apart = kernels(model(), GraphOptions(blocks="none", fuse_sums=False))
    assert len(apart) == len(kernels(model(), GraphOptions(blocks="none"))) + 1
    joined, alone = (kernels(bottleneck(), GraphOptions(join_convolutions=how)) for how in ("all", "none"))
    assert len(joined) == len(alone) - 1
    assert len(kernels(attention(), GraphOptions())) < len(kernels(attention(), GraphOptions(fuse_attention=False)))


def test_the_defaults_are_the_space_s_default_and_every_point_is_an_option() -> None:
    space = graph_space(CPU)
    assert space is not None and space.default == GraphOptions().config
    assert all(GraphOptions.of(config).config == config for config in space)
    assert graph_space(Target("cuda -arch=sm_80")) is None


def test_a_model_s_task_is_its_form_and_not_its_weights() -> None:
    assert graph_task(model(0), CPU, 1).key == graph_task(model(1), CPU, 1).key
    assert graph_task(model(), CPU, 1).key != graph_task(model(channels=48), CPU, 1).key
    assert graph_task(model(), CPU, 1).workload.op == GRAPH


def test_a_build_uses_the_winner_and_says_so(tmp_path: Path) -> None:
    config = GraphOptions(blocks="none", fuse_sums=False).config
    path = record(tmp_path / "r.db", config)
    executable, usual = built(path), built(None)
    assert "graph" not in usual.manifest and build_report(usual).graph_text == ""
    text = build_report(executable).graph_text
    assert str(config) in text and "r.db" in text and "verified here" in text
    assert len(executable.graph.nodes) != len(usual.graph.nodes)
    np.testing.assert_allclose(run(executable), run(usual), rtol=1e-4, atol=1e-4)
    layouts = TunedLayouts(resolve_records([path]), CPU, THREADS)
    named = [task.name for task in extract_tasks(model(), CPU, threads=THREADS, layouts=layouts)]
    assert set(named) <= set(executable.kernels)  # what is tuned is what is built


def test_other_threads_and_what_is_no_configuration_are_not_used(tmp_path: Path) -> None:
    path = record(tmp_path / "r.db", GraphOptions(blocks="none").config)
    choice = choose_graph(model(), CPU, resolve_records([path]), 1)
    assert (
        choice is not None and choice.options == GraphOptions() and "tuned with 2 threads only" in choice.found.reason
    )
    wrong = record(tmp_path / "w.db", Config(GRAPH, {**GraphOptions().config.knobs, "blocks": "seven"}))
    choice = choose_graph(model(), CPU, resolve_records([wrong]), THREADS)
    assert choice is not None and choice.options == GraphOptions() and "invalid record" in choice.found.reason
    other = record(tmp_path / "o.db", GraphOptions(blocks="none").config, module=model(channels=48))
    choice = choose_graph(model(), CPU, resolve_records([other]), THREADS)
    assert choice is not None and choice.options == GraphOptions() and choice.found.reason == "no record"


def test_every_combination_computes_the_same(tmp_path: Path) -> None:
    usual = run(built(None))
    for i, options in enumerate((GraphOptions(blocks="vector"), GraphOptions(blocks="two vectors", change_percent=25))):
        made = built(record(tmp_path / f"{i}.db", dataclasses.replace(options, fuse_sums=bool(i)).config))
        np.testing.assert_allclose(run(made), usual, rtol=1e-4, atol=1e-4)


def test_the_commands_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = np.zeros((32, 32, 3, 3), "float32")
    graph = node("Conv", "x w", "y", pads=[1, 1, 1, 1])
    file = tmp_path / "m.onnx"
    file.write_bytes(make([graph], {"x": (1, 32, 12, 12)}, ["y"], {"w": weight}).SerializeToString())
    path = record(tmp_path / "r.db", GraphOptions(blocks="none").config, module=load_model(file))
    common = ["--db", str(path), "--threads", str(THREADS)]
    assert main(["build", str(file), "-o", str(tmp_path / "m.asx"), "-v", *common]) == 0
    assert "graph: blocks=none" in capsys.readouterr().err
    assert main(["logs", "explain", str(file), *common]) == 0
    assert "blocks=none" in capsys.readouterr().out
    lock = tmp_path / "m.lock"
    assert main(["logs", "lock", str(file), "-o", str(lock), *common]) == 0
    locked = ["build", str(file), "-o", str(tmp_path / "n.asx"), "-v", "--locked", str(lock)]
    assert main([*locked, "--threads", str(THREADS)]) == 0
    assert "graph: blocks=none" in capsys.readouterr().err
