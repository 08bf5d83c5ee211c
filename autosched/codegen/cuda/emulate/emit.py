"""LLVM IR for an emulated instruction: operands into the thread's record, a wait, results out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.text import bits_of


@dataclass
class Body:
    """Lines of a function in the making, with new names for values."""

    lines: list[str] = field(default_factory=list)
    count: int = 0
    prefix: str = "%v"

    def new(self, text: str) -> str:
        """Add `name = text` and give the name."""
        self.count += 1
        name = f"{self.prefix}{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def add(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(name + ":")

    def to_word(self, kind: str, value: str) -> str:
        """A scalar of any type as i64, with zeros above its bits."""
        if kind.startswith("ptr"):
            return self.new(f"ptrtoint {kind} {value} to i64")
        bits = bits_of(kind)
        if not kind.startswith("i"):
            value = self.new(f"bitcast {kind} {value} to i{bits}")
        return value if bits == 64 else self.new(f"zext i{bits} {value} to i64")

    def from_word(self, kind: str, value: str) -> str:
        """The reverse of `to_word`."""
        if kind.startswith("ptr"):
            return self.new(f"inttoptr i64 {value} to {kind}")
        bits = bits_of(kind)
        if bits < 64:
            value = self.new(f"trunc i64 {value} to i{bits}")
        return value if kind.startswith("i") else self.new(f"bitcast i{bits} {value} to {kind}")

    def field(self, number: int) -> str:
        return self.new(f"getelementptr i64, ptr %ctx, i64 {number}")

    def load(self, number: int) -> str:
        """A word of the thread's record."""
        return self.new(f"load i64, ptr {self.field(number)}")

    def store(self, number: int, value: str) -> None:
        self.add(f"store i64 {value}, ptr {self.field(number)}")

    def wait(self, operation: int, site: int, operands: Sequence[str], n_results: int) -> list[str]:
        """Stop at an instruction until the scheduler has done it. Operands and results are i64."""
        for k, operand in enumerate(operands):
            self.store(at.ARGS + k, operand)
        self.store(at.OP, str(operation))
        self.store(at.SITE, str(site))
        self.add("call void @emu.yield(ptr %ctx)")
        return [self.load(at.ARGS + k) for k in range(n_results)]

    def host(self, address: str, size: str, align: int, flags: int, site: int) -> str:
        """The host's pointer for an access of `size` bytes (i64) at a virtual address (i64), checked."""
        return self.new(
            f"call ptr @emu.access(ptr %ctx, i64 {address}, i64 {size}, i64 {align}, i64 {flags}, i64 {site})"
        )

    def check(self, ok: str) -> None:
        """Stop for good if a function of the machine gave 0."""
        self.add(f"call void @emu.check(ptr %ctx, i64 {ok})")

    def pack(self, kind: str, values: Sequence[tuple[str, str]]) -> str:
        """A struct of the typed values, or the only one of them."""
        if not kind.startswith("{"):
            return values[0][1]
        result = "poison"
        for k, (member, value) in enumerate(values):
            result = self.new(f"insertvalue {kind} {result}, {member} {value}, {k}")
        return result

    def function(self, kind: str, name: str, parameters: Sequence[str]) -> str:
        """The whole definition, to be inlined."""
        text = ", ".join(["ptr %ctx", *(f"{parameter} %p{k}" for k, parameter in enumerate(parameters))])
        return "\n".join([f"define internal {kind} {name}({text}) alwaysinline {{", *self.lines, "}", ""])


# Functions of the machine that kernels call by a name of their own, with their arguments.
_BOX = ("to", "map", "rank", "c0", "c1", "c2", "c3", "c4", "barrier", "blocks", "site")
_OF_MACHINE = (
    ("copy", "copy_async", ("to", "from", "count", "taken", "site")),
    ("wait_copies", "wait_copies", ("groups",)),
    ("mbarrier_init", "mbarrier_init", ("a", "n", "site")),
    ("mbarrier_inval", "mbarrier_inval", ("a", "site")),
    ("copies_arrive", "copies_arrive", ("a", "counted", "site")),
    ("mbarrier_arrive", "mbarrier_arrive", ("a", "n", "bytes", "site")),
    ("mbarrier_test", "mbarrier_test", ("a", "parity", "site")),
    ("bulk_copy", "bulk_copy", ("to", "from", "count", "barrier", "site")),
    ("tensor_copy", "tensor_copy", _BOX),
)


def runtime(addresses: dict[str, int]) -> str:
    """The functions that every emulated kernel calls, over the machine's."""

    def call(name: str, *arguments: str) -> str:
        types = ", ".join(f"i64 %{argument}" for argument in arguments)
        return f"call i64 inttoptr (i64 {addresses[name]} to ptr)({types})"

    def of_machine(name: str, machines: str, arguments: Sequence[str]) -> str:
        types = ", ".join(["ptr %ctx", *(f"i64 %{argument}" for argument in arguments)])
        return f"""define internal i64 @emu.{name}({types}) alwaysinline {{
  %t = ptrtoint ptr %ctx to i64
  %r = {call(machines, "t", *arguments)}
  ret i64 %r
}}"""

    forwards = "\n".join(of_machine(*function) for function in _OF_MACHINE)
    return f"""
define internal void @emu.yield(ptr %ctx) alwaysinline {{
  %t = ptrtoint ptr %ctx to i64
  %f = getelementptr i64, ptr %ctx, i64 {at.BLOCK}
  %b = load i64, ptr %f
  call void inttoptr (i64 {addresses["switch"]} to ptr)(i64 %t, i64 %b)
  ret void
}}
define internal void @emu.fail(ptr %ctx) noinline cold {{
  %f = getelementptr i64, ptr %ctx, i64 {at.OP}
  store i64 {at.FAILED}, ptr %f
  call void @emu.yield(ptr %ctx)
  unreachable
}}
define internal void @emu.check(ptr %ctx, i64 %ok) alwaysinline {{
  %bad = icmp eq i64 %ok, 0
  br i1 %bad, label %fault, label %done
fault:
  call void @emu.fail(ptr %ctx)
  unreachable
done:
  ret void
}}
define internal ptr @emu.access(ptr %ctx, i64 %a, i64 %size, i64 %align, i64 %flags, i64 %site) alwaysinline {{
  %t = ptrtoint ptr %ctx to i64
  %r = {call("find", "t", "a", "size", "align", "flags", "site")}
  call void @emu.check(ptr %ctx, i64 %r)
  %p = inttoptr i64 %r to ptr
  ret ptr %p
}}
define internal void @emu.stored(ptr %ctx) alwaysinline {{
  %t = ptrtoint ptr %ctx to i64
  %f = getelementptr i64, ptr %ctx, i64 {at.SAME_BYTES}
  %w = load i64, ptr %f
  %met = icmp ne i64 %w, 0
  br i1 %met, label %compare, label %done
compare:
  %r = {call("same", "t")}
  call void @emu.check(ptr %ctx, i64 %r)
  br label %done
done:
  ret void
}}
{forwards}
define void @emu.entry(ptr %ctx) noinline {{
  call void @emu.kernel(ptr %ctx)
  %r = call i64 @emu.wait_copies(ptr %ctx, i64 -1)
  %f = getelementptr i64, ptr %ctx, i64 {at.OP}
  store i64 {at.DONE}, ptr %f
  call void @emu.yield(ptr %ctx)
  unreachable
}}
"""
