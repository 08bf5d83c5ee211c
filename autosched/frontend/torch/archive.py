"""Reads .pt2 archives without running what is inside.

`torch.export.load` unpickles whatever an archive holds, evaluates its symbolic expressions and guards as Python text,
imports modules that it names and loads native libraries. So an archive is looked at first, through the reader that
PyTorch itself uses, and one that needs any of that is refused.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autosched.errors import ImportModelError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_TRUST_HINT = "set AUTOSCHED_TRUST_PICKLE=1 if you trust who made it, or save it again with torch.export.save"
_TARGET = re.compile(
    r"torch\.ops\.(?!_)\w+\.\w+\.(?!_)\w+|torch\.ops\.higher_order\.(?!_)\w+|torch\.sym_\w+|math\.(?!_)\w+|[^_mt#].*",
    re.ASCII,
)
_OPERATORS = frozenset(
    (
        *("getitem", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "invert", "index"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "lshift", "rshift", "truth"),
    )
)
_PAYLOADS = ("weight_", "tensor_")  # those of plain bytes; others are pickled objects
_EXPRESSION_NODES = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.Tuple, ast.BinOp, ast.UnaryOp),
    *(ast.Compare, ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)
_FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "Max", "Min", "Abs"),
        *("floor", "ceiling"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "LessThan", "StrictLessThan", "GreaterThan"),
        *("StrictGreaterThan", "And", "Or", "Not", "Xor", "Piecewise", "ExprCondPair", "sqrt", "log", "exp"),
        *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv"),
        *("LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "TruncToFloat", "TruncToInt"),
        *("IsNonOverlappingAndDenseIndicator", "RoundToInt", "RoundDecimal", "ToFloat", "Identity"),
        *("BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor"),
    )
)  # fmt: skip
_TEXT = re.compile(r"[A-Za-z]\w*|[-+]?[\d.]+(e[-+]?\d+)?", re.ASCII)
_MOST_NESTED = 8


def read_program(path: Path, trusted: bool) -> ExportedProgram:
    """The exported program in a file. Raises ImportModelError for one that needs trust, and what PyTorch raises.

    trusted  unpickle, evaluate and load whatever the archive holds
    """
    import torch

    with open(path, "rb") as file:
        if trusted:
            return torch.export.load(file)
        program = _read_checked(file, path)
    if hasattr(program, "_guards_code"):
        program._guards_code = []  # Python text that a module made of the program would run; nobody here needs it
    return program


def _read_checked(file: BinaryIO, path: Path) -> object:
    import torch

    try:
        from torch.export.pt2_archive._package import PT2ArchiveReader, load_pt2
    except ImportError:  # before PyTorch 2.8
        _check_old(file, path)
        return torch.export.load(file)
    try:
        reader = PT2ArchiveReader(file)
        reader.read_string("archive_version")
    except RuntimeError:  # no archive of the new form, so PyTorch will take it for one of the old
        _check_old(file, path)
        return torch.export.load(file)
    _check_records([(name, partial(reader.read_bytes, name)) for name in reader.get_file_names()], path)
    file.seek(0)
    programs = load_pt2(file).exported_programs  # never `torch.export.load`, which would try the old form next
    if "model" not in programs:
        raise ImportModelError(f"'{path}' holds no exported program")
    return programs["model"]


def _check_old(file: BinaryIO, path: Path) -> None:
    """Look at an archive of the form that PyTorch wrote before 2.8."""
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        _check_records([(name, partial(archive.read, name)) for name in archive.namelist()], path)
    file.seek(0)


def _check_records(records: Iterable[tuple[str, Callable[[], bytes]]], path: Path) -> None:
    """Raises ImportModelError naming the first record that could run something."""
    for name, read in records:
        problem = ""
        if "aotinductor" in name:
            problem = "native code"
        elif name.endswith(".pt"):
            problem = "" if _holds_tensors_alone(read()) else "a pickle of more than tensors"
        elif name.endswith(".json") and not name.startswith("extra"):
            problem = _find_problem(json.loads(read()))
        if problem:
            raise ImportModelError(f"'{path}' holds {problem} ({name}), which is not run unasked", hint=_TRUST_HINT)


def _holds_tensors_alone(data: bytes) -> bool:
    import torch

    try:
        if data:
            torch.load(io.BytesIO(data), weights_only=True)
    except Exception:  # noqa: BLE001  (whatever the unpickler of tensors alone refuses)
        return False
    return True


def _find_problem(document: object) -> str:
    """What in a JSON document would make PyTorch unpickle, evaluate or import something; "" for nothing."""
    todo = [(document, 0)]
    while todo:
        value, nested = todo.pop()
        if isinstance(value, list):
            todo += [(item, nested) for item in value]
        elif isinstance(value, dict):
            if problem := _dict_problem(value):
                return problem
            todo += [(item, nested) for item in value.values()]
        elif isinstance(value, str) and value[:1] in ("[", "{") and nested < _MOST_NESTED:  # tree specs are texts
            try:
                todo.append((json.loads(value), nested + 1))
            except (ValueError, RecursionError):
                continue
    return ""


def _dict_problem(value: dict[str, object]) -> str:
    if value.get("use_pickle"):
        return "a pickled tensor"
    if "path_name" in value and not str(value["path_name"]).startswith(_PAYLOADS):
        return "a pickled object"
    if "__enum__" in value or "default_factory_module" in value:
        return "the name of a module to import"
    if "expr_str" in value and not is_plain_expression(value["expr_str"]):
        return "an expression that is no arithmetic"
    targets = [value["as_operator"]] if "as_operator" in value else []
    if "inputs" in value and "target" in value:
        targets.append(value["target"])
    return next((f"a call of '{target}'" for target in targets if not _is_operator(target)), "")


def _is_operator(target: object) -> bool:
    """Whether a call's target is an operator of PyTorch, of integers or a text, and no other function of Python's."""
    if not isinstance(target, str):
        return False
    if target.startswith("_operator"):
        return target.removeprefix("_operator.") in _OPERATORS
    return _TARGET.fullmatch(target) is not None


def is_plain_expression(text: object) -> bool:
    """Whether a symbolic expression is arithmetic over symbols, so that evaluating it runs nothing else."""
    if not isinstance(text, str) or "__" in text:
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, _EXPRESSION_NODES):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _TEXT.fullmatch(node.value):
            return False
    return True
