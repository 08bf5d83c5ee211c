"""Values printed and conditions checked while a function runs."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.script import from_source
from autosched.script import ir as I
from autosched.script import relax as R


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
        y = R.add(x, x)
        R.print(y, format="y = {}")
        _ = R.print(x, y)
        R.assert_op(c, [x, y], format="x = {}, y = {}")
        return y


def test_print_and_assert(capsys: pytest.CaptureFixture[str]) -> None:
    assert autosched.ir.structural_equal(from_source(Module.script()), Module)
    vm = relax.VirtualMachine(relax.build(Module, "llvm"), autosched.cpu())
    x = np.float32([1, 2])
    np.testing.assert_array_equal(vm["main"](x, np.array(True)).numpy(), [2, 4])
    assert capsys.readouterr().out == "y = [2. 4.]\n[1. 2.] [2. 4.]\n"
    with pytest.raises(AssertionError, match=r"x = \[1. 2.\], y = \[2. 4.\]"):
        vm["main"](x, np.array(False))


def test_refused() -> None:
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with pytest.raises(TypeError, match="boolean scalar"):
        relax.op.assert_op(x)
    with pytest.raises(TypeError, match="format is a int"):
        relax.op.print(x, format=3)
