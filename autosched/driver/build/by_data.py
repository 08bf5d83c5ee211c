"""Models whose course or sizes follow from data, compiled once for all of them and run by the VM."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import product
from typing import Any

from autosched.driver.model_files import Ranges
from autosched.errors import AutoschedError
from autosched.frontend.size_arithmetic import BY_DATA
from autosched.ir.module import IRModule
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.graph_form import GraphForm
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.size_expr import shape_at

_log = logging.getLogger(__name__)


def build_by_data(
    imported: Callable[[], IRModule], build: Callable[..., Any], ranged: Ranges | None = None
) -> VMExecutable | None:
    """What is built of a module whose `main` names in BY_DATA the symbols that data gives values.

    None where that cannot be, which is logged: a part would be compiled in a call, or is not for a size of 0.

    imported  gives the module
    build     compiles a module for the target
    ranged    bounds of the sizes of inputs
    """
    try:
        module = imported()
        made = build(module, shapes=ranged or None)
    except AutoschedError as error:
        _log.info("not compiled once for the VM: %s", error.line)
        return None
    if not isinstance(made, VMExecutable) or made.symbolic:
        return None
    forms = [x.form for x in made.program.segments if isinstance(x, DynamicExecutable)]
    for form, name in product(forms, module["main"].attrs[BY_DATA]):
        if not _may_be_none(form, name):
            _log.info("not compiled once for the VM: '%s' may be 0, and a part is not for that", name)
            return None
    return made


def _may_be_none(form: GraphForm, name: str) -> bool:
    """Whether a part of a program can be run where a size is 0: its code is for that, or nothing is to be computed."""
    if all(size.name != name or size.low == 0 for size in form.sizes):
        return True
    others = ({size.name: 0 if size.name == name else n for size in form.sizes} for n in (5, 7))
    return all(0 in shape_at(form.shapes[number], at) for at in others for number in form.outputs)
