import pytest

from autosched.driver.build.pipeline import graph_passes, run_passes
from autosched.errors import VerifyError
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import Call
from autosched.relax.to_graph import to_graph
from autosched.target import Target
from tests.relax.transform.graphs import assert_same_results, calls, small_network

AVX2, AVX512 = Target("llvm -mcpu=x86-64-v3"), Target("llvm -mcpu=x86-64-v4")


@pytest.mark.parametrize("target", [AVX2, AVX512, Target("llvm -mcpu=x86-64")])
def test_a_network_in_kernels(target):
    module = small_network()
    result = run_passes(module, graph_passes(target))
    assert_same_results(module, result, tolerance=1e-4)
    names = calls(result)
    assert names[0].startswith("fused_conv2d_add") and names[1].startswith("fused_conv2d1_add")
    assert names[-1].startswith("fused_matmul_add") and len(names) <= 7


def test_every_pass_keeps_the_results():
    module = small_network()
    now = module
    for p in graph_passes(AVX2):
        now = p(now)
        assert_same_results(module, now, tolerance=1e-4)


def _break(module):
    """Give main a result of another type than it says."""
    import dataclasses

    main = module["main"]
    return module.with_functions(
        {module.get_global_var("main"): dataclasses.replace(main, ret_struct_info=main.params[0].struct_info)}
    )


def test_a_wrong_pass_is_named(monkeypatch):
    broken: Pass = graph_pass("Breaks")(_break)
    with pytest.raises(VerifyError, match="the result of pass 'Breaks'"):
        run_passes(small_network(), (broken,))
    monkeypatch.setenv("AUTOSCHED_VERIFY", "0")
    run_passes(small_network(), (broken,))


def test_printing(monkeypatch, capsys):
    monkeypatch.setenv("AUTOSCHED_PRINT_AFTER", "FoldConstant")
    passes = graph_passes(AVX2)
    first = next(n for n, p in enumerate(passes) if p.info.name == "FoldConstant")
    run_passes(small_network(), passes[: first + 1])
    error = capsys.readouterr().err
    assert error.count("# after FoldConstant, ") == 1 and "def main(" in error


@pytest.mark.parametrize(("name", "nodes"), [("mlp", 2), ("squeezenet", 31), ("resnet18", 24)])
def test_models(name, nodes):
    """No layout changes inside, no element-wise kernel left over, no copies for concatenations."""
    pytest.importorskip("onnx")
    if name != "squeezenet":
        pytest.importorskip("torch")
    from autosched.frontend.onnx import from_onnx
    from benchmarks.models import get_model

    result = run_passes(from_onnx(get_model(name, softmax=False)), graph_passes(AVX2))
    graph, _, _ = to_graph(result)
    kernels = [n.kernel for n in graph.nodes]
    assert len(kernels) == nodes, kernels
    rest = {k.rstrip("0123456789") for k in kernels if not k.startswith(("fused_conv2d", "fused_matmul"))}
    assert rest <= {"conv2d", "max_pool2d", "adaptive_avg_pool2d", "mean", "__nop"}
    assert not any(
        isinstance(b.value, Call) and b.value.op_name == "relax.nn.conv2d" for b in result["main"].bindings()
    )
