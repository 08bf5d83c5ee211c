"""TVM's instrument that checks modules between passes."""

from __future__ import annotations

from autosched.errors import VerifyError
from autosched.ir.instrument import PassInstrument
from autosched.ir.module import IRModule
from autosched.ir.transform import PassInfo
from autosched.relax.verify import verify


class WellFormedInstrument(PassInstrument):
    """Checks the module before and after each pass. Raises VerifyError naming the pass."""

    def __init__(self, check_struct_info: bool = True):
        del check_struct_info  # types are always checked

    def _check(self, mod: IRModule, info: PassInfo, when: str) -> None:
        try:
            verify(mod)
        except VerifyError as error:
            raise VerifyError(error.message, where=f"the module {when} pass '{info.name}': {error.where}") from error

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what goes in."""
        self._check(mod, info, "before")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what comes out."""
        self._check(mod, info, "after")
