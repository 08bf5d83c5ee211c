"""Random ONNX models with open sizes, against ONNX Runtime; `python -m benchmarks.fuzz_sizes` runs thousands."""

import pytest
from onnx import helper

import autosched
from benchmarks.fuzz_sizes import check, main, random_model

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("seed", range(6))
def test_models_agree_at_all_sizes(seed):
    assert check(random_model(seed, most_steps=4))[1] == ""


def test_a_wrong_result_is_seen(monkeypatch):
    """The check can fail."""
    one = random_model(2, most_steps=3)
    build = autosched.build

    def negated(model, **options):
        last = model.graph.node[-1].output[0]
        model.graph.node.append(helper.make_node("Neg", [last], ["negated"]))
        model.graph.output[0].name = "negated"
        return build(model, **options)

    monkeypatch.setattr(autosched, "build", negated)
    assert ": differs by" in check(one)[1]


def test_every_operator_is_drawn():
    """Of each kind of step, within some hundred models, one is taken."""
    drawn = {node.op_type for seed in range(300) for node in random_model(seed).model.graph.node}
    assert {"MatMul", "Conv", "MaxPool", "Resize", "LSTM", "GRU", "TopK", "CumSum", "Range", "Expand", "Trilu"} <= drawn
    assert {"Softmax", "LayerNormalization", "ArgMax", "Split", "Pad", "Tile", "Where", "Slice", "Reshape"} <= drawn


def test_the_command_counts(capsys):
    assert main(["--models", "1", "--first", "3", "--workers", "0"]) == 0
    assert capsys.readouterr().out.endswith("; 0 with a fault\n")
