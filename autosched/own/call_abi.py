"""Where `call_loop` finds the parts of Python's objects, and what `native_call` gives it."""

from __future__ import annotations

CLASS, SIZE, ITEMS = 8, 16, 24  # bytes into any object, and into a tuple
DATA, NDIM, EXTENTS, DTYPE = 16, 24, 32, 56  # bytes into an array
CELL = ("kinds", "PyObject_Call", "usual", "PyContextVar_Get", "blocks", "entered", "Py_DecRef")
