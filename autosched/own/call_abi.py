"""Where `call_loop` finds the parts of Python's objects, and what `native_call` gives it."""

from __future__ import annotations

CLASS, SIZE = 8, 16  # bytes into any object, and into a tuple
ITEMS = tuple.__basicsize__  # 24, from CPython 3.14 on 32: a tuple has its hash before them
DATA, NDIM, EXTENTS, DTYPE = 16, 24, 32, 56  # bytes into an array
CELL = ("kinds", "PyObject_Call", "usual", "PyContextVar_Get", "blocks", "entered", "Py_DecRef")
