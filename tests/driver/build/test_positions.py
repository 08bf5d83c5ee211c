"""Positions that come at run time and are out of range: what every executor and frontend says."""

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.driver.vm.build_vm import build_vm
from autosched.errors import ImportModelError, IndexOutOfRangeError, UsageError, WrongInputError
from autosched.relax import op
from autosched.runtime import GraphExecutor
from tests.driver.programs import one_call

BAD = (7, 8, -8, 10**12, -(2**63))


def embedding(mode="raise", rows=7, width=40, n=5, axis=0):
    """take of `n` rows of a table: x and i."""
    return one_call(lambda x, i: op.take(x, i, axis, mode), ((rows, width), "float32"), ((n,), "int64"))


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).random((7, 40), "float32")


@pytest.fixture(scope="module")
def executable():
    return autosched.build(embedding(), threads=1)


@pytest.mark.parametrize("bad", BAD)
def test_a_position_out_of_range_is_an_error_that_names_it(executable, table, bad):
    positions = np.array([0, -7, 6, bad, 2])
    with pytest.raises(IndexError, match=rf"take along axis 0: index {bad} is out of range \[-7, 7\)"):
        executable(table, positions)
    positions[3] = -1
    np.testing.assert_array_equal(executable(table, positions).numpy(), table[positions])  # the next run is fine


def test_every_executor_and_a_loaded_artifact_report_it(executable, table, tmp_path):
    positions = np.array([0, 1, 2, 7, 3])
    executable.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    module = autosched.runtime.GraphModule(executable)
    executor = GraphExecutor(executable, threads=1)
    vm = relax.VirtualMachine(relax.build(embedding(), "llvm"), autosched.cpu())
    relay_vm = autosched.runtime.vm.VirtualMachine(build_vm(embedding()), autosched.cpu())
    runs = [
        lambda: loaded(table, positions),
        lambda: module.run(x0=table, x1=positions),
        lambda: (executor.set_input("x0", table), executor.set_input("x1", positions), executor.run()),
        lambda: (executor.set_input("x1", positions), executor.profile(1)),
        lambda: vm["main"](autosched.nd.array(table), autosched.nd.array(positions)),
        lambda: relay_vm.run(table, positions),
    ]
    for run in runs:
        with pytest.raises(IndexError, match="index 7 is out of range"):
            run()


def test_a_function_of_a_module_reports_it(table):
    x, i = autosched.te.placeholder((7, 40), name="x"), autosched.te.placeholder((5,), "int64", name="i")
    module = autosched.build(autosched.te.create_prim_func([x, i, autosched.topi.take(x, i, 0)]))
    out = np.empty((5, 40), "float32")
    module(table, np.array([0, 1, 2, -7, 6]), out)
    np.testing.assert_array_equal(out, table[[0, 1, 2, -7, 6]])
    with pytest.raises(IndexError, match="index 70 is out"):
        module(table, np.array([0, 1, 2, 70, 6]), out)


@pytest.mark.parametrize(("lanes", "dtype"), [(1, "int64"), (3, "int32"), (16, "int64"), (37, "uint8"), (33, "int8")])
def test_positions_in_vectors(lanes, dtype):
    rng = np.random.default_rng(1)
    data = rng.random((4, lanes + 1), "float32")
    found = autosched.build(
        one_call(lambda x, i: op.gather_elements(x, i, axis=1), (data.shape, "float32"), ((4, lanes), dtype)), threads=1
    )
    positions = rng.integers(0, lanes + 1, (4, lanes)).astype(dtype)
    np.testing.assert_array_equal(found(data, positions).numpy(), np.take_along_axis(data, positions.astype(int), 1))
    for place in {(0, 0), (3, lanes - 1), (2, lanes // 2)}:
        wrong = positions.copy()
        wrong[place] = 99
        with pytest.raises(IndexError, match="index 99 is out of range"):
            found(data, wrong)


def test_gather_nd_and_scatter_report_positions():
    data, values = np.ones((4, 5), "float32"), np.ones((2, 5), "float32")
    nd = autosched.build(one_call(op.gather_nd, ((4, 5), "float32"), ((3, 2), "int64")), threads=1)
    with pytest.raises(IndexError, match="gather_nd along axis 1: index 5 is"):
        nd(data, np.array([[0, 0], [1, 5], [2, 2]]))
    scatter = autosched.build(
        one_call(op.scatter_elements, ((4, 5), "float32"), ((2, 5), "int64"), ((2, 5), "float32")), threads=1
    )
    with pytest.raises(IndexError, match="scatter along axis 0: index -5 is"):
        scatter(data, np.full((2, 5), -5), values)


def test_clip_takes_the_nearest_positions(table):
    found = autosched.build(embedding(), threads=1, indices="clip")
    positions = np.array([0, -7, 100, -100, -1])
    np.testing.assert_array_equal(found(table, positions).numpy(), table[[0, 0, 6, 0, 6]])
    vm = relax.VirtualMachine(relax.build(embedding(), "llvm", indices="clip"), autosched.cpu())
    got = vm["main"](autosched.nd.array(table), autosched.nd.array(positions))
    np.testing.assert_array_equal(got.numpy(), table[[0, 0, 6, 0, 6]])
    with pytest.raises(UsageError, match="indices 'ignore'"):
        autosched.build(embedding(), indices="ignore")


def test_modes_are_numpys(table):
    positions = np.array([0, -1, 9, -9, 3])
    for mode in ("clip", "wrap"):
        found = autosched.build(embedding(mode), threads=1)
        np.testing.assert_array_equal(found(table, positions).numpy(), np.take(table, positions, 0, mode=mode))
    with pytest.raises(ValueError, match="mode 'reflect'"):
        embedding("reflect")


def test_constants_out_of_range_are_refused_when_the_call_is_made():
    x = relax.Var("x", relax.TensorStructInfo((4, 3)))
    for positions in ([4], [-5]):
        with pytest.raises(IndexError, match=r"out of range \[-4, 4\)"):
            op.take(x, relax.const(np.array(positions)), axis=0)
    with pytest.raises(IndexError, match=r"index 3 is out of range \[-3, 3\)"):
        op.gather_nd(x, relax.const(np.array([[0, 3]])))
    with pytest.raises(ValueError, match="dimension of size 0"):
        op.take(
            relax.Var("x", relax.TensorStructInfo((0, 3))),
            relax.Var("i", relax.TensorStructInfo((2,), "int64")),
            axis=0,
        )


def onnx_gather(indices=None):
    """Gather, Add and MatMul; the positions are a constant where they are given."""
    onnx = pytest.importorskip("onnx")
    h, kinds = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    constants = [
        onnx.numpy_helper.from_array(rng.random(shape, "float32"), name)
        for name, shape in (("w", (10, 8)), ("b", (8,)), ("m", (8, 5)))
    ]
    inputs = [h.make_tensor_value_info("i", kinds.INT64, [4])]
    if indices is not None:
        constants.append(onnx.numpy_helper.from_array(np.array(indices), "i"))
        inputs = []
    nodes = [
        h.make_node("Gather", ["w", "i"], ["e"], name="tokens/embedding"),
        h.make_node("Add", ["e", "b"], ["y"], name="plus"),
        h.make_node("MatMul", ["y", "m"], ["z"], name="product"),
    ]
    graph = h.make_graph(nodes, "g", inputs, [h.make_tensor_value_info("z", kinds.FLOAT, [4, 5])], constants)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])


def test_the_error_names_the_models_node(tmp_path):
    from autosched.frontend.onnx import from_onnx

    executable = autosched.build(from_onnx(onnx_gather()), threads=1)
    with pytest.raises(IndexOutOfRangeError, match="index 10 .*tokens/embedding"):
        executable(np.array([1, 2, 3, 10]))
    executable.save(tmp_path / "m.asx")
    with pytest.raises(IndexOutOfRangeError, match="index -11 .*tokens/embedding"):
        autosched.load(tmp_path / "m.asx")(np.array([1, 2, 3, -11]))


def test_a_model_with_constants_out_of_range_is_refused():
    from autosched.frontend.onnx import from_onnx

    with pytest.raises(ImportModelError, match="index 10 is out of range .*tokens/embedding"):
        from_onnx(onnx_gather([1, 2, 3, 10]))


def test_torch_refuses_negative_positions():
    torch = pytest.importorskip("torch")
    from autosched.frontend.torch import from_exported_program

    program = torch.export.export(torch.nn.Embedding(10, 8), (torch.tensor([1, 2, 3]),))
    executable = autosched.build(from_exported_program(program, unwrap_unit_return_tuple=True), threads=1)
    with pytest.raises(IndexError, match=r"index -1 is out of range \[0, 10\) .*embedding"):
        executable(np.array([1, -1, 3]))


def test_torch_refuses_classes_that_there_are_not():
    torch = pytest.importorskip("torch")

    class Classes(torch.nn.Module):
        def forward(self, i):
            return torch.nn.functional.one_hot(i, 4)

    executable = autosched.build(torch.export.export(Classes(), (torch.tensor([0, 1]),)), threads=1)
    np.testing.assert_array_equal(executable(np.array([3, 0])).numpy(), np.eye(4)[[3, 0]])
    for bad in (4, -1):
        with pytest.raises(IndexError, match=rf"index {bad} is out of range \[0, 4\) .*one_hot"):
            executable(np.array([0, bad]))


def onnx_model(node, inputs, opset=20):
    """A model of one node; inputs are (name, dtype, shape)."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    given = [h.make_tensor_value_info(n, h.np_dtype_to_tensor_dtype(np.dtype(t)), s) for n, t, s in inputs]
    result = h.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)
    opsets = [h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1)]
    return h.make_model(h.make_graph([node], "g", given, [result]), opset_imports=opsets)


def test_an_operator_of_several_steps_is_named_as_the_models_node():
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], "turned", domain="com.microsoft")
    tables = [(name, "float32", [4, 4]) for name in "cs"]
    model = onnx_model(node, [("x", "float32", [1, 2, 3, 8]), ("p", "int64", [1, 3]), *tables])
    table = np.ones((4, 4), "float32")
    with pytest.raises(IndexError, match="index 7 .*'turned'"):
        autosched.build(model, threads=1)(np.ones((1, 2, 3, 8), "float32"), np.array([[0, 7, 1]]), table, table)


def test_index_vectors_of_batches():
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("GatherND", ["x", "i"], ["y"], "rows", batch_dims=1)
    model = onnx_model(node, [("x", "float32", [2, 7, 3]), ("i", "int64", [2, 4, 1])])
    x = np.random.default_rng(0).random((2, 7, 3), "float32")
    positions = np.array([[0, 6, -7, 1], [3, -1, 2, 5]])
    expected = np.take_along_axis(x, positions[..., None], axis=1)
    executable = autosched.build(model, threads=1)
    np.testing.assert_array_equal(executable(x, positions[..., None]).numpy(), expected)
    positions[1, 2] = 7
    with pytest.raises(IndexOutOfRangeError, match="index 7 .*'rows'"):
        executable(x, positions[..., None])
    clipped = autosched.build(model, threads=1, indices="clip")(x, positions[..., None]).numpy()
    np.testing.assert_array_equal(clipped[1, 2], x[1, 6])
    node.attribute[0].i = 3
    with pytest.raises(ImportModelError, match="batch_dims 3"):
        autosched.build(onnx_model(node, [("x", "float32", [2, 7, 3]), ("i", "int64", [2, 4, 1])]))


@pytest.mark.parametrize("samples", [0, 2], ids=["by NumPy", "by kernels"])
@pytest.mark.parametrize("bad", [1, -1, 2**62, -(2**63)])
def test_images_of_regions_are_in_range(bad, samples):
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], "regions", sampling_ratio=samples)
    model = onnx_model(node, [("x", "float32", [1, 1, 4, 6]), ("r", "float32", [1, 4]), ("i", "int64", [1])])
    executable = autosched.build(model, threads=1)
    x, regions = np.ones((1, 1, 4, 6), "float32"), np.array([[0, 0, 2, 2]], "float32")
    assert executable(x, regions, np.array([0])).numpy().item() == 1
    with pytest.raises((WrongInputError, IndexError), match=rf"index {bad} is out of range \[0, 1\) .*regions"):
        executable(x, regions, np.array([bad]))


def test_threads_report_too():
    x = np.random.default_rng(0).random((1000, 512), "float32")
    positions = np.zeros(4096, "int64")
    module = one_call(lambda t, i: op.take(t, i, 0), ((1000, 512), "float32"), ((4096,), "int64"))
    executor = GraphExecutor(autosched.build(module, threads=2), threads=2)
    executor.set_input("x0", x)
    positions[4095] = 1000
    executor.set_input("x1", positions)
    with pytest.raises(IndexError, match="index 1000"):
        executor.run()


@pytest.mark.parametrize("mode", ["raise", "positive"])
def test_positions_in_a_dimension_of_size_1_are_checked_too(mode):
    """Their only legal value is known at build, and the check has to stay."""
    x = np.ones((5, 1), "float32")
    scatter = autosched.build(
        one_call(
            lambda a, i, u: op.scatter_elements(a, i, u, axis=1, mode=mode),
            ((5, 1), "float32"), ((5, 1), "int64"), ((5, 1), "float32"),
        ),
        threads=1,
    )  # fmt: skip
    take = autosched.build(
        one_call(lambda a, i: op.reshape(op.take(a, i, 1, mode), (15,)), ((5, 1), "float32"), ((3,), "int64")),
        threads=1,
    )
    positions = np.zeros((5, 1), "int64")
    np.testing.assert_array_equal(scatter(x, positions, 2 * x).numpy(), 2 * x)
    positions[2] = 2**40
    with pytest.raises(IndexError, match=f"index {2**40} is out of range"):
        scatter(x, positions, x)
    with pytest.raises(IndexError, match="index 1 is out of range"):
        take(x, np.array([0, 1, 0]))
