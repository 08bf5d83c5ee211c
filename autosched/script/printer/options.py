"""What a caller may choose about the printed text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from autosched.errors import InvalidTypeError, InvalidValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How text is printed; the names are those of TVM's `script()`.

    name               name of the printed class or function; without it "Module" or the function's own
    show_meta          also print the data of constants that are too large for the text
    module_alias       how functions call the module they are in
    buffer_dtype       the dtype that `T.alloc_buffer` and `T.match_buffer` leave out
    int_dtype, float_dtype  dtypes whose constants are printed bare; "void" for none
    num_context_lines  lines around a marked one; -1 for all
    syntax_sugar       `T.grid`, `T.axis.remap`, infix operators; False prints each construct on its own
    show_all_ty        annotate also what follows from a call (`show_all_struct_info` is its older name)
    obj_to_underline   nodes to mark with a line of carets
    style              colours: a pygments style, "light", "dark", or "" for plain text
    """

    name: str | None = None
    show_meta: bool = False
    ir_prefix: str = "I"
    tir_prefix: str = "T"
    relax_prefix: str = "R"
    module_alias: str = "cls"
    buffer_dtype: str = "float32"
    int_dtype: str = "int32"
    float_dtype: str = "void"
    verbose_expr: bool = False
    indent_spaces: int = 4
    print_line_numbers: bool = False
    num_context_lines: int = -1
    syntax_sugar: bool = True
    show_all_ty: bool = True
    obj_to_underline: tuple[object, ...] = ()
    style: str = ""

    @staticmethod
    def of(**options: Any) -> Options:
        """Options from keywords. Raises TypeError for an unknown one, ValueError for an impossible value."""
        if "show_all_struct_info" in options:
            options["show_all_ty"] = options.pop("show_all_struct_info")
        known = [f.name for f in dataclasses.fields(Options)]
        if unknown := sorted(set(options) - set(known)):
            raise InvalidTypeError(f"unknown printing option {', '.join(unknown)}", hint=f"known: {', '.join(known)}")
        options["obj_to_underline"] = tuple(options.get("obj_to_underline") or ())
        made = Options(**options)
        if isinstance(made.indent_spaces, bool) or not isinstance(made.indent_spaces, int):
            raise InvalidTypeError(f"script: indent_spaces is a {type(made.indent_spaces).__name__}, not an int")
        if made.indent_spaces < 1:
            raise InvalidValueError(f"indent_spaces must be positive, got {made.indent_spaces}")
        return made
