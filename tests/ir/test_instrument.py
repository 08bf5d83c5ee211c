"""Instruments see every pass, and may stop it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.errors import VerifyError
from autosched.ir import IRModule
from autosched.ir.instrument import DumpIR, PassPrintingInstrument, PassTimingInstrument, PrintAfterAll, pass_instrument
from autosched.ir.transform import Pass, PassContext, Sequential, module_pass
from autosched.relax.instrument import WellFormedInstrument
from autosched.script import ir as I
from autosched.script import relax as R


@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        y = R.nn.relu(x)
        return y


@module_pass(opt_level=0, name="first")
def first(mod: IRModule, ctx: PassContext) -> IRModule:
    return mod.with_attr("first", 1)


@module_pass(opt_level=0, name="second")
def second(mod: IRModule, ctx: PassContext) -> IRModule:
    return mod.with_attr("second", 1)


BOTH = Sequential([first, second], name="both")


def test_timing_is_a_tree() -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        BOTH(Mod)
        lines = timing.render().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["both", "  first", "  second"]


def test_own_instrument() -> None:
    seen: list[str] = []

    @pass_instrument
    class Mine:
        def enter_pass_ctx(self) -> None:
            seen.append("enter")

        def exit_pass_ctx(self) -> None:
            seen.append("exit")

        def should_run(self, mod: IRModule, info: Pass) -> bool:
            return info.name != "second"

        def run_before_pass(self, mod: IRModule, info: Pass) -> None:
            seen.append(info.name)

    with PassContext(instruments=[Mine()]):
        result = BOTH(Mod)
    assert seen == ["enter", "both", "first", "exit"]
    assert result.get_attr("second") is None


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    with PassContext(instruments=[PrintAfterAll()]):
        first(Mod)
    text = capsys.readouterr().out
    assert "After Running Pass" in text
    assert "R.nn.relu" in text
    with PassContext(instruments=[PassPrintingInstrument(["second"], [])]):
        BOTH(Mod)
    assert capsys.readouterr().out.count("Print IR") == 1


def test_dump(tmp_path: Path) -> None:
    with PassContext(instruments=[DumpIR(tmp_path)]):
        BOTH(Mod)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000_first.py", "001_second.py", "002_both.py"]


def test_well_formed_names_the_pass() -> None:
    @module_pass(opt_level=0, name="breaker")
    def breaker(mod: IRModule, ctx: PassContext) -> IRModule:
        import dataclasses

        main = mod["main"]
        return IRModule({"main": dataclasses.replace(main, params=())})

    with PassContext(instruments=[WellFormedInstrument()]), pytest.raises(VerifyError, match="after pass 'breaker'"):
        breaker(Mod)
