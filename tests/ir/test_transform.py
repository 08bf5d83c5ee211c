"""Passes, sequences of them, and the context that steers them."""

from __future__ import annotations

from typing import Any

import pytest

from autosched.errors import InvalidTypeError, VerifyError
from autosched.ir import IRModule
from autosched.ir.transform import Pass, PassContext, PassInfo, Sequential, graph_pass, module_pass, run_passes


def mark(name: str, opt_level: int = 0) -> Pass:
    """A pass that writes its name into the attribute `seen`."""

    def run(mod: IRModule) -> IRModule:
        return mod.with_attr("seen", (*mod.attrs.get("seen", ()), name))

    return Pass(run, PassInfo(opt_level, name))


def test_a_pass_leaves_its_input_alone() -> None:
    module = IRModule()
    assert mark("a")(module).attrs["seen"] == ("a",) and "seen" not in module.attrs


def test_levels_and_names_choose() -> None:
    passes = Sequential([mark("a"), mark("b", 3), mark("c")])
    assert passes(IRModule()).attrs["seen"] == ("a", "c")
    with PassContext(opt_level=3, disabled_pass=["c"]):
        assert passes(IRModule()).attrs["seen"] == ("a", "b")
        with PassContext(opt_level=0, required_pass=["b"]):
            assert passes(IRModule()).attrs["seen"] == ("a", "b", "c")
    assert passes(IRModule()).attrs["seen"] == ("a", "c")


def test_instruments_see_every_pass() -> None:
    class Watch:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def should_run(self, mod: IRModule, info: PassInfo) -> bool:
            return info.name != "b"

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.seen.append(f"before {info.name}")

        def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.seen.append(f"after {info.name} {mod.attrs['seen']}")

    watch = Watch()
    with PassContext(instruments=[watch]):
        Sequential([mark("a"), mark("b")], name="both")(IRModule())
    assert watch.seen == ["before both", "before a", "after a ('a',)", "after both ('a',)"]


def test_decorators() -> None:
    @module_pass(opt_level=1, name="mine")
    def function(mod: IRModule, ctx: PassContext) -> IRModule:
        return mod.with_attr("level", ctx.opt_level)

    @module_pass(opt_level=2)
    class WithOptions:
        def __init__(self, value: int):
            self.value = value

        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            return mod.with_attr("value", self.value)

    @graph_pass("ours")
    def ours(mod: IRModule) -> IRModule:
        """Do nothing."""
        return mod

    assert function.info == PassInfo(1, "mine") and function(IRModule()).attrs["level"] == 2
    assert WithOptions(7)(IRModule()).attrs["value"] == 7 and WithOptions(7).info == PassInfo(2, "WithOptions")
    assert ours.name == "ours" and ours.__doc__ == "Do nothing."


@pytest.mark.parametrize(
    "use", [lambda: mark("a")(42), lambda: Sequential([print]), lambda: Pass(id, PassInfo(0, "x"))(IRModule())]
)
def test_wrong_types_are_refused(use: Any) -> None:
    with pytest.raises(InvalidTypeError):
        use()


def test_the_runner_names_the_pass_whose_result_is_malformed() -> None:
    def verify(mod: IRModule) -> None:
        if "b" in mod.attrs["seen"]:
            raise VerifyError("broken", where="here")

    seen: list[str] = []
    with pytest.raises(VerifyError, match="the result of pass 'b': here"):
        run_passes(IRModule(), [mark("a"), mark("b"), mark("c")], verify=verify, watch=lambda n, m, s: seen.append(n))
    assert seen == ["a"]
