"""`lower`: what code generation sees of a function, for reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched import te
from autosched.codegen.lower import tvm_passes
from autosched.driver.model_files import open_model
from autosched.errors import InvalidTypeError, InvalidValueError, WrongInputError
from autosched.ir import IRModule
from autosched.ir.transform import PassContext
from autosched.tir import PrimFunc

OWN_PASSES = "tir.add_lower_pass"


def lower(
    what: object,
    args: Sequence[te.Tensor] | None = None,
    name: str | None = None,
    binds: Mapping[object, object] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """The functions without blocks: plain loops over allocated buffers; graph functions stay as they are.

    what         an IRModule, a schedule, a PrimFunc, or tensors
    name         of the function; None: a PrimFunc's own, else "main"
    args         for a te schedule or tensors: the order of the function's arguments
    simple_mode  for reading: loops whose last iteration is ragged are not split into full tiles and the rest
    Raises       WrongInputError (TypeError and ValueError) for anything else; ValueError where args lacks an input
    """
    if binds:
        raise InvalidValueError("binds: buffers of the caller's own are not available", hint="leave it out")
    try:
        module = open_model(what, args, name or ("main" if isinstance(what, te.Schedule) else None))
    except InvalidTypeError as error:
        raise WrongInputError(error.message.replace("build", "lower"), hint=error.hint) from None
    if PassContext.current().config.get("tir.disable_vectorize"):
        module = tvm_passes.SkipVectorize()(module)
    module = run_own_passes(module, lambda phase: phase == 0)
    module = module.with_functions(
        {
            gv: tvm_passes.lowered(f, partition=not simple_mode) if isinstance(f, PrimFunc) else f
            for gv, f in module.functions_items()
        }
    )
    return run_own_passes(module, lambda phase: phase > 0)


def run_own_passes(module: IRModule, wanted: Callable[[int], bool]) -> IRModule:
    """The module after the user's passes of the wanted phases: the context's option `tir.add_lower_pass`.

    Phase 0 sees blocks, the later ones plain loops. Raises TypeError where the option is no list of (phase, pass).
    """
    for item in PassContext.current().config.get(OWN_PASSES, ()):
        if not isinstance(item, tuple | list) or len(item) != 2 or not isinstance(item[0], int):
            raise InvalidTypeError(f"{OWN_PASSES} takes (phase, pass), not {item!r}")
        phase, own = item
        if wanted(phase):
            module = own(module)
    return module
