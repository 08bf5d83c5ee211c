"""The check of VM code that was read from a file: it runs, whatever the file says, to a result or an error."""

from __future__ import annotations

from collections.abc import Sequence, Set

from autosched.runtime.artifact_check import check_tensor
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.kernel import check_count
from autosched.runtime.size_expr import Size, symbols_of
from autosched.runtime.vm_code import Code, Instruction, VMFunction

_MOST_REGISTERS = 1 << 24


def check_code(code: Code) -> None:
    """See that functions name registers, segments, constants and functions that there are, and read what is written.

    Raises ValueError, and TypeError, KeyError or IndexError for what is no code at all.
    """
    for function in code.functions.values():
        _FunctionCheck(code, function).check()


class _FunctionCheck:
    """The check of one function."""

    def __init__(self, code: Code, function: VMFunction):
        self.code, self.function = code, function

    def check(self) -> None:
        function, name = self.function, self.function.name
        check_count(f"number of registers of '{name}'", function.n_registers, _MOST_REGISTERS)
        if len(function.params) > function.n_registers:
            raise ValueError(f"'{name}' has more parameters than registers")
        said = {symbol for param in function.params for symbol in param.symbols}
        after = self.sequence(function.code, {*range(len(function.params)), *said})
        self.are_registers(function.result)
        if function.result not in after:
            raise ValueError(f"'{name}' gives register {function.result}, in which nothing is")

    def are_registers(self, *numbers: object) -> None:
        for number in numbers:
            check_count(f"register of '{self.function.name}'", number, self.function.n_registers - 1)

    def sequence(self, instructions: Sequence[Instruction], before: Set[int | str]) -> Set[int | str]:
        """The registers that hold something after instructions, those before, and symbols with values."""
        known = {*before}
        for instruction in instructions:
            self.names(instruction)
            read, sizes, written = _operands(instruction)
            self.are_registers(*read, *written)
            if early := [number for number in read if number not in known]:
                raise ValueError(f"'{self.function.name}' reads register {early[0]}, in which nothing is")
            if unsaid := [symbol for size in sizes for symbol in symbols_of(size) if symbol not in known]:
                raise ValueError(f"'{self.function.name}' computes with '{unsaid[0]}', which nothing has said")
            known.update(written)
            match instruction:
                case ["if", _, then, otherwise]:
                    known |= self.sequence(then, known) & self.sequence(otherwise, known)
                case ["check", _, _, shape, _]:
                    known.update(symbol for size in shape for symbol in symbols_of(size))
                case ["tail", *_]:
                    return {*range(self.function.n_registers), *self.function.symbols}  # nothing is read after it
        return known

    def names(self, instruction: Instruction) -> None:
        """See that an instruction's segment, function, constant or dtype is one, and fits."""
        match instruction:
            case ["run", segment, args, results]:
                check_count("segment", segment, len(self.code.segments) - 1)
                found = self.code.segments[segment]
                ends = found.form if isinstance(found, DynamicExecutable) else found.graph
                if (len(args), len(results)) != (len(ends.inputs), len(ends.outputs)):
                    raise ValueError(f"segment {segment} has other inputs or outputs")
            case ["call", _, name, args] | ["tail", name, args]:
                called = self.code.functions.get(name)
                if len(args) != len(self.code.symbolic[name] if called is None else called.params):
                    raise ValueError(f"a call of '{name}' has {len(args)} arguments")
            case ["item", _, _, index]:
                check_count("item", index)
            case ["const", _, number]:
                check_count("constant", number, len(self.code.constants) - 1)
            case ["packed_dps", results, outs, _, _]:
                if len(outs) != len(results):
                    raise ValueError("a call has other results")
                for shape, dtype in outs:
                    check_tensor("a result", dtype, [size for size in shape if isinstance(size, int)])


def _operands(instruction: Instruction) -> tuple[Sequence[int], Sequence[Size], Sequence[int]]:
    """The registers that an instruction reads, the sizes that it computes with, and the registers that it writes.

    Raises ValueError for what is none.
    """
    match instruction:
        case ["run", _, list() as args, list() as results]:
            return args, (), results
        case ["call", result, str(), list() as args] | ["packed", result, str(), list() as args]:
            return args, (), (result,)
        case ["tail", str(), list() as args]:
            return args, (), ()
        case ["tuple", result, list() as fields]:
            return fields, (), (result,)
        case ["item", result, source, _] | ["move", result, source]:
            return (source,), (), (result,)
        case ["const", result, _]:
            return (), (), (result,)
        case ["if", condition, list(), list()]:
            return (condition,), (), ()
        case ["check", register, str(), list(), str()]:
            return (register,), (), ()
        case ["number" | "blank", result, int() | str() | tuple() as size]:
            return (), (size,), (result,)
        case ["value", result, int() | float() | str() | list() | None as value]:
            return (), value if isinstance(value, list) else (), (result,)
        case ["packed_dps", list() as results, list() as outs, str(), list() as args]:
            return args, [size for shape, _ in outs for size in shape], results
    raise ValueError(f"unknown instruction {str(instruction)[:80]}")
