"""Reading LLVM IR as LLVM prints it: types, argument lists, instructions, line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from llvmlite import binding as llvm

from autosched.codegen.cuda.emulate.machine import target_machine
from autosched.errors import CodegenError

_OPEN, _CLOSE = "([{<", ")]}>"


def end_of_group(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`; quoted names are skipped."""
    depth, k = 0, start
    while k < len(text):
        character = text[k]
        if character == '"':
            k = text.index('"', k + 1)
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth == 0:
                return k + 1
        k += 1
    raise CodegenError(f"a bracket is not closed in `{text[start : start + 60]}`")


def end_of_type(text: str, start: int = 0) -> int:
    """The position after the type that begins at `start`."""
    if text[start] in _OPEN:
        end = end_of_group(text, start)
    elif text.startswith('%"', start):
        end = text.index('"', start + 2) + 1
    else:
        match = re.compile(r"[%\w.]+").match(text, start)
        if match is None:
            raise CodegenError(f"no type at `{text[start : start + 40]}`")
        end = match.end()
    space = re.compile(r" addrspace\(\d+\)").match(text, end)
    return space.end() if space else end


def split_top(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, begin, k = [], 0, 0
    while k < len(text):
        if text[k] == '"':
            k = text.index('"', k + 1)
        elif text[k] in _OPEN:
            k = end_of_group(text, k) - 1
        elif text[k] == ",":
            parts.append(text[begin:k].strip())
            begin = k + 1
        k += 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


_ARGUMENT_ATTRIBUTE = re.compile(
    r"(noundef|nonnull|noalias|nocapture|readonly|readnone|writeonly|signext|zeroext|inreg|immarg|returned|nofree"
    r"|align \d+"
    r"|(captures|dereferenceable|dereferenceable_or_null|range|initializes|nofpclass)\([^()]*(\([^()]*\))*[^()]*\))\s*"
)


@dataclass(frozen=True)
class Argument:
    """One argument of a call or a definition: its type and its value or name."""

    type: str
    value: str
    by_value: str = ""  # the type behind a `byval` pointer


def argument_of(text: str) -> Argument:
    end = end_of_type(text)
    kind, rest, by_value = text[:end], text[end:].strip(), ""
    while rest:
        match = _ARGUMENT_ATTRIBUTE.match(rest)
        if match:
            rest = rest[match.end() :]
        elif rest.startswith("byval("):
            stop = end_of_group(rest, 5)
            by_value, rest = rest[6 : stop - 1], rest[stop:].strip()
        else:
            break
    return Argument(kind, rest, by_value)


@dataclass(frozen=True)
class Call:
    """A call as printed: `result` with its `%` or nothing; `callee` a name with its `@`, or an assembly's text."""

    result: str
    type: str
    callee: str
    constraints: str  # of an assembly
    arguments: tuple[Argument, ...]
    is_assembly: bool
    rest: str


_CALL = re.compile(r'^\s*(?:(%(?:"[^"]+"|[\w.$-]+)) = )?(?:tail |musttail |notail )?call ')
_CALL_FLAGS = re.compile(
    r"(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|fastcc|coldcc|ccc|noundef|nonnull|zeroext|signext|align \d+"
    r"|(range|nofpclass)\([^()]*\)) "
)


def call_of(line: str) -> Call | None:
    """Read a call, or None if the line is none."""
    match = _CALL.match(line)
    if match is None:
        return None
    k = match.end()
    while flag := _CALL_FLAGS.match(line, k):
        k = flag.end()
    end = end_of_type(line, k)
    kind, k = line[k:end], end + 1
    if line[k] == "(":  # the type of a variadic function follows
        k = end_of_group(line, k) + 1
    constraints = ""
    is_assembly = line.startswith("asm ", k)
    if is_assembly:
        found = re.compile(r'asm (?:sideeffect |alignstack |inteldialect |unwind )*"((?:[^"])*)", "([^"]*)"').match(
            line, k
        )
        if found is None:
            raise CodegenError(f"cannot read the assembly in `{line.strip()[:200]}`")
        callee, constraints, k = found[1], found[2], found.end()
    else:
        stop = line.index('"', k + 2) + 1 if line.startswith('@"', k) else line.index("(", k)
        callee, k = line[k:stop], stop
    close = end_of_group(line, k)
    arguments = tuple(argument_of(part) for part in split_top(line[k + 1 : close - 1]))
    return Call(match[1] or "", kind, callee, constraints, arguments, is_assembly, line[close:])


@cache
def size_of(kind: str) -> tuple[int, int]:
    """Bytes that a value of a type takes in memory, and its natural alignment."""
    simple = re.fullmatch(r"i(\d+)|(half|bfloat)|(float)|(double)", kind)
    if simple:
        size = (int(simple[1]) + 7) // 8 if simple[1] else 2 if simple[2] else 4 if simple[3] else 8
        return size, size
    if kind.startswith("ptr"):
        return 8, 8
    vector = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    if vector:
        size = int(vector[1]) * size_of(vector[2])[0]
        return size, size
    try:
        module = llvm.parse_assembly(
            f'target datalayout = "{target_machine().target_data}"\n@x = external global {kind}'
        )
    except RuntimeError:
        raise CodegenError(f"the size of type `{kind}` is not known") from None
    variable = module.get_global_variable("x").global_value_type
    data = target_machine().target_data
    return data.get_abi_size(variable), data.get_abi_alignment(variable)


def unescape(text: str) -> str:
    """The text of a quoted string of LLVM IR."""
    return re.sub(r"\\([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def bits_of(kind: str) -> int:
    """Bits of a scalar or vector type."""
    if kind == "i1":
        return 1
    return size_of(kind)[0] * 8
