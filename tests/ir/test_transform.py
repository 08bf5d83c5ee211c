import pytest

import autosched
from autosched import tir
from autosched.errors import InvalidTypeError, VerifyError
from autosched.ir import IRModule
from autosched.ir.transform import Pass, PassContext, Sequential, graph_pass, module_pass, run_passes
from tests.tir.programs import matmul


def _marking(name: str, opt_level: int = 0) -> Pass:
    """A pass that appends its name to the module's attribute `trail`."""
    return graph_pass(name, opt_level)(lambda mod: mod.with_attr("trail", (*(mod.attrs.get("trail") or ()), name)))


def test_passes_run_in_order_and_leave_their_input_alone():
    module = IRModule()
    assert Sequential([_marking("a"), _marking("b")])(module).attrs["trail"] == ("a", "b")
    assert "trail" not in module.attrs


def test_the_context_chooses_what_runs():
    sequence = Sequential([_marking("a"), _marking("slow", opt_level=3)])
    assert sequence(IRModule()).attrs["trail"] == ("a",)
    with PassContext(opt_level=3, disabled_pass=["a"]):
        assert sequence(IRModule()).attrs["trail"] == ("slow",)
    with PassContext(required_pass=["slow"]):
        assert sequence(IRModule()).attrs["trail"] == ("a", "slow")
    assert PassContext.current().opt_level == 2


def test_instruments_see_every_pass():
    seen = []

    class Watch:
        def run_before_pass(self, mod, info):
            seen.append(("before", info.name))

        def run_after_pass(self, mod, info):
            seen.append(("after", info.name))

        def should_run(self, mod, info):
            return info.name != "b"

    with PassContext(instruments=[Watch()]):
        result = Sequential([_marking("a"), _marking("b")], name="both")(IRModule())
    assert result.attrs["trail"] == ("a",)
    assert seen == [("before", "both"), ("before", "a"), ("after", "a"), ("after", "both")]


def test_decorators():
    @module_pass(opt_level=1, name="named")
    def change(mod, ctx):
        return mod.with_attr("level", ctx.opt_level)

    assert change.info.name == "named" and change.info.opt_level == 1
    assert change(IRModule()).attrs["level"] == 2

    @module_pass(opt_level=1)
    class Add:
        def __init__(self, value):
            self.value = value

        def transform_module(self, mod, ctx):
            return mod.with_attr("value", self.value)

    assert Add(3)(IRModule()).attrs["value"] == 3 and Add(3).info.name == "Add"


def test_wrong_use():
    with pytest.raises(InvalidTypeError, match="pass 'a' takes an IRModule, got str"):
        _marking("a")("module")
    with pytest.raises(InvalidTypeError, match="pass 'none' returned NoneType"):
        graph_pass("none")(lambda mod: None)(IRModule())
    with pytest.raises(InvalidTypeError, match="takes a list of passes"):
        Sequential([len])


def test_the_runner_verifies_and_tells():
    seen = []

    def verify(module):
        if module.attrs.get("trail") == ("a", "b"):
            raise VerifyError("two are too many", where="main")

    with pytest.raises(VerifyError, match=r"two are too many \(in the result of pass 'b': main\)"):
        run_passes(IRModule(), (_marking("a"), _marking("b")), verify=verify, watch=lambda name, *_: seen.append(name))
    assert seen == ["a"]


@pytest.mark.parametrize(
    ("option", "hint"), [("tir.instrument_bound_checkers", "checks=True"), ("relax.backend.use_cuda_graph", "GPUs")]
)
def test_an_option_that_would_change_what_runs_is_refused(option: str, hint: str) -> None:
    PassContext(config={option: False})
    with pytest.raises(ValueError, match=hint):
        PassContext(config={option: True})


@pytest.mark.parametrize("option", ["tir.nobody", "nonsense.key", "relay"])
def test_an_unknown_option_is_refused(option: str) -> None:
    with pytest.raises(AttributeError, match="Invalid config option"):
        PassContext(config={option: 1})


def test_vectors_are_left_out_where_they_are_disabled() -> None:
    sch = tir.Schedule(matmul(4, 8, 4))
    sch.vectorize(sch.get_loops("C")[1])
    assert "vectorized" in autosched.lower(sch.mod).script()
    with PassContext(config={"tir.disable_vectorize": True}):
        assert "vectorized" not in autosched.lower(sch.mod).script()
        assert "vector(" not in autosched.build(matmul(4, 8, 4), target="llvm").get_source()  # a template's too
