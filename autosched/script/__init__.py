"""The text form of modules and functions, a dialect of TVMScript: printer, parser and the names `I`, `T` and `R`.

from autosched.script import ir as I, tir as T, relax as R

@T.prim_func
def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            v_i = T.axis.spatial(4, i)
            B[v_i] = A[v_i] * T.float32(2)
"""

from autosched.lazy_names import lazy_names
from autosched.script.ir import ir_module
from autosched.script.parser import from_source
from autosched.script.printer import Options, load_json, script, text_with_mark

__all__ = ["Options", "from_source", "ir_module", "load_json", "script", "text_with_mark"]

__getattr__, __dir__ = lazy_names(__name__)
