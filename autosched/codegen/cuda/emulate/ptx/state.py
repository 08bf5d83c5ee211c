"""What the compiler of one inline assembly knows: registers, operands, where its results go."""

from __future__ import annotations

from collections.abc import Callable

from autosched.codegen.cuda.emulate.emit import Body
from autosched.codegen.cuda.emulate.ptx.parse import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Special,
    Vector,
)
from autosched.codegen.cuda.emulate.registers import special_register
from autosched.errors import CodegenError


class Assembly:
    """One assembly in the making: what handlers of instructions read operands from and write results to."""

    def __init__(self, site: int, where: str):
        self.body = Body()
        self.site = site
        self.where = where
        self.registers: dict[str, int] = {}  # bits of each
        self.labels = 0

    def declare(self, name: str, bits: int) -> None:
        if name not in self.registers:
            self.registers[name] = bits
            self.body.add(f"{self.place(name)} = alloca i{bits}")
        elif self.registers[name] != bits:
            raise self.refuse(f"register {name} of two widths")

    @staticmethod
    def place(name: str) -> str:
        return f'%"r.{name}"'

    def refuse(self, what: str) -> CodegenError:
        return CodegenError(f"the emulator does not know the PTX {what}", where=self.where)

    def read(self, operand: Operand, bits: int) -> str:
        """An operand as iN."""
        body = self.body
        match operand:
            case Immediate(value=value):
                value &= (1 << bits) - 1
                return str(value) if bits > 1 else str(value & 1)
            case Special(name=name):
                word = special_register(body, name, self.where)
                return word if bits == 64 else body.new(f"trunc i64 {word} to i{bits}")
            case Negated(operand=inner):
                return body.new(f"xor i1 {self.read(inner, 1)}, true")
            case Register(name=name):
                if name not in self.registers:
                    raise self.refuse(f"register {name}, which is not declared")
                held = self.registers[name]
                value_name = body.new(f"load i{held}, ptr {self.place(name)}")
                if held == bits:
                    return value_name
                return body.new(f"{'trunc' if held > bits else 'zext'} i{held} {value_name} to i{bits}")
        raise self.refuse(f"operand {operand}")

    def word(self, operand: Operand, bits: int = 32) -> str:
        """An operand of `bits` as i64, with zeros above."""
        if isinstance(operand, Immediate):
            return str(operand.value & ((1 << bits) - 1))
        value = self.read(operand, bits)
        return value if bits == 64 else self.body.new(f"zext i{bits} {value} to i64")

    def write(self, operand: Operand, bits: int, value: str) -> None:
        """Put iN into a register; into a wider one with zeros above."""
        if isinstance(operand, Register):
            if operand.name == "_":
                return
            if operand.name not in self.registers:
                raise self.refuse(f"register {operand.name}, which is not declared")
            held = self.registers[operand.name]
            if held != bits:
                value = self.body.new(f"{'trunc' if held < bits else 'zext'} i{bits} {value} to i{held}")
            self.body.add(f"store i{held} {value}, ptr {self.place(operand.name)}")
            return
        raise self.refuse(f"result {operand}")

    def write_word(self, operand: Operand, bits: int, word: str) -> None:
        self.write(operand, bits, word if bits == 64 else self.body.new(f"trunc i64 {word} to i{bits}"))

    def address(self, operand: Operand, bits: int = 64) -> str:
        """The i64 of `[base + offset]`; `bits` is what shared addresses have in a 32-bit register."""
        if not isinstance(operand, Address):
            raise self.refuse(f"address {operand}")
        base = operand.base
        held = self.registers.get(base.name, bits) if isinstance(base, Register) else bits
        word = self.word(base, held)
        return self.body.new(f"add i64 {word}, {operand.offset}") if operand.offset else word

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        return operand.items if isinstance(operand, Vector) else (operand,)

    def new_label(self) -> str:
        self.labels += 1
        return f"l{self.labels}"


Handler = Callable[[Assembly, Instruction], None]
HANDLERS: dict[str, Handler] = {}  # by the first part of the opcode; one refuses the forms that it does not know


def ptx(*names: str) -> Callable[[Handler], Handler]:
    """Register a function that compiles the instructions of these names."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def only(state: Assembly, instruction: Instruction, known: frozenset[str]) -> tuple[str, ...]:
    """The parts of the opcode behind its name.

    Raises CodegenError if one is not in `known`: a modifier that is not understood is not ignored.
    """
    parts = instruction.opcode[1:]
    if unknown := [part for part in parts if part not in known]:
        raise state.refuse(f"instruction `{instruction.text}`, for its .{unknown[0].replace('__', '::')}")
    return parts
