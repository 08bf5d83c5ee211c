"""From the LLVM IR of a CUDA kernel to code that runs on the host.

First LLVM inlines everything and puts variables into registers, as libnvvm would. Then each instruction of the kernel
that touches memory, asks for an index, or waits for other threads is rewritten to go through the emulator; an
instruction that it does not know is refused by name. What is left is arithmetic, which the host does itself.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field

from llvmlite import binding as llvm

from autosched.codegen.cuda.compiled import LINKED_MODULE
from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.arithmetic import definition, library
from autosched.codegen.cuda.emulate.emit import Body, runtime
from autosched.codegen.cuda.emulate.intrinsics import intrinsic, numba_atomic
from autosched.codegen.cuda.emulate.machine import machine, optimise, target_machine, to_machine_code
from autosched.codegen.cuda.emulate.ptx import assembly
from autosched.codegen.cuda.emulate.text import (
    Argument,
    Call,
    argument_of,
    call_of,
    end_of_group,
    end_of_type,
    size_of,
    split_top,
)
from autosched.errors import CodegenError

_SPACE_FLAGS = {0: 0, 1: at.IN_GLOBAL, 3: at.IN_SHARED, 4: 0, 5: at.IN_LOCAL}


@dataclass(frozen=True)
class Site:
    """An instruction of the kernel: as LLVM prints it, and the line of the source, if the IR has one."""

    text: str
    line: int | None


@dataclass(frozen=True)
class Variable:
    """Memory that the kernel itself declares: shared, local or constant."""

    name: str
    offset: int
    size_bytes: int


@dataclass
class Program:
    """A kernel compiled for the host."""

    symbol: str
    entry: int  # address
    parameters: tuple[Argument, ...]
    sites: tuple[Site, ...]
    static_shared: tuple[Variable, ...]
    dynamic_offset: int  # where dynamic shared memory begins, behind the static
    local: tuple[Variable, ...]
    constants: tuple[tuple[int, int, str], ...]  # address, bytes, name
    n_args: int  # words of operands that an instruction needs at most
    engine: llvm.ExecutionEngine
    text: str = field(repr=False, default="")

    @property
    def local_bytes(self) -> int:
        return max((variable.offset + variable.size_bytes for variable in self.local), default=0)


_PROGRAMS: OrderedDict[tuple[str, str], Program] = OrderedDict()
_KEPT_PROGRAMS = 64


def program_of(text: str, symbol: str) -> Program:
    """The program of one kernel in a module's text; the last ones are kept.

    Raises CodegenError if the kernel is not there, or uses what the emulator does not know.
    """
    key = (text, symbol)
    if key not in _PROGRAMS:
        _PROGRAMS[key] = Translator(text, symbol).program()
        while len(_PROGRAMS) > _KEPT_PROGRAMS:
            _PROGRAMS.popitem(last=False)
    _PROGRAMS.move_to_end(key)
    return _PROGRAMS[key]


def _parse(text: str, symbol: str) -> llvm.ModuleRef:
    """One of the modules of a kernel, as the host's."""
    host = target_machine()
    text = re.sub(r'^target datalayout = ".*"$', f'target datalayout = "{host.target_data}"', text, flags=re.M)
    text = re.sub(r'^target triple = ".*"$', f'target triple = "{host.triple}"', text, flags=re.M)
    text = text.replace("llvm.nvvm.", "nvvm.")
    text = re.sub(r"\b(noinline|optnone)\b", "", text)
    text = re.sub(
        r'^(declare .*@"?nvvm\.read\.ptx\.sreg\.[^\n]*\))', r"\1 nounwind willreturn memory(none)", text, flags=re.M
    )
    pure = re.compile(r'^(declare [^\n@]*@"?(?:nvvm\.([\w.]+)|__nv_\w+)"?\([^\n]*\))', re.M)

    def purified(match: re.Match[str]) -> str:
        takes_pointer = "*" in match[1] or "ptr" in match[1]
        arithmetic = not takes_pointer if match[2] is None else definition(match[2]) is not None
        if arithmetic:
            return match[1] + " nounwind willreturn memory(none)"
        return match[1] if "sreg" in match[1] else match[1] + " convergent noduplicate"

    text = pure.sub(purified, text)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM does not read the kernel's code: {error}", where=symbol) from None
    return module


def _prepare(text: str, symbol: str) -> llvm.ModuleRef:
    """The module with everything inlined into the kernel and variables in registers."""
    module, *others = [_parse(part, symbol) for part in text.split(LINKED_MODULE)]
    for other in others:
        module.link_in(other)
    if symbol not in {function.name for function in module.functions if not function.is_declaration}:
        kernels = [function.name for function in module.functions if not function.is_declaration]
        raise CodegenError(f"the module has no kernel {symbol!r}", hint=f"it defines {', '.join(kernels) or 'nothing'}")
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.name != symbol:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    optimise(
        module,
        ("always_inliner", "sroa", "simplify_cfg", "instruction_combine", "sroa", "simplify_cfg", "new_gvn")
        + ("dead_code_elimination", "instruction_namer"),
    )
    return module


class Translator:
    """Rewrites one kernel."""

    def __init__(self, text: str, symbol: str):
        self.symbol = symbol
        module = _prepare(text, symbol)
        self.lines_of_scopes = _source_lines(str(module)) if "!DILocation" in text else {}
        self.function = str(module.get_function(symbol))
        self.sites: list[Site] = []
        self.helpers: list[str] = []
        self.local: list[Variable] = []
        self.n_args = 8
        self.count = 0
        self.uses_memory_intrinsics = False
        self.shared: dict[str, int] = {}
        self.static_shared: list[Variable] = []
        self.constants: dict[str, tuple[int, str]] = {}
        self._place_globals(module)
        self.data = target_machine().target_data

    def _place_globals(self, module: llvm.ModuleRef) -> None:
        offset, dynamic = 0, []
        self.definitions: dict[str, str] = {}
        for variable in module.global_variables:
            name = variable.name
            if not re.search(rf'@"?{re.escape(name)}"?(?![\w.$])', self.function):
                continue
            kind = str(variable.global_value_type)
            size, align = size_of(kind)
            declared = re.search(r"align (\d+)", str(variable))
            align = max(align, int(declared[1])) if declared else align
            if "addrspace(3)" in str(variable.type):
                if size == 0 or variable.is_declaration:
                    dynamic.append(name)
                    continue
                offset = -(-offset // align) * align
                self.shared[name] = offset
                self.static_shared.append(Variable(name, offset, size))
                offset += size
            elif "constant" in str(variable).split("=", 1)[1].split("[")[0]:
                text = str(variable).strip()
                text = re.sub(r"= (internal |private )?(unnamed_addr |local_unnamed_addr )?", "= ", text, count=1)
                self.constants[name] = (size, text)
            else:
                raise CodegenError(
                    f"the kernel uses the variable {name}, which is neither shared nor constant", where=self.symbol
                )
        self.dynamic_offset = -(-offset // 1024) * 1024 if dynamic and offset else offset
        if dynamic and offset:
            self.dynamic_offset = -(-offset // 16) * 16
        self.shared.update(dict.fromkeys(dynamic, self.dynamic_offset))

    def program(self) -> Program:
        header, *lines = (line for line in self.function.strip().split("\n") if not line.startswith(";"))
        start = header.index(
            "(", header.index("@" + (f'"{self.symbol}"' if f'@"{self.symbol}"' in header else self.symbol))
        )
        parameters = tuple(argument_of(part) for part in split_top(header[start + 1 : end_of_group(header, start) - 1]))
        body = Body(prefix="%emu.p")
        body.add("; parameters")
        block = body.load(at.BLOCK)
        place = body.new(f"add i64 {block}, {at.PARAMS * 8}")
        place = body.new(f"inttoptr i64 {place} to ptr")
        table = body.new(f"load ptr, ptr {place}")
        for k, parameter in enumerate(parameters):
            slot = body.new(f"getelementptr i64, ptr {table}, i64 {k}")
            body.add(f"{parameter.value} = load {parameter.type}, ptr {slot}")
        written: list[str] = []
        first = True
        for line in lines:
            if first and re.match(r'^("[^"]+"|[\w.$-]+):', line):
                written += [line, *body.lines]
                first = False
                continue
            written += self._line(line)
        assert not first, "the entry block has a name, as the pass instnamer gives it"
        text = self._module(written)
        return self._compile(text, parameters)

    def _module(self, lines: list[str]) -> str:
        host = target_machine()
        head = f'target datalayout = "{host.target_data}"\ntarget triple = "{host.triple}"\n'
        constants = "".join(text + "\n" for _, text in self.constants.values())
        kernel = "define internal void @emu.kernel(ptr %ctx) {\n" + "\n".join(lines) + "\n"
        body = constants + kernel + "\n".join(self.helpers)
        return head + library(body) + body + runtime(machine().addresses)

    def _compile(self, text: str, parameters: tuple[Argument, ...]) -> Program:
        text += "".join(sorted(_missing_declarations(text)))
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"the emulator wrote code that LLVM does not read: {error}", where=self.symbol) from None
        optimise(
            module,
            ("always_inliner", "sroa", "instruction_combine", "simplify_cfg", "new_gvn", "global_dead_code_eliminate")
            + ("strip_dead_prototype",),
        )
        unknown = [f.name for f in module.functions if f.is_declaration and f.name.startswith(("nvvm.", "__nv"))]
        if unknown:
            names = ", ".join("llvm." + name for name in unknown)
            raise CodegenError(f"the emulator does not know the intrinsics {names}", where=self.symbol)
        engine = to_machine_code(module)
        constants = tuple(
            (engine.get_global_value_address(name), size, name) for name, (size, _) in self.constants.items()
        )
        return Program(
            self.symbol,
            engine.get_function_address("emu.entry"),
            parameters,
            tuple(self.sites),
            tuple(self.static_shared),
            self.dynamic_offset,
            tuple(self.local),
            constants,
            self.n_args,
            engine,
            text,
        )

    def _site(self, line: str) -> int:
        number = re.search(r"!dbg !(\d+)", line)
        text = re.sub(r",? !\w[\w.]* !\d+", "", line).strip()
        self.sites.append(Site(text, self.lines_of_scopes.get(number[1]) if number else None))
        return len(self.sites) - 1

    def _name(self) -> str:
        self.count += 1
        return f"%emu.{self.count}"

    def _constants(self, line: str) -> str:
        """Put the addresses of shared variables in place of their names, also in constant expressions."""
        for name, offset in self.shared.items():
            address = f"inttoptr (i64 {at.SHARED_WINDOW * 0 + at.SHARED_START + offset} to ptr addrspace(3))"
            line = re.sub(rf'@"?{re.escape(name)}"?(?![\w.$])', address, line)
        while (k := line.find("addrspacecast (")) >= 0:
            end = end_of_group(line, k + len("addrspacecast "))
            inner = line[k + len("addrspacecast (") : end - 1]
            stop = end_of_type(inner)
            kind, (value, _, target) = inner[:stop], inner[stop + 1 :].rpartition(" to ")
            word = f"ptrtoint ({kind} {value} to i64)"
            if delta := _difference(kind, target):
                word = f"add (i64 {word}, i64 {delta})"
            line = line[:k] + f"inttoptr (i64 {word} to {target})" + line[end:]
        return line

    def _line(self, line: str) -> list[str]:
        if not line.startswith("  ") or line.lstrip().startswith(("#dbg", ";")):
            return [] if line.lstrip().startswith("#dbg") else [line]
        if self.shared or "addrspacecast (" in line:
            line = self._constants(line)
        operation = re.match(r'^\s+(?:(%(?:"[^"]+"|[\w.$-]+)) = )?(.*)$', line)
        assert operation is not None
        result, rest = operation[1] or "", operation[2]
        verb = rest.split(" ", 1)[0]
        match verb:
            case "load":
                return self._load(line, result, rest)
            case "store":
                return self._store(line, rest)
            case "atomicrmw" | "cmpxchg":
                return self._atomic(line, result, rest)
            case "alloca":
                return self._alloca(line, result, rest)
            case "addrspacecast":
                return self._cast(result, rest)
            case "call" | "tail" | "musttail" | "notail":
                return self._call(line)
            case "fence":
                return self._fenced()
            case "unreachable":
                return ["  call void @emu.fail(ptr %ctx)", "  unreachable"]
            case "invoke" | "callbr" | "va_arg" | "indirectbr":
                raise CodegenError(f"the emulator does not know the instruction `{rest}`", where=self.symbol)
        return [_without_metadata(line)]

    def _address(self, operand: str) -> tuple[list[str], str, int]:
        """Lines that make the i64 of a pointer operand, its name, and the flags of its address space."""
        stop = end_of_type(operand)
        kind, value = operand[:stop], operand[stop + 1 :]
        space = re.search(r"addrspace\((\d+)\)", kind)
        number = int(space[1]) if space else 0
        if number not in _SPACE_FLAGS:
            raise CodegenError(f"the emulator does not know address space {number}", where=self.symbol)
        name = self._name()
        return [f"  {name} = ptrtoint {kind} {value} to i64"], name, _SPACE_FLAGS[number]

    def _host(self, line: str, operand: str, kind: str, align: int, flags: int) -> tuple[list[str], str]:
        lines, address, space = self._address(operand)
        name = self._name()
        size, _ = size_of(kind)
        site = self._site(line)
        lines.append(_access(name, address, size, align, flags | space, site))
        return lines, name

    def _load(self, line: str, result: str, rest: str) -> list[str]:
        match = re.match(r"load (atomic )?(volatile )?", rest)
        assert match is not None
        k = match.end()
        stop = end_of_type(rest, k)
        kind, operands = rest[k:stop], split_top(rest[stop + 2 :])
        operand = re.sub(r' (syncscope\("\w*"\) )?(unordered|monotonic|acquire|seq_cst)$', "", operands[0])
        flags = at.ATOMIC if match[1] or match[2] else 0
        lines, place = self._host(line, operand, kind, _align(operands, kind), flags)
        if flags:
            lines = [*self._pause(), *lines]
        return [*lines, f"  {result} = load {kind}, ptr {place}, align 1"]

    def _store(self, line: str, rest: str) -> list[str]:
        match = re.match(r"store (atomic )?(volatile )?", rest)
        assert match is not None
        k = match.end()
        value, *operands = split_top(rest[k:])
        kind = value[: end_of_type(value)]
        operand = re.sub(r' (syncscope\("\w*"\) )?(unordered|monotonic|release|seq_cst)$', "", operands[0])
        flags = at.WRITE | (at.ATOMIC if match[1] or match[2] else at.COMPARED)
        lines, place = self._host(line, operand, kind, _align(operands, kind), flags)
        return [*lines, f"  store {value}, ptr {place}, align 1", "  call void @emu.stored(ptr %ctx)"]

    def _atomic(self, line: str, result: str, rest: str) -> list[str]:
        """Keep the host's atomic instruction, on the host's address."""
        verb = re.match(r"(atomicrmw (?:volatile )?\w+|cmpxchg (?:weak )?(?:volatile )?) ?", rest)
        assert verb is not None
        pointer, value, *others = split_top(rest[verb.end() :])
        kind = value[: end_of_type(value)]
        lines, place = self._host(line, pointer, kind, _align(others, kind), at.WRITE | at.ATOMIC)
        if verb[1].startswith("cmpxchg"):
            lines = [*self._pause(), *lines]
        operands = ", ".join(
            [f"ptr {place}", value, *(other for other in others if not other.startswith(("align", "!")))]
        )
        operands = re.sub(r'syncscope\("\w*"\) ', "", operands)
        return [*lines, f"  {result} = {verb[1].strip()} {operands}"]

    def _pause(self) -> list[str]:
        """Let other threads go on, so that a loop that waits for one of them ends."""
        place = self._name()
        return [
            f"  {place} = getelementptr i64, ptr %ctx, i64 {at.OP}",
            f"  store i64 {at.PAUSE}, ptr {place}",
            "  call void @emu.yield(ptr %ctx)",
        ]

    def _fenced(self) -> list[str]:
        place = self._name()
        return [f"  {place} = getelementptr i64, ptr %ctx, i64 {at.FENCED}", f"  store i64 1, ptr {place}"]

    def _alloca(self, line: str, result: str, rest: str) -> list[str]:
        stop = end_of_type(rest, 7)
        kind, operands = rest[7:stop], split_top(rest[stop + 1 :].lstrip(", "))
        size, align = size_of(kind)
        for operand in operands:
            if match := re.fullmatch(r"i\d+ (\S+)", operand):
                if not match[1].isdigit():
                    raise CodegenError(f"local memory of a size that is known at run time: `{rest}`", where=self.symbol)
                size *= int(match[1])
            elif match := re.fullmatch(r"align (\d+)", operand):
                align = max(align, int(match[1]))
        if size >= at.LOCAL_SPACING:
            raise CodegenError(f"a local variable of {size} bytes", where=self.symbol)
        offset = sum(-(-variable.size_bytes // 64) * 64 for variable in self.local)
        address = at.LOCAL_BASE + len(self.local) * at.LOCAL_SPACING
        self.local.append(Variable(result, offset, size))
        space = re.search(r"addrspace\(\d+\)", rest)
        return [f"  {result} = inttoptr i64 {address} to ptr{' ' + space[0] if space else ''}"]

    def _cast(self, result: str, rest: str) -> list[str]:
        stop = end_of_type(rest, len("addrspacecast "))
        kind = rest[len("addrspacecast ") : stop]
        value, _, target = _without_metadata(rest[stop + 1 :]).rpartition(" to ")
        number, moved = self._name(), self._name()
        return [
            f"  {number} = ptrtoint {kind} {value} to i64",
            f"  {moved} = add i64 {number}, {_difference(kind, target)}",
            f"  {result} = inttoptr i64 {moved} to {target}",
        ]

    def _call(self, line: str) -> list[str]:
        call = call_of(line)
        assert call is not None, line
        if call.is_assembly:
            site = self._site(line)
            made = assembly(
                call.callee, call.constraints, call.type, call.arguments, f"@emu.asm.{site}", site, self._where(line)
            )
            return self._replaced(call, f"@emu.asm.{site}", made)
        name = call.callee.strip('@"')
        if name.startswith(("llvm.lifetime.", "llvm.assume", "llvm.dbg.", "llvm.experimental.noalias")):
            return []
        if name.startswith(("llvm.memcpy.", "llvm.memmove.", "llvm.memset.")):
            return self._bulk(line, call, name)
        if name in ("llvm.trap", "llvm.debugtrap"):
            return ["  call void @emu.fail(ptr %ctx)"]
        if name.startswith("nvvm."):
            if definition(name.removeprefix("nvvm.")) is not None:
                return [_without_attributes(line)]
            site = self._site(line)
            types = [argument.type for argument in call.arguments]
            made = intrinsic(name.removeprefix("nvvm."), call.type, types, f"@emu.op.{site}", site, self._where(line))
            return self._replaced(call, f"@emu.op.{site}", made)
        if name.startswith("___numba_atomic"):
            site = self._site(line)
            types = [argument.type for argument in call.arguments]
            made = numba_atomic(name, call.type, types, f"@emu.op.{site}", site, self._where(line))
            return self._replaced(call, f"@emu.op.{site}", made)
        if name.startswith("__nv_"):
            if any(argument.type.startswith("ptr") for argument in call.arguments):
                return self._with_results(line, call)
            return [_without_attributes(line)]
        if name.startswith("llvm."):
            return [_without_attributes(line)]
        raise CodegenError(f"the emulator does not know the function {name}", where=self._where(line))

    def _where(self, line: str) -> str:
        number = re.search(r"!dbg !(\d+)", line)
        source = self.lines_of_scopes.get(number[1]) if number else None
        return f"kernel {self.symbol}" + (f", line {source}" if source else "")

    def _replaced(self, call: Call, function: str, definition_text: str) -> list[str]:
        """A call of `function`, which takes the thread's record too, in place of `call`."""
        self.helpers.append(definition_text)
        for match in re.finditer(r"getelementptr i64, ptr %ctx, i64 (\d+)", definition_text):
            self.n_args = max(self.n_args, int(match[1]) - at.ARGS + 1)
        arguments = ", ".join(["ptr %ctx", *(f"{a.type} {a.value}" for a in call.arguments)])
        result = f"{call.result} = " if call.result else ""
        return [f"  {result}call {call.type} {function}({arguments})"]

    def _bulk(self, line: str, call: Call, name: str) -> list[str]:
        """memcpy and its like: check both ranges, then do it on the host."""
        target, source, count, *_ = call.arguments
        bytes_moved = self._name()
        lines = [f"  {bytes_moved} = zext {count.type} {count.value} to i64"] if count.type == "i32" else []
        amount = bytes_moved if lines else count.value
        site = self._site(line)
        places = []
        for argument, flags in ((target, at.WRITE), (source, 0)):
            if not argument.type.startswith("ptr"):
                places.append(f"{argument.type} {argument.value}")
                continue
            made, address, space = self._address(f"{argument.type} {argument.value}")
            place = self._name()
            lines += made
            lines.append(_access(place, address, amount, 1, flags | space, site))
            places.append(f"ptr {place}")
        kind = "memset.p0" if "memset" in name else "memcpy.p0.p0" if "memcpy" in name else "memmove.p0.p0"
        lines.append(f"  call void @llvm.{kind}.i64({places[0]}, {places[1]}, i64 {amount}, i1 false)")
        return lines

    def _with_results(self, line: str, call: Call) -> list[str]:
        """A function of libdevice that writes results through pointers (sincos, modf, frexp)."""
        size = {"__nv_sincos": 8, "__nv_modf": 8, "__nv_sincospi": 8}.get(call.callee.strip('@"'), 4)
        lines, arguments = [], []
        for argument in call.arguments:
            if argument.type.startswith("ptr"):
                made, place = self._host(line, f"{argument.type} {argument.value}", f"i{size * 8}", 1, at.WRITE)
                lines += made
                arguments.append(f"ptr {place}")
            else:
                arguments.append(f"{argument.type} {argument.value}")
        result = f"{call.result} = " if call.result else ""
        return [*lines, f"  {result}call {call.type} {call.callee}({', '.join(arguments)})"]


def _access(name: str, address: str, size: int | str, align: int, flags: int, site: int) -> str:
    """The line that checks an access and gives the host's pointer the name."""
    operands = f"i64 {address}, i64 {size}, i64 {align}, i64 {flags}, i64 {site}"
    return f"  {name} = call ptr @emu.access(ptr %ctx, {operands})"


def _difference(kind: str, target: str) -> int:
    """What an address changes by from one space to another."""
    return at.GENERIC_SHARED * (("addrspace(3)" in kind) - ("addrspace(3)" in target))


def _align(operands: list[str], kind: str) -> int:
    declared = [int(operand.split()[1]) for operand in operands if operand.startswith("align ")]
    return declared[0] if declared else size_of(kind)[1]


def _without_metadata(line: str) -> str:
    return re.sub(r",? !\w[\w.]* !\d+", "", line)


def _without_attributes(line: str) -> str:
    return re.sub(r" #\d+", "", _without_metadata(line))


def _source_lines(module: str) -> dict[str, int]:
    """Lines of the source by the number of their metadata."""
    return {m[1]: int(m[2]) for m in re.finditer(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)", module, re.M)}


def _missing_declarations(text: str) -> set[str]:
    """Declarations of the intrinsics that a module calls and does not define."""
    defined = set(re.findall(r"^(?:declare|define)[^@\n]*@([\w.]+)", text, re.M))
    missing = {}
    for line in text.split("\n"):
        if "@llvm." not in line and "@nvvm." not in line:
            continue
        call = call_of(line)
        if call is None or call.is_assembly:
            continue
        name = call.callee[1:]
        if name.startswith(("llvm.", "nvvm.")) and name not in defined:
            missing[name] = f"declare {call.type} {call.callee}({', '.join(a.type for a in call.arguments)})\n"
    return set(missing.values())
