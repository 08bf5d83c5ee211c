"""LLVM's code generator for a system and a CPU."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import llvmlite.binding as llvm


@functools.cache
def target_machine(triple: str, mcpu: str, features: str, opt: int = 3) -> llvm.TargetMachine:
    """llvmlite's target machine, of this machine's architecture or another that LLVM was built with."""
    import llvmlite.binding as llvm

    if triple.split("-")[0] == llvm.get_process_triple().split("-")[0]:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    found = llvm.Target.from_triple(triple)
    return found.create_target_machine(cpu=mcpu, features=features, opt=opt, reloc="pic", codemodel="default")
