"""Models for a batch of any size: built once, right at every size, without a compile after the build."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.driver.build.choose import Choice, make_task
from autosched.driver.build.dynamic import over_blocks
from autosched.driver.build.sized import SizedModel
from autosched.errors import ArtifactError, InvalidTypeError, OutOfMemoryError, ShapeError, UsageError
from autosched.ir import IRModule
from autosched.records import Found, Trust
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.transform.bind_symbolic import BindSymbolicVars
from autosched.runtime.dynamic import DynamicExecutable
from autosched.target import Target
from autosched.templates import default_config
from autosched.testing.tasks import record
from autosched.tir.expr import Var
from tests.driver.programs import matmul

OP, NN = relax.op, relax.op.nn
RNG = np.random.default_rng(0)


def weight(*shape: int) -> relax.Constant:
    return relax.const((RNG.standard_normal(shape) * 0.1).astype("float32"))


def model(shape: Any, body: Any, dtype: str = "float32") -> IRModule:
    """A module whose `main` is `body`, called with the builder and one input."""
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder, x))
        builder.emit_func_output(out)
    return builder.get()


def dense(builder: BlockBuilder, x: Any, n_in: int, n_out: int) -> Any:
    return builder.emit(OP.add(builder.emit(OP.matmul(x, weight(n_in, n_out))), weight(n_out)))


def mlp(builder: BlockBuilder, x: Any) -> Any:
    hidden = builder.emit(NN.relu(dense(builder, x, 50, 64)))
    return builder.emit(NN.softmax(dense(builder, hidden, 64, 10), -1))


def n() -> Var:
    return Var("n", "int64")


@pytest.fixture(scope="module")
def module() -> IRModule:
    return model((n(), 50), mlp)


@pytest.fixture(scope="module")
def built(module: IRModule) -> DynamicExecutable:
    made = autosched.build(module)
    assert isinstance(made, DynamicExecutable)
    return made


def static(module: IRModule, size: int) -> Any:
    return autosched.build(BindSymbolicVars({"n": size})(module))


def truth(module: IRModule, x: np.ndarray, **sizes: int) -> Any:
    return relax.evaluate(BindSymbolicVars(sizes)(module), [x.astype("float64")], dtype="float64")


def run_at(built: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.standard_normal(shape).astype("float32")
    return x, built(x).numpy()


def test_every_size_equals_the_static_build_and_compiles_nothing(built: Any, module: IRModule) -> None:
    expected = {size: static(module, size) for size in (1, 7, 130)}
    before = counters.COMPILES.value
    for size in (*expected, *RNG.integers(1, 300, 40).tolist(), *expected):
        x, y = run_at(built, (size, 50))
        assert y.shape == (size, 10)
        if size in expected:
            np.testing.assert_allclose(y, expected[size](x).numpy(), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-5)
    assert counters.COMPILES.value == before


def test_smaller_blocks_read_the_same_weights(built: DynamicExecutable) -> None:
    product = next(blocks for blocks in built.forms.values() if len(blocks) > 2)
    kernels = [built.kernels[key] for key in product]
    assert [k.block[0] for k in kernels] == sorted((k.block[0] for k in kernels), reverse=True)
    for kernel in kernels[1:]:
        config = autosched.space.Config.from_json(kernel.config)
        assert config["rows"] <= kernel.block[0] and not config["prefetch"]
        assert kernel.args[1] == kernels[0].args[1]


def test_rows_of_a_large_batch_are_those_of_small_ones(built: Any) -> None:
    x, y = run_at(built, (201, 50))
    for part in (slice(0, 1), slice(100, 103), slice(190, 201)):
        np.testing.assert_allclose(built(x[part]).numpy(), y[part], rtol=2e-5, atol=1e-6)


def test_a_few_rows_more_are_computed_and_not_given(built: DynamicExecutable) -> None:
    small = [n for n in range(1, 20) if built.rounded({"n": n}) != {"n": n}]
    assert small, "no size is rounded: this test sees nothing"
    for n in (small[0], small[-1], small[0]):  # what the rows behind held before does not matter
        x, y = run_at(built, (n, 50))
        assert y.shape == (n, 10)
        many = np.concatenate([x] * 8)
        np.testing.assert_allclose(built(many).numpy(), np.concatenate([y] * 8), rtol=1e-5, atol=1e-6)


def test_sizes_are_not_rounded_over_their_bound(module: IRModule) -> None:
    bounded = autosched.build(module, shapes={"x": (range(1, 8), 50)})
    assert isinstance(bounded, DynamicExecutable)
    assert all(bounded.rounded({"n": n})["n"] <= 7 for n in range(1, 8))


def test_what_mixes_rows_is_not_rounded() -> None:
    turned = autosched.build(model((n(), 6), lambda b, x: b.emit(OP.permute_dims(dense(b, x, 6, 5), (1, 0)))))
    assert isinstance(turned, DynamicExecutable)
    assert all(turned.rounded({"n": n}) == {"n": n} for n in range(20))


def test_memory_is_that_of_the_largest_size(built: DynamicExecutable) -> None:
    executor = built.create_executor()
    number = built.form.inputs[0]

    def run(size: int) -> tuple[int, int]:
        executor.run({number: np.ones((size, 50), "float32")})
        return executor._memory._arena.nbytes, len(executor._programs)

    largest, _ = run(500)
    assert all(run(size)[0] == largest for size in range(1, 60))
    assert run(60)[1] <= 32
    assert run(900)[0] > largest
    assert len(executor._programs) == 1, "programs with the smaller arena are gone"


def test_results_stay_what_they_are(built: Any) -> None:
    x, first = run_at(built, (9, 50))
    kept = built(x)
    run_at(built, (9, 50))
    np.testing.assert_array_equal(kept.numpy(), first)


def test_shapes_that_do_not_fit_are_refused(built: Any) -> None:
    with pytest.raises(ShapeError, match=r"'x' has shape \[3, 51\] instead of \[n, 50\]"):
        built(np.ones((3, 51), "float32"))
    with pytest.raises(InvalidTypeError, match="dtype float64 instead of float32"):
        built(np.ones((3, 50)))
    with pytest.raises(InvalidTypeError, match="'x' is missing"):
        built()


def test_an_empty_batch_gives_an_empty_result(built: Any) -> None:
    for dtype in ("float64", "float32"):
        if dtype == "float64":
            with pytest.raises(InvalidTypeError, match="dtype float64 instead of float32"):
                built(np.ones((0, 50)))
        else:
            found = built(np.ones((0, 50), dtype)).numpy()
            assert (found.shape, found.dtype) == ((0, 10), np.dtype(dtype))
    with pytest.raises(ShapeError, match=r"'x' has shape \[0, 51\] instead of \[n, 50\]"):
        built(np.ones((0, 51), "float32"))
    assert run_at(built, (3, 50))[1].shape == (3, 10)


def test_a_size_of_0_is_refused_where_results_have_elements() -> None:
    summed = autosched.build(model((n(), 50), lambda builder, x: builder.emit(OP.sum(x, [0]))))
    with pytest.raises(ShapeError, match="'n' is 0, and the model is built for at least 1"):
        summed(np.ones((0, 50), "float32"))
    with pytest.raises(ShapeError, match="'n' is 0, and the model is built for 2 to 64"):
        autosched.build(model((n(), 50), mlp), shapes={"x": (range(2, 65), 50)})(np.ones((0, 50), "float32"))


def test_bounds_in_which_no_size_fits_are_refused() -> None:
    def window(builder: Any, x: Any) -> Any:
        return builder.emit(NN.conv2d(x, weight(4, 3, 7, 7)))

    module = model((n(), 3, Var("h", "int64"), 9), window)
    with pytest.raises(ShapeError, match="no size fits: .*'h' .*at least 7, and it is 1 to 6"):
        autosched.build(module, shapes={"x": (range(1, 3), 3, range(1, 7), 9)})
    assert autosched.build(module, shapes={"x": (range(1, 3), 3, range(1, 8), 9)})


def test_bounds_are_checked(module: IRModule) -> None:
    bounded = autosched.build(module, shapes={"x": (range(2, 65), 50)})
    assert run_at(bounded, (64, 50))[1].shape == (64, 10)
    for size in (1, 65):
        with pytest.raises(ShapeError, match=f"'n' is {size}, and the model is built for 2 to 64"):
            bounded(np.ones((size, 50), "float32"))
    with pytest.raises(ShapeError, match="no size that a range can be given for"):
        autosched.build(module, shapes={"x": (8, range(1, 51))})
    with pytest.raises(UsageError, match="no input 'y'"):
        autosched.build(module, shapes={"y": (range(1, 9), 50)})


def test_a_saved_one_runs_without_the_compiler(built: DynamicExecutable, tmp_path: Path) -> None:
    x, y = run_at(built, (37, 50))
    built.save(tmp_path / "m.asx")
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys, numpy as np
from autosched.runtime.library import load
model = load({str(tmp_path / "m.asx")!r})
x = np.load({str(tmp_path / "x.npy")!r})
out = [model(x[:n]).numpy() for n in (37, 5, 1, 37)]
assert not [m for m in sys.modules if m.startswith(("numba", "autosched.codegen", "autosched.tir"))]
np.save({str(tmp_path / "y.npy")!r}, out[-1])
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), y)


def test_it_is_built_again_from_its_artifact(built: DynamicExecutable) -> None:
    from autosched.driver.rebuild import rebuild

    again = rebuild(built.contents())
    x, y = run_at(built, (70, 50))
    np.testing.assert_array_equal(again(x).numpy(), y)  # type: ignore[operator]


def test_a_form_that_reads_what_nothing_has_written_is_refused(built: DynamicExecutable) -> None:
    contents = built.contents()
    graph = contents.info["form"]["graph"]
    nodes = [[*node[:2], node[3], node[2], *node[4:]] for node in graph["nodes"]]  # what was written is read
    info = {**contents.info, "form": {**contents.info["form"], "graph": {**graph, "nodes": nodes}}}
    with pytest.raises(ArtifactError, match="which nothing has written"):
        DynamicExecutable.from_contents(replace(contents, info=info))


def test_a_form_of_values_that_are_no_tensors_is_refused(built: DynamicExecutable) -> None:
    contents = built.contents()
    graph = contents.info["form"]["graph"]
    values = [[*value[:2], "", *value[3:]] for value in graph["values"]]
    info = {**contents.info, "form": {**contents.info["form"], "graph": {**graph, "values": values}}}
    with pytest.raises(ArtifactError, match="has dtype ''"):
        DynamicExecutable.from_contents(replace(contents, info=info))


def test_a_winner_of_one_size_leaves_open_sizes_their_own_default() -> None:
    """Blocks of all sizes have a default together, which no winner of one of the sizes was compared with."""
    task = make_task(matmul(128, 256, 64), Target("cpu"))
    default = default_config(task.func, task.target)
    winner, own = default.with_knobs(chunk=99), default.with_knobs(chunk=98)
    found = Found(winner, "a database", Trust.HERE, record=record(1, winner=True))
    choice = Choice("main", task, winner, found, False)
    assert over_blocks(choice, None) is choice and over_blocks(choice, default) is choice
    made = over_blocks(choice, own)
    assert (
        made.config == own
        and made.found.trust is Trust.DEFAULT
        and "over open sizes the default is" in made.found.reason
    )


def test_more_memory_than_there_is_is_said_with_the_operator() -> None:
    def outer(builder: BlockBuilder, x: Any) -> Any:
        return OP.matmul(x, relax.const(np.ones((1, 1 << 16), "float32")))

    made = autosched.build(model((n(), 1), outer), records=[], threads=1)
    assert isinstance(made, DynamicExecutable)
    assert made(np.ones((3, 1), "float32")).shape == (3, 1 << 16)  # type: ignore[union-attr]
    with pytest.raises(OutOfMemoryError, match=r"has \d+ \(in node 'gv', kernel 'matmul") as caught:
        made(np.ones((1 << 22, 1), "float32"))
    assert str(1 << 40) in str(caught.value) and isinstance(caught.value, MemoryError)


def test_two_outputs_views_and_a_value_written_over() -> None:
    def body(builder: BlockBuilder, x: Any) -> Any:
        a = builder.emit(OP.exp(builder.emit(OP.reshape(x, (n_, 24)))))
        b = builder.emit(OP.reshape(builder.emit(OP.sum(a, -1, keepdims=True)), (n_, 1)))
        return relax.Tuple((builder.emit(OP.divide(a, b)), b))

    n_ = n()
    built = autosched.build(model((n_, 4, 6), body))
    assert isinstance(built, DynamicExecutable)
    for size in (1, 6, 65):
        x = RNG.standard_normal((size, 4, 6)).astype("float32")
        a, b = built(x)
        e = np.exp(x.reshape(size, 24))
        np.testing.assert_allclose(b.numpy(), e.sum(-1, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(a.numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)


def encoder(builder: BlockBuilder, x: Any, batch: Var, tokens: int, width: int, heads: int) -> Any:
    """One layer of a BERT-like encoder."""

    def split(y: Any) -> Any:
        parts = builder.emit(OP.reshape(y, (batch, tokens, heads, width // heads)))
        return builder.emit(OP.permute_dims(parts, (0, 2, 1, 3)))

    def normed(y: Any) -> Any:
        return builder.emit(NN.layer_norm(y, weight(width), weight(width), axes=[-1]))

    q, k, v = (split(dense(builder, x, width, width)) for _ in range(3))
    scores = builder.emit(OP.matmul(q, builder.emit(OP.permute_dims(k, (0, 1, 3, 2)))))
    scaled = builder.emit(OP.multiply(scores, relax.const(np.float32((width // heads) ** -0.5))))
    mixed = builder.emit(OP.matmul(builder.emit(NN.softmax(scaled, -1)), v))
    joined = builder.emit(OP.reshape(builder.emit(OP.permute_dims(mixed, (0, 2, 1, 3))), (batch, tokens, width)))
    x = normed(builder.emit(OP.add(x, dense(builder, joined, width, width))))
    inner = builder.emit(NN.gelu(dense(builder, x, width, 2 * width)))
    return normed(builder.emit(OP.add(x, dense(builder, inner, 2 * width, width))))


def test_an_encoder_over_a_batch() -> None:
    batch = n()
    module = model((batch, 16, 32), lambda builder, x: encoder(builder, x, batch, 16, 32, 4))
    built = autosched.build(module)
    assert isinstance(built, DynamicExecutable), getattr(built, "reason", "")
    before = counters.COMPILES.value
    outputs = {size: run_at(built, (size, 16, 32)) for size in (1, 2, 5, 11)}
    assert counters.COMPILES.value == before
    for size, (x, y) in outputs.items():
        np.testing.assert_allclose(y, truth(module, x, n=size), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def over_tokens() -> tuple[IRModule, DynamicExecutable]:
    batch, tokens = n(), Var("s", "int64")
    module = model((batch, tokens, 32), lambda builder, x: encoder(builder, x, batch, tokens, 32, 4))
    built = autosched.build(module, shapes={"x": (range(1, 9), range(1, 513), 32)})
    assert isinstance(built, DynamicExecutable), getattr(built, "reason", "")
    return module, built


def test_an_encoder_over_batch_and_sequence(over_tokens: tuple[IRModule, DynamicExecutable]) -> None:
    module, built = over_tokens
    sizes = [(1, 1), (2, 7), (1, 64), (3, 33), (8, 2)]
    before = counters.COMPILES.value
    outputs = {
        size: run_at(built, (*size, 32)) for size in [*sizes, *((b, s) for b in (1, 4) for s in range(1, 80, 6))]
    }
    assert counters.COMPILES.value == before
    for batch, tokens in sizes:
        x, y = outputs[batch, tokens]
        np.testing.assert_allclose(y, truth(module, x, n=batch, s=tokens), rtol=1e-4, atol=1e-5)
    for (batch, _), (x, y) in outputs.items():  # images do not see each other
        np.testing.assert_allclose(built(x[batch - 1 :]).numpy(), y[batch - 1 :], rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="'s' is 513, and the model is built for 1 to 512"):
        built(np.ones((1, 513, 32), "float32"))


def test_memory_over_two_sizes_is_flat_after_the_largest(over_tokens: tuple[IRModule, DynamicExecutable]) -> None:
    executor = over_tokens[1].create_executor()
    number = over_tokens[1].form.inputs[0]
    kept = []
    for shape in [(4, 96), *((b, s) for b in (1, 3) for s in (1, 17, 50, 96))]:
        executor.run({number: np.ones((*shape, 32), "float32")})
        kept.append((executor._memory._arena.nbytes, executor._memory._scratch.nbytes))
    assert len(set(kept)) == 1


def test_a_saved_encoder_runs_every_size_without_the_compiler(
    over_tokens: tuple[IRModule, DynamicExecutable], tmp_path: Path
) -> None:
    built = over_tokens[1]
    x, y = run_at(built, (2, 37, 32))
    built.save(tmp_path / "m.asx")
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys, numpy as np
from autosched.errors import ShapeError
from autosched.runtime.library import load
model = load({str(tmp_path / "m.asx")!r})
x = np.load({str(tmp_path / "x.npy")!r})
for b, s in ((1, 1), (2, 5), (2, 37)):
    y = model(np.ascontiguousarray(x[:b, :s])).numpy()
assert not [m for m in sys.modules if m.startswith(("numba", "autosched.codegen", "autosched.tir"))]
np.save({str(tmp_path / "y.npy")!r}, y)
try:
    model(np.ones((9, 4, 32), "float32"))
except ShapeError as error:
    assert "'n' is 9, and the model is built for 1 to 8" in str(error)
else:
    raise SystemExit("a batch of 9 was taken")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), y)


def test_a_convolution_over_a_batch() -> None:
    def body(builder: BlockBuilder, x: Any) -> Any:
        y = builder.emit(NN.conv2d(x, weight(16, 3, 3, 3), padding=1))
        y = builder.emit(NN.relu(builder.emit(NN.conv2d(y, weight(16, 16, 3, 3), strides=2))))
        y = builder.emit(NN.max_pool2d(y, (2, 2), strides=(2, 2)))
        return dense(builder, builder.emit(OP.reshape(y, (batch, 16 * 9))), 16 * 9, 5)

    batch = n()
    module = model((batch, 3, 14, 14), body)
    built = autosched.build(module)
    assert isinstance(built, DynamicExecutable), getattr(built, "reason", "")
    for size in (1, 3, 20):
        x, y = run_at(built, (size, 3, 14, 14))
        np.testing.assert_allclose(y, truth(module, x, n=size), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("image", "filters", "attrs"),
    [
        ((3, 40, 40), (32, 3, 7, 7), {"strides": 2, "padding": 3}),
        ((32, 32, 32), (3, 32, 3, 3), {"padding": 1}),
        ((16, 14, 14), (32, 4, 3, 3), {"padding": 1, "groups": 4}),
    ],
    ids=["first layer", "few channels", "groups"],
)
def test_convolutions_of_other_templates_over_a_batch(
    image: tuple[int, ...], filters: tuple[int, ...], attrs: dict[str, int]
) -> None:
    module = model((n(), *image), lambda builder, x: builder.emit(NN.conv2d(x, weight(*filters), **attrs)))
    made = autosched.build(module)
    assert isinstance(made, DynamicExecutable)
    for size in (1, 2, 5):
        x, found = run_at(made, (size, *image))
        np.testing.assert_allclose(found, truth(module, x, n=size), rtol=1e-4, atol=1e-4)


def test_what_needs_the_whole_batch_is_compiled_over_symbols() -> None:
    def body(builder: BlockBuilder, x: Any) -> Any:
        total = builder.emit(OP.sum(builder.emit(OP.exp(x)), 0))
        return relax.Tuple((total, builder.emit(OP.permute_dims(x, (1, 0)))))

    built = autosched.build(model((n(), 6), body))
    assert isinstance(built, DynamicExecutable), getattr(built, "reason", "")
    before = counters.COMPILES.value
    for size in (1, 3, 31, 64, 200):
        x = RNG.standard_normal((size, 6)).astype("float32")
        total, turned = built(x)
        np.testing.assert_allclose(total.numpy(), np.exp(x).sum(0), rtol=1e-5)
        np.testing.assert_array_equal(turned.numpy(), x.T)
    assert counters.COMPILES.value == before
    rows = [row for row in built.manifest["report"] if row["template"] == "sized"]
    assert any("reduces over the batch" in row["reason"] for row in rows)


def test_kernels_over_symbols_are_not_for_sizes_of_zero() -> None:
    module = model((n(), 6), lambda b, x: b.emit(OP.permute_dims(x, (1, 0))))
    assert "'n' may be 0" in autosched.build(module, shapes={"x": (range(0, 5), 6)}).reason


@pytest.mark.parametrize("part", [lambda n: (0, n), lambda n: (n, 40 - n)], ids=["up to", "from"])
def test_a_product_of_a_slice_up_to_a_size_or_from_one(part: Any) -> None:
    size = n()
    builder, given = BlockBuilder(), relax.Var("given", relax.TensorStructInfo((size,), "bool"))
    x, w = relax.Var("x", relax.TensorStructInfo((40, 16), "float32")), weight(16, 32)
    with builder.function("main", [x, given]):
        with builder.dataflow():
            rows = builder.emit(OP.sized_slice(builder.emit(NN.relu(x)), relax.ShapeExpr(part(size)), axis=0))
            out = builder.emit_output(OP.matmul(rows, w))
        builder.emit_func_output(out)
    made = autosched.build(builder.get())
    assert isinstance(made, DynamicExecutable)
    data = RNG.standard_normal((40, 16)).astype("float32")
    for number in (1, 7, 8, 33, 39):
        begin, count = part(number)
        want = np.maximum(data[begin : begin + count], 0) @ w.data
        np.testing.assert_allclose(made(data, np.zeros(number, bool)).numpy(), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError):
        made(data, np.zeros(41, bool))


def test_means_over_a_batch_divide_by_its_size() -> None:
    module = model((n(), 6), lambda b, x: b.emit(OP.mean(x, axis=0)))
    built = autosched.build(module)
    assert isinstance(built, DynamicExecutable)
    for size in (1, 3, 80):
        x, y = run_at(built, (size, 6))
        np.testing.assert_allclose(y, x.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_what_has_no_loops_over_symbols_is_compiled_when_it_is_called() -> None:
    module = model((n(), 6), lambda b, x: b.emit(OP.repeat(x, 2, 0)))
    built = autosched.build(module)
    assert isinstance(built, SizedModel)
    assert "no kernel" in built.reason and built.manifest["compiled_when_called"] == built.reason
    for size in (3, 8):
        x, y = run_at(built, (size, 6))
        np.testing.assert_allclose(y, static(module, size)(x).numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="extent 7 where 6 is 6"):
        built(np.ones((3, 7), "float32"))


def test_bounds_are_saved_with_a_model_that_is_compiled_when_it_is_called(tmp_path: Path) -> None:
    module = model((n(), 6), lambda b, x: b.emit(OP.repeat(x, 2, 0)))
    built = autosched.build(module, shapes={"x": (range(2, 5), 6)})
    assert isinstance(built, SizedModel)
    built.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    x = RNG.standard_normal((4, 6)).astype("float32")
    np.testing.assert_array_equal(loaded(x).numpy(), x.repeat(2, 0))
    for size in (1, 5):
        with pytest.raises(ShapeError, match=f"'n' is {size}, and the model is built for 2 to 4"):
            loaded(np.ones((size, 6), "float32"))


SCRIPT = """
from tvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 6), "float32")) -> R.Tensor(("n", 6), "float32"):
        n = T.int64()
        y: R.Tensor((n, 6), "float32") = R.nn.softmax(x, axis=-1)
        return y
"""


def test_the_command_line_builds_and_runs_every_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from autosched.cli import main

    (tmp_path / "m.py").write_text(SCRIPT)
    assert main(["build", str(tmp_path / "m.py"), "--shapes", "x:1..8x6"]) == 0
    output = capsys.readouterr()
    assert "compiled once for every size of 'n' from 1 to 8" in output.out + output.err
    for size, code in ((3, 0), (9, 2)):
        np.savez(tmp_path / "in.npz", x=np.ones((size, 6), "float32"))
        args = ["run", str(tmp_path / "m.asx"), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]
        assert main(args) == code
    np.testing.assert_allclose(next(iter(np.load(tmp_path / "out.npz").values())), np.full((3, 6), 1 / 6), rtol=1e-6)


def test_an_onnx_model_over_a_batch() -> None:
    onnx = pytest.importorskip("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(RNG.standard_normal((6, 4)).astype("float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", float32, ["batch", 6])],
        [helper.make_tensor_value_info("y", float32, ["batch", 4])],
        [weights],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    built = autosched.build(file, shapes={"x": (range(1, 33), 6)})
    assert isinstance(built, DynamicExecutable)
    before = counters.COMPILES.value
    for size in (1, 17, 32):
        assert run_at(built, (size, 6))[1].shape == (size, 4)
    assert counters.COMPILES.value == before
    with pytest.raises(ShapeError, match="'batch' is 33"):
        built(np.ones((33, 6), "float32"))
