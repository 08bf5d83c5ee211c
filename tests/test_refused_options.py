"""Options that would change a result are honoured, or refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relay, te, tir, topi
from autosched.contrib import download, graph_executor, utils
from autosched.ir import IRModule
from autosched.meta_schedule import TuneContext, tune_tir
from autosched.target import Target
from autosched.tir.arith import Analyzer
from tests.tir.programs import matmul


def run(result: object, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """A relay expression over variables of these names, built and run."""
    variables = relay.analysis.free_vars(result)
    module = IRModule.from_expr(relay.Function(variables, result))
    executor = graph_executor.GraphModule(relay.build(module, "llvm")["default"](autosched.cpu()))
    executor.set_input(**inputs)
    executor.run()
    out: np.ndarray = executor.get_output(0).numpy()
    return out


X = relay.var("x", shape=(1, 3, 8))
W = relay.var("w", shape=(4, 3, 3))


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: relay.nn.conv1d(X, W, data_layout="NCX"), "layout"),
        (lambda: relay.nn.conv1d(X, W, out_layout="NXC"), "layout"),
        (lambda: relay.nn.conv1d(X, W, channels=5), "channels"),
        (lambda: relay.nn.conv1d(X, W, kernel_size=2), "kernel_size"),
        (lambda: relay.nn.max_pool1d(X, 2, layout="NWC"), "layout"),
        (lambda: relay.nn.global_avg_pool2d(relay.var("y", shape=(1, 2, 4, 4)), out_layout="NHWC"), "out_layout"),
        (lambda: relay.nn.matmul(relay.var("a", shape=(2, 3)), relay.var("b", shape=(3, 4)), units=5), "units"),
        (lambda: relay.nn.dropout(X, 1.5), "rate"),
        (lambda: relay.argsort(X, valid_count=X), "valid_count"),
        (lambda: relay.image.resize2d(relay.var("i", shape=(1, 1, 4, 4)), (8, 8), method="lanczos"), "lanczos"),
        (lambda: relay.Function([X], X, type_params=[1]), "type_params"),
        (lambda: relay.build(IRModule(), "llvm", executor="aot"), "executor"),
        (lambda: relay.build(IRModule(), "llvm", mod_name="other"), "mod_name"),
        (lambda: autosched.build(matmul(), target="llvm", runtime="crt"), "runtime"),
        (lambda: autosched.relax.build(IRModule(), "llvm", params={"w": 1}), "params"),
        (lambda: tune_tir(matmul(), "llvm -num-cores=1", "w", 1, measure_callbacks=[print]), "measure_callbacks"),
        (lambda: tune_tir(matmul(), "llvm -num-cores=1", "w", 1, post_optimization=True), "post_optimization"),
        (lambda: te.scan(1, 2, 3, attrs={"a": 1}), "attrs"),
        (lambda: tir.decl_buffer((4,), data=tir.Var("d", "handle")), "data"),
        (lambda: tir.decl_buffer((4,)).access_ptr("r", content_lanes=4), "content_lanes"),
        (lambda: download.download("http://x", "y", size_compare=True), "size_compare"),
        (lambda: topi.nn.batch_matmul(*(te.placeholder((2, 3, 4)) for _ in "ab"), oshape=(1, 1, 1)), "oshape"),
    ],
)
def test_refused_by_name(make, option: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((ValueError, TypeError), match=option):
        make()


def test_positions_by_batch() -> None:
    rng = np.random.default_rng(0)
    data, at = rng.random((2, 3, 4), dtype=np.float32), rng.integers(0, 3, (1, 2, 5)).astype(np.int64)
    found = relay.gather_nd(
        relay.var("x", shape=(2, 3, 4)), relay.var("i", shape=(1, 2, 5), dtype="int64"), batch_dims=1
    )
    expected = np.stack([data[b][at[0, b]] for b in range(2)])
    np.testing.assert_array_equal(run(found, {"x": data, "i": at}), expected)


def test_a_resized_image_of_another_dtype() -> None:
    image = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    made = relay.image.resize2d(
        relay.var("x", shape=(1, 1, 2, 2)), (4, 4), method="nearest_neighbor", out_dtype="int32"
    )
    assert run(made, {"x": image}).dtype == np.int32


@pytest.mark.parametrize("alpha", [-0.5, -0.75])
def test_a_cubic_image_by_the_weights_that_are_asked_for(alpha: float) -> None:
    """PyTorch's weights are those of -0.75; relay's default is -0.5."""
    import torch

    image = np.random.default_rng(0).random((1, 2, 5, 6), dtype=np.float32)
    options = {} if alpha == -0.5 else {"cubic_alpha": alpha}
    made = relay.image.resize2d(relay.var("x", shape=image.shape), (9, 8), method="cubic", **options)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(image), (9, 8), mode="bicubic").numpy()
    assert np.allclose(run(made, {"x": image}), wanted, atol=1e-5) == (alpha == -0.75)


def test_sums_in_a_wider_dtype() -> None:
    a, b = te.placeholder((1, 2, 4, 4), "int8", "a"), te.placeholder((3, 2, 3, 3), "int8", "b")
    for c in (topi.nn.conv2d(a, b, out_dtype="int32"), topi.nn.group_conv2d_nchw(a, b, 1, 0, 1, 1, out_dtype="int32")):
        assert c.dtype == "int32"
        x, w = (np.full(t.shape, 100, np.int8) for t in ((a, b)))
        x, w = np.full((1, 2, 4, 4), 100, np.int8), np.full((3, 2, 3, 3), 100, np.int8)
        out = np.zeros((1, 3, 2, 2), np.int32)
        autosched.build(te.create_prim_func([a, b, c]), target="llvm")(x, w, out)
        assert (out == 18 * 10000).all()


def test_a_range_that_is_known_is_not_overwritten_in_silence() -> None:
    analyzer, i = Analyzer(), tir.Var("i", "int32")
    analyzer.bind(i, autosched.ir.Range(0, 4))
    with pytest.raises(ValueError, match="allow_override"):
        analyzer.bind(i, autosched.ir.Range(0, 8))
    assert analyzer.can_prove(i < 4)
    analyzer.bind(i, autosched.ir.Range(0, 8), allow_override=True)
    assert not analyzer.can_prove(i < 4)


def test_the_search_learns_from_results() -> None:
    class Result:
        run_secs, error_msg = (0.5,), None

    context = TuneContext(matmul(64, 64, 64), target=Target("llvm -num-cores=1"))
    context.pre_tuning(4, 2)
    candidates = context.generate_measure_candidates()
    assert candidates
    with pytest.raises(ValueError, match="1 results for 2"):
        context.notify_runner_results(candidates, [Result()])
    before = context._search.best_s if hasattr(context._search, "best_s") else None
    context.notify_runner_results(candidates, [Result(), Result()])
    assert before is None or context._search.best_s == 0.5
    asked = [c.config.key for c in candidates if c.config is not None]
    again = context.generate_measure_candidates() or []
    assert not {c.config.key for c in again if c.config is not None} & set(asked)


def test_a_folder_that_stays(tmp_path: Path) -> None:
    folder = utils.TempDirectory(keep_for_debug=True)
    path = Path(folder.path)
    folder.remove()
    del folder
    assert path.is_dir()
    path.rmdir()
