"""The IRModule tutorial runs, agrees with PyTorch, and prints what TVM's does."""

from __future__ import annotations

import pytest


def test_irmodule_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from examples import irmodule_tutorial

    irmodule_tutorial.main()
    text = capsys.readouterr().out
    assert '[I.GlobalVar("main")]' in text
    assert "lv_1 = R.call_tir(cls.fused_matmul_add_relu, (inp_0, lv, fc1_bias), out_sinfo=" in text
    assert "gv = R.call_tir(cls.fused_matmul1_add1, (lv_1, lv4, fc2_bias), out_sinfo=" in text
    assert 'thread="blockIdx.x"' in text
    assert "built for CUDA: " in text
