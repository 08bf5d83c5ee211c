"""The chains that layers are measured in: legal models of the sizes that the rows name; and the slope's arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from autosched.driver.bench.programs import Program
from autosched.driver.bench.rounds import Timing
from benchmarks.chains import Conv
from benchmarks.kernels import Result, choose, main, slope, table
from benchmarks.rows import CONV_ROWS, GROUPS, MEMORY, ROWS, Row, conv_row

SMALL = [row for row in ROWS if row.flops < 3e7 or row.group == "memory"]


def test_the_rows_are_as_many_as_the_bars_speak_of() -> None:
    assert (len(CONV_ROWS), len(MEMORY)) == (26, 20)
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.group for row in ROWS} == set(GROUPS)


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_chains_are_legal_and_each_layer_has_its_own_weights(row: Row) -> None:
    one, three = row.model(1), row.model(3)
    onnx.checker.check_model(three, full_check=True)
    assert len(three.graph.node) == 3 * len(one.graph.node)
    large = [w for w in three.graph.initializer if np.prod(w.dims) > 10]
    assert len({w.name for w in large}) == len(large)


def test_a_fan_adds_its_layers_up() -> None:
    conv = Conv(5, 3, 4, 3, 2, 1)
    model = conv.chain(2)
    assert [i.name for i in model.graph.input] == ["x", "y"]
    assert [n.op_type for n in model.graph.node] == ["Conv", "Add", "Relu"] * 2
    assert (conv.out_size, conv.flops) == (3, 2 * 9 * 4 * 3 * 9)


def timing(name: str, seconds: float) -> Timing:
    return Timing(Program(name, 1, lambda: None), tuple(np.full(3, seconds) for _ in range(8)))


def test_a_layer_s_time_holds_no_constant_cost() -> None:
    row = conv_row("conv", Conv(5, 4, 4, 3, 1, 1), 1.08)
    call = 100e-6  # what a runtime takes for each call
    ours = slope(timing("ours", call + 10e-6), timing("ours", call + 90e-6), row)
    peer = slope(timing("ort", call + 20e-6), timing("ort", call + 180e-6), row)
    result = Result(row, {"ours": ours, "onnxruntime": peer}, {})
    assert ours.median_s == pytest.approx(10e-6)
    assert result.ratio[0] == pytest.approx(0.5)
    text = table([result], "1 thread", "bars").markdown()
    assert "| 10 | 20 |" in text
    assert "0.500 ± 0.000 | ORT | 1.08 |" in text


def test_rows_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row.group for row in choose(["conv3x3"], "14x14")] == ["conv3x3"]
    main(["--only", "matmul-cold", "--list"])
    assert capsys.readouterr().out.split() == [
        *("matmul-cold", "M=1", "768<->3072", "matmul-cold", "M=4", "768<->3072", "matmul-cold", "M=16", "768<->3072"),
    ]
