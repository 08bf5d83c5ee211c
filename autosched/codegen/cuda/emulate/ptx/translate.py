"""Inline PTX to LLVM IR: the assembly becomes a function, its registers variables, its labels blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autosched.codegen.cuda.emulate.emit import Body
from autosched.codegen.cuda.emulate.ptx import (  # fill HANDLERS
    arithmetic,
    asynchronous,
    matrix,
    mbarrier,
    movement,
    synchronise,
    warpgroup,
)
from autosched.codegen.cuda.emulate.ptx.parse import Declaration, Instruction, Label, Register, parse
from autosched.codegen.cuda.emulate.ptx.state import HANDLERS, Assembly, Handler
from autosched.codegen.cuda.emulate.ptx.types import width
from autosched.codegen.cuda.emulate.text import Argument, bits_of, split_top, unescape
from autosched.errors import CodegenError

_FAMILIES = (arithmetic, asynchronous, matrix, mbarrier, movement, synchronise, warpgroup)


def assembly(
    text: str, constraints: str, kind: str, arguments: Sequence[Argument], function: str, site: int, where: str
) -> str:
    """The definition of `function`, which does what an inline assembly does.

    text         as between the quotes of LLVM IR; `$0` … are results, then arguments
    kind         the type of its result: void, one type or a struct
    Raises CodegenError, with the instruction, for PTX that the emulator does not know.
    """
    state = Assembly(site, where)
    body = state.body
    outputs = [part for part in constraints.split(",") if part.startswith("=")]
    results = [] if kind == "void" else split_top(kind[1:-1].strip()) if kind.startswith("{") else [kind]
    if len(results) != len(outputs):
        raise CodegenError(f"an assembly with {len(outputs)} outputs and the result {kind}", where=where)
    for k, result in enumerate(results):
        state.declare(f"${k}", bits_of(result))
        body.add(f"store i{bits_of(result)} 0, ptr {state.place(f'${k}')}")
    inputs = [part for part in constraints.split(",") if not part.startswith(("=", "~"))]
    for k, (argument, constraint) in enumerate(zip(arguments, inputs, strict=True)):
        name, bits = f"${len(results) + k}", bits_of(argument.type)
        word = body.to_word(argument.type, f"%p{k}")
        value = word if bits == 64 else body.new(f"trunc i64 {word} to i{bits}")
        state.declare(name, bits)
        body.add(f"store i{bits} {value}, ptr {state.place(name)}")
        if constraint.isdigit():
            body.add(f"store i{bits} {value}, ptr {state.place('$' + constraint)}")
    source = re.sub(r"\$\{(\d+)(?::\w+)?\}", r"$\1", unescape(text)).replace("$$", "%%")
    statements = parse(source.replace("%%", "$"))
    for statement in statements:
        if isinstance(statement, Declaration):
            for name in statement.names:
                state.declare(name, width(statement.type))
    for statement in statements:
        match statement:
            case Label(name=name):
                body.add(f'br label %"label.{name}"')
                body.label(f'"label.{name}"')
            case Instruction():
                handler = HANDLERS.get(statement.opcode[0])
                if handler is None:
                    raise state.refuse(f"instruction `{statement.text}`")
                _guarded(state, statement, handler)
    if kind == "void":
        body.add("ret void")
    else:
        typed = []
        for k, result in enumerate(results):
            bits = bits_of(result)
            value = body.new(f"load i{bits}, ptr {state.place(f'${k}')}")
            typed.append((result, value if result == f"i{bits}" else _as(body, bits, value, result)))
        body.add(f"ret {kind} {body.pack(kind, typed)}")
    return body.function(kind, function, [argument.type for argument in arguments])


def _as(body: Body, bits: int, value: str, kind: str) -> str:
    if kind.startswith("ptr"):
        return body.new(f"inttoptr i{bits} {value} to {kind}")
    return body.new(f"bitcast i{bits} {value} to {kind}")


def _guarded(state: Assembly, instruction: Instruction, handler: Handler) -> None:
    if instruction.predicate is None:
        handler(state, instruction)
        return
    body = state.body
    condition = state.read(Register(instruction.predicate), 1)
    then, after = state.new_label(), state.new_label()
    order = f"label %{after}, label %{then}" if instruction.if_not else f"label %{then}, label %{after}"
    body.add(f"br i1 {condition}, {order}")
    body.label(then)
    handler(state, instruction)
    body.add(f"br label %{after}")
    body.label(after)
