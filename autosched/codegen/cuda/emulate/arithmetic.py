"""The arithmetic of NVVM (`llvm.nvvm.*` that touch no memory) as LLVM IR, and libdevice, which is written with it.

`__nv_expf` and its like are taken from NVIDIA's libdevice, so that the emulated result is the device's, up to the
hardware's approximations (`ex2.approx`, `sin.approx`, …), which are computed in full precision here. Subnormal numbers
are kept where `.ftz` flushes them.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from llvmlite import binding as llvm

from autosched.codegen.cuda.emulate.ptx import assembly
from autosched.codegen.cuda.emulate.text import call_of
from autosched.errors import CodegenError

_FLOATS = {"f": "float", "d": "double"}
_SUFFIX = {"float": "f32", "double": "f64"}
_INTEGERS = {"i": ("i32", "s"), "ui": ("i32", "u"), "ll": ("i64", "s"), "ull": ("i64", "u")}
_ROUND = {"rn": "rint", "rz": "trunc", "rm": "floor", "rp": "ceil"}
_UNARY = {
    "ceil": "ceil",
    "floor": "floor",
    "trunc": "trunc",
    "round": "rint",
    "fabs": "fabs",
    "sqrt.rn": "sqrt",
    "sqrt.approx": "sqrt",
    "ex2.approx": "exp2",
    "lg2.approx": "log2",
    "sin.approx": "sin",
    "cos.approx": "cos",
    "tanh.approx": "tanh",
}


def _one(kind: str, name: str, parameters: str, lines: str) -> str:
    return f"define internal {kind} @nvvm.{name}({parameters}) alwaysinline {{\n{lines}\n}}\n"


def definition(name: str) -> str | None:
    """The definition of `nvvm.<name>` if it is arithmetic, None if it is not, or not known."""
    plain = name.replace(".ftz", "")
    if plain.endswith((".f32", ".f64")):
        plain = plain[:-3] + {"f32": "f", "f64": "d"}[plain[-3:]]
    stem, _, last = plain.rpartition(".")
    if kind := _FLOATS.get(last):
        suffix = _SUFFIX[kind]
        if stem in _UNARY:
            return _one(
                kind,
                name,
                f"{kind} %a",
                f"  %r = call {kind} @llvm.{_UNARY[stem]}.{suffix}({kind} %a)\n  ret {kind} %r",
            )
        if stem in ("add.rn", "mul.rn", "div.rn", "div.approx", "div.full"):
            return _one(kind, name, f"{kind} %a, {kind} %b", f"  %r = f{stem[:3]} {kind} %a, %b\n  ret {kind} %r")
        if stem in ("rcp.rn", "rcp.approx"):
            return _one(kind, name, f"{kind} %a", f"  %r = fdiv {kind} 1.0, %a\n  ret {kind} %r")
        if stem == "rsqrt.approx":
            lines = f"  %s = call {kind} @llvm.sqrt.{suffix}({kind} %a)\n  %r = fdiv {kind} 1.0, %s\n  ret {kind} %r"
            return _one(kind, name, f"{kind} %a", lines)
        if stem == "fma.rn":
            lines = f"  %r = call {kind} @llvm.fma.{suffix}({kind} %a, {kind} %b, {kind} %c)\n  ret {kind} %r"
            return _one(kind, name, f"{kind} %a, {kind} %b, {kind} %c", lines)
        if match := re.fullmatch(r"(fma|add|mul)\.(rz|rm|rp)", stem):
            return _directed(name, kind, match[1], match[2])
        if stem in ("fmax", "fmin"):
            lines = f"  %r = call {kind} @llvm.{stem[1:]}num.{suffix}({kind} %a, {kind} %b)\n  ret {kind} %r"
            return _one(kind, name, f"{kind} %a, {kind} %b", lines)
        if stem == "saturate":
            lines = (
                f"  %m = call {kind} @llvm.maxnum.{suffix}({kind} %a, {kind} 0.0)\n"
                f"  %r = call {kind} @llvm.minnum.{suffix}({kind} %m, {kind} 1.0)\n  ret {kind} %r"
            )
            return _one(kind, name, f"{kind} %a", lines)
    if match := re.fullmatch(r"([fd])2(i|ui|ll|ull)\.(rn|rz|rm|rp)", plain):
        kind, (whole, sign) = _FLOATS[match[1]], _INTEGERS[match[2]]
        suffix = _SUFFIX[kind]
        lines = (
            f"  %w = call {kind} @llvm.{_ROUND[match[3]]}.{suffix}({kind} %a)\n"
            f"  %r = call {whole} @llvm.fpto{sign}i.sat.{whole}.{suffix}({kind} %w)\n  ret {whole} %r"
        )
        return _one(whole, name, f"{kind} %a", lines)
    if match := re.fullmatch(r"(i|ui|ll|ull)2([fd])\.rn", plain):
        kind, (whole, sign) = _FLOATS[match[2]], _INTEGERS[match[1]]
        return _one(kind, name, f"{whole} %a", f"  %r = {sign}itofp {whole} %a to {kind}\n  ret {kind} %r")
    if match := re.fullmatch(r"mulhi\.(i|ui|ll|ull)", plain):
        whole, sign = _INTEGERS[match[1]]
        wide, bits = ("i64", 32) if whole == "i32" else ("i128", 64)
        extend = sign + "ext" if sign == "s" else "zext"
        lines = (
            f"  %x = {extend} {whole} %a to {wide}\n  %y = {extend} {whole} %b to {wide}\n  %m = mul {wide} %x, %y\n"
            f"  %h = lshr {wide} %m, {bits}\n  %r = trunc {wide} %h to {whole}\n  ret {whole} %r"
        )
        return _one(whole, name, f"{whole} %a, {whole} %b", lines)
    fixed = {
        "d2f.rn": ("float", "double %a", "  %r = fptrunc double %a to float\n  ret float %r"),
        "lohi.i2d": (
            "double",
            "i32 %a, i32 %b",
            "  %l = zext i32 %a to i64\n  %h = zext i32 %b to i64\n  %s = shl i64 %h, 32\n  %o = or i64 %s, %l\n"
            "  %r = bitcast i64 %o to double\n  ret double %r",
        ),
        "d2i.hi": (
            "i32",
            "double %a",
            "  %b = bitcast double %a to i64\n  %h = lshr i64 %b, 32\n  %r = trunc i64 %h to i32\n  ret i32 %r",
        ),
        "d2i.lo": ("i32", "double %a", "  %b = bitcast double %a to i64\n  %r = trunc i64 %b to i32\n  ret i32 %r"),
        "bitcast.f2i": ("i32", "float %a", "  %r = bitcast float %a to i32\n  ret i32 %r"),
        "bitcast.i2f": ("float", "i32 %a", "  %r = bitcast i32 %a to float\n  ret float %r"),
        "bitcast.d2ll": ("i64", "double %a", "  %r = bitcast double %a to i64\n  ret i64 %r"),
        "bitcast.ll2d": ("double", "i64 %a", "  %r = bitcast i64 %a to double\n  ret double %r"),
        "f2h.rn": ("i16", "float %a", "  %h = fptrunc float %a to half\n  %r = bitcast half %h to i16\n  ret i16 %r"),
    }
    if plain in fixed:
        return _one(fixed[plain][0], name, fixed[plain][1], fixed[plain][2])
    return None


def _directed(name: str, kind: str, operation: str, mode: str) -> str:
    """fma, add or mul rounded to zero, down or up: the nearest result, put right by the sign of its error."""
    count = 3 if operation == "fma" else 2
    operands = {"fma": ("%x", "%y", "%z"), "add": ("%x", "1.0", "%y"), "mul": ("%x", "%y", "-0.0")}[operation]
    names = "xyz"[:count]
    lines = [f"  %{n} = {'fpext float' if kind == 'float' else 'fadd double'} %{n}.in" for n in names]
    lines = [line + (" to double" if kind == "float" else ", -0.0") for line in lines]
    a, b, c = operands
    lines += [
        f"  %p = fmul double {a}, {b}",
        "  %np = fneg double %p",
        f"  %pe = call double @llvm.fma.f64(double {a}, double {b}, double %np)",
        f"  %s = fadd double %p, {c}",
        "  %s1 = fsub double %s, %p",
        "  %s2 = fsub double %s, %s1",
        "  %s3 = fsub double %p, %s2",
        f"  %s4 = fsub double {c}, %s1",
        "  %se = fadd double %s3, %s4",
        "  %e = fadd double %se, %pe",
    ]
    bits = 32 if kind == "float" else 64
    if kind == "float":
        lines += ["  %r = fptrunc double %s to float", "  %rd = fpext float %r to double"]
        lines += ["  %cut = fsub double %s, %rd"]
        lines += ["  %error = fadd double %cut, %e"]
    else:
        lines += ["  %r = fadd double %s, -0.0", "  %error = fadd double %e, 0.0"]
    # `error` is the exact result less r, rounded; its sign says on which side r is.
    lines += [
        "  %above = fcmp olt double %error, 0.0",
        "  %below = fcmp ogt double %error, 0.0",
        f"  %positive = fcmp ogt {kind} %r, 0.0",
        f"  %negative = fcmp olt {kind} %r, 0.0",
        f"  %bits = bitcast {kind} %r to i{bits}",
        f"  %smaller = sub i{bits} %bits, 1",
        f"  %larger = add i{bits} %bits, 1",
    ]
    if mode == "rz":
        lines += [
            "  %over = and i1 %positive, %above",
            "  %under = and i1 %negative, %below",
            "  %far = or i1 %over, %under",
            f"  %fixed = select i1 %far, i{bits} %smaller, i{bits} %bits",
        ]
    else:
        away, toward = ("%larger", "%smaller") if mode == "rp" else ("%smaller", "%larger")
        zero = 1 if mode == "rp" else (1 << bits - 1) + 1
        lines += [
            f"  %forward = select i1 %positive, i{bits} {away}, i{bits} {zero}",
            f"  %moved = select i1 %negative, i{bits} {toward}, i{bits} %forward",
            f"  %fixed = select i1 {'%below' if mode == 'rp' else '%above'}, i{bits} %moved, i{bits} %bits",
        ]
    lines += [f"  %out = bitcast i{bits} %fixed to {kind}", f"  ret {kind} %out"]
    return _one(kind, name, ", ".join(f"{kind} %{n}.in" for n in names), "\n".join(lines))


@cache
def _libdevice() -> tuple[dict[str, str], dict[str, str]]:
    """libdevice's functions, and its variables and types, by name: their text."""
    spec = importlib.util.find_spec("nvidia")
    places = [
        path
        for root in (spec.submodule_search_locations if spec else None) or ()
        for path in sorted(Path(root).glob("*/nvvm/libdevice/libdevice.10.bc"))
    ]  # fmt: skip
    if not places:
        raise CodegenError(
            "the kernel calls a function of libdevice, which is not installed",
            hint="install the package nvidia-nvvm, which brings it",
        )
    text = str(llvm.parse_bitcode(places[0].read_bytes())).replace("llvm.nvvm.", "nvvm.")
    functions, variables = {}, {}
    for match in re.finditer(r"^define .*?@([\w.]+)\(.*?^}\n", text, re.M | re.S):
        body = re.sub(r" #\d+|\b(?:fastcc|noinline|dso_local|local_unnamed_addr|unnamed_addr) ", "", match[0])
        body = re.sub(r"(?:, )?!\w[\w.]* !\d+", "", body)
        body = re.sub(r"^define (?:\w+ )*?(?=void |i\d+ |float |double |ptr |%|\{)", "define internal ", body)
        functions[match[1]] = body
    for match in re.finditer(r"^[@%]([\w.]+) = .*$", text, re.M):
        variables[match[1]] = re.sub(r"(?<== )(private |internal )?", "", match[0])
    return functions, variables


def _without_assembly(text: str, name: str) -> str:
    """A function of libdevice with its inline PTX, which is arithmetic, as functions before it."""
    lines: list[str] = []
    helpers: list[str] = []
    for line in text.split("\n"):
        call = call_of(line) if " asm " in line else None
        if call is not None:
            helper = f"@emu.{name}.{len(helpers)}"
            helpers.append(assembly(call.callee, call.constraints, call.type, call.arguments, helper, 0, name))
            arguments = ", ".join(["ptr null", *(f"{a.type} {a.value}" for a in call.arguments)])
            line = f"  {call.result} = call {call.type} {helper}({arguments})"
        lines.append(line)
    return "\n".join([*helpers, *lines])


def library(text: str) -> str:
    """Definitions of all functions of libdevice and all arithmetic that a module's text calls, and of what they call.

    An intrinsic that is not known has none: libdevice calls some in branches that are never taken.
    """
    pieces: dict[str, str] = {}
    open_names = set(re.findall(r"@(__nv_\w+|nvvm\.[\w.]+)\(", text))
    while open_names:
        name = open_names.pop()
        if name in pieces:
            continue
        if name == "__nvvm_reflect":
            pieces[name] = "define internal i32 @__nvvm_reflect(ptr %name) alwaysinline {\n  ret i32 0\n}\n"
            continue
        if name.startswith("nvvm."):
            pieces[name] = definition(name.removeprefix("nvvm.")) or ""
            continue
        functions, variables = _libdevice()
        if name not in functions and name not in variables:
            raise CodegenError(f"the emulator does not know the function {name}")
        pieces[name] = _without_assembly(functions[name], name) if name in functions else variables[name] + "\n"
        found = re.findall(r"@(?!emu\.)([\w.]+)|%(struct\.[\w.]+)", pieces[name])
        open_names.update(other or kind for other, kind in found if not other.startswith("llvm."))
    return "".join(sorted(pieces.values(), key=lambda piece: not piece.startswith("%")))  # types come first
