"""Arithmetic, logic, comparisons and conversions."""

from __future__ import annotations

from autosched.codegen.cuda.emulate.ptx.parse import Instruction, Operand, Pair, Register
from autosched.codegen.cuda.emulate.ptx.state import Assembly, only, ptx
from autosched.codegen.cuda.emulate.ptx.types import COMMON, is_type, llvm_float, width

_TYPES = COMMON | {"tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2"}


def _type(state: Assembly, instruction: Instruction) -> str:
    kinds = [part for part in instruction.opcode[1:] if is_type(part)]
    if not kinds:
        raise state.refuse(f"instruction `{instruction.text}` without a type")
    return kinds[-1]


def unpack(state: Assembly, operand: Operand, kind: str) -> list[str]:
    """The numbers of an operand as LLVM floats: one, or the two of a packed register, the lower first."""
    body = state.body
    if kind in ("f16x2", "bf16x2"):
        whole = state.read(operand, 32)
        high = body.new(f"lshr i32 {whole}, 16")
        halves = [body.new(f"trunc i32 {part} to i16") for part in (whole, high)]
        return [widen(state, half, kind[:-2]) for half in halves]
    if kind in ("f16", "bf16"):
        return [widen(state, state.read(operand, 16), kind)]
    return [body.new(f"bitcast i{width(kind)} {state.read(operand, width(kind))} to {llvm_float(kind)}")]


def widen(state: Assembly, bits: str, kind: str) -> str:
    """The float of an i16 that holds a float16 or bfloat16."""
    body = state.body
    if kind == "f16":
        half = body.new(f"bitcast i16 {bits} to half")
        return body.new(f"fpext half {half} to float")
    wide = body.new(f"zext i16 {bits} to i32")
    moved = body.new(f"shl i32 {wide}, 16")
    return body.new(f"bitcast i32 {moved} to float")


def narrow(state: Assembly, value: str, kind: str) -> str:
    """The i16 of a float, rounded to the nearest float16 or bfloat16, ties to even."""
    body = state.body
    if kind == "f16":
        half = body.new(f"fptrunc float {value} to half")
        return body.new(f"bitcast half {half} to i16")
    bits = body.new(f"bitcast float {value} to i32")
    low = body.new(f"lshr i32 {bits}, 16")
    odd = body.new(f"and i32 {low}, 1")
    more = body.new(f"add i32 {bits}, 32767")
    rounded = body.new(f"add i32 {more}, {odd}")
    kept = body.new(f"lshr i32 {rounded}, 16")
    invalid = body.new(f"fcmp uno float {value}, 0.0")
    result = body.new(f"select i1 {invalid}, i32 32767, i32 {kept}")
    return body.new(f"trunc i32 {result} to i16")


def pack(state: Assembly, target: Operand, kind: str, values: list[str]) -> None:
    """Round floats to `kind` and write them, the first into the lower half."""
    body = state.body
    if kind in ("f16x2", "bf16x2"):
        low, high = (body.new(f"zext i16 {narrow(state, value, kind[:-2])} to i32") for value in values)
        moved = body.new(f"shl i32 {high}, 16")
        state.write(target, 32, body.new(f"or i32 {low}, {moved}"))
    elif kind in ("f16", "bf16"):
        state.write(target, 16, narrow(state, values[0], kind))
    else:
        state.write(target, width(kind), body.new(f"bitcast {llvm_float(kind)} {values[0]} to i{width(kind)}"))


_ROUNDS = frozenset(("rn", "ftz", "approx", "full", "sat", "lo", "hi", "wide", "NaN"))
_FLOAT_TYPES = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")
_UNARY = {"sqrt": "sqrt", "ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos", "tanh": "tanh", "abs": "fabs"}


@ptx("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max")
def _two_or_three(state: Assembly, instruction: Instruction) -> None:
    if "cc" in instruction.opcode:
        _with_carry(state, instruction)
        return
    parts = only(state, instruction, _TYPES | _ROUNDS)
    kind, name, body = _type(state, instruction), instruction.opcode[0], state.body
    target, *sources = instruction.operands
    if kind in _FLOAT_TYPES:
        columns = list(zip(*(unpack(state, source, kind) for source in sources)))
        floating = "double" if kind == "f64" else "float"
        results = [_floating(state, name, floating, values, "NaN" in parts) for values in columns]
        if kind in ("f16", "f16x2", "bf16", "bf16x2") and name in ("fma", "mad"):
            results = [_fused(state, values) for values in columns]
        if "sat" in parts:
            low = [
                body.new(f"call {floating} @llvm.maxnum.f{width_of(floating)}({floating} {v}, {floating} 0.0)")
                for v in results
            ]
            results = [
                body.new(f"call {floating} @llvm.minnum.f{width_of(floating)}({floating} {v}, {floating} 1.0)")
                for v in low
            ]
        pack(state, target, kind, results)
        return
    if "sat" in parts:
        raise state.refuse(f"instruction `{instruction.text}`, for its .sat")
    bits, signed = width(kind), kind.startswith("s")
    if name in ("mul", "mad") and ("wide" in parts or "hi" in parts):
        extend = "sext" if signed else "zext"
        wide = [body.new(f"{extend} i{bits} {state.read(s, bits)} to i{2 * bits}") for s in sources[:2]]
        product = body.new(f"mul i{2 * bits} {wide[0]}, {wide[1]}")
        if "hi" in parts:
            product = body.new(f"lshr i{2 * bits} {product}, {bits}")
            product = body.new(f"trunc i{2 * bits} {product} to i{bits}")
        else:
            bits *= 2
        if name == "mad":
            product = body.new(f"add i{bits} {product}, {state.read(sources[2], bits)}")
        state.write(target, bits, product)
        return
    values = [state.read(source, bits) for source in sources]
    if name == "mad":
        product = body.new(f"mul i{bits} {values[0]}, {values[1]}")
        result = body.new(f"add i{bits} {product}, {values[2]}")
    elif name in ("min", "max"):
        result = body.new(
            f"call i{bits} @llvm.{'s' if signed else 'u'}{name}.i{bits}(i{bits} {values[0]}, i{bits} {values[1]})"
        )
    elif name == "fma":
        raise state.refuse(f"instruction `{instruction.text}`")
    else:
        verb = {"div": "sdiv" if signed else "udiv", "rem": "srem" if signed else "urem"}.get(name, name)
        result = body.new(f"{verb} i{bits} {values[0]}, {values[1]}")
    state.write(target, bits, result)


@ptx("addc", "subc", "madc")
def _with_carry(state: Assembly, instruction: Instruction) -> None:
    """Sums of long numbers, a word at a time: `.cc` leaves the carry, the `c` of the name takes it."""
    parts = only(state, instruction, frozenset(("cc", "lo", "hi", "u32", "s32", "u64", "s64")))
    name, bits, body = instruction.opcode[0], width(_type(state, instruction)), state.body
    if name in ("mul", "div", "fma") or (name.startswith("mad") and parts[-1][0] == "s" and "hi" in parts):
        raise state.refuse(f"instruction `{instruction.text}`")
    target, *sources = instruction.operands
    wide = [body.new(f"zext i{bits} {state.read(source, bits)} to i{2 * bits}") for source in sources]
    if name.startswith("mad"):
        product = body.new(f"mul i{2 * bits} {wide[0]}, {wide[1]}")
        if "hi" in parts:
            product = body.new(f"lshr i{2 * bits} {product}, {bits}")
        else:
            product = body.new(f"and i{2 * bits} {product}, {(1 << bits) - 1}")
        wide = [product, wide[2]]
    verb = "sub" if name.startswith("sub") else "add"  # a borrow is the carry of a difference
    total = body.new(f"{verb} i{2 * bits} {wide[0]}, {wide[1]}")
    if name.endswith("c"):
        carried = body.new(f"zext i1 {state.read(Register('%carry'), 1)} to i{2 * bits}")
        total = body.new(f"{verb} i{2 * bits} {total}, {carried}")
    if "cc" in parts:
        state.declare("%carry", 1)
        over = body.new(f"lshr i{2 * bits} {total}, {bits}")
        state.write(Register("%carry"), 1, body.new(f"trunc i{2 * bits} {over} to i1"))
    state.write(target, bits, body.new(f"trunc i{2 * bits} {total} to i{bits}"))


def width_of(floating: str) -> int:
    return 64 if floating == "double" else 32


def _floating(state: Assembly, name: str, kind: str, values: tuple[str, ...], keeps_nan: bool) -> str:
    body, suffix = state.body, f"f{width_of(kind)}"
    if name in ("add", "sub", "mul", "div"):
        return body.new(f"f{name} {kind} {values[0]}, {values[1]}")
    if name in ("min", "max"):
        function = f"{name}imum" if keeps_nan else f"{name}num"
        return body.new(f"call {kind} @llvm.{function}.{suffix}({kind} {values[0]}, {kind} {values[1]})")
    if name in ("fma", "mad"):
        return body.new(f"call {kind} @llvm.fma.{suffix}({kind} {values[0]}, {kind} {values[1]}, {kind} {values[2]})")
    raise state.refuse(f"instruction {name} of {kind}")


def _fused(state: Assembly, values: tuple[str, ...]) -> str:
    """a b + c of 16-bit numbers as a float that rounds as the exact sum does: the float's last bit tells of a rest."""
    body = state.body
    wide = [body.new(f"fpext float {value} to double") for value in values]
    product = body.new(f"fmul double {wide[0]}, {wide[1]}")
    exact = body.new(f"fadd double {product}, {wide[2]}")
    bits = body.new(f"bitcast double {exact} to i64")
    rest = body.new(f"and i64 {bits}, 536870911")
    some = body.new(f"icmp ne i64 {rest}, 0")
    cut = body.new(f"and i64 {bits}, -536870912")
    sticky = body.new(f"select i1 {some}, i64 536870912, i64 0")
    odd = body.new(f"or i64 {cut}, {sticky}")
    return body.new(f"fptrunc double {body.new(f'bitcast i64 {odd} to double')} to float")


@ptx("sqrt", "rsqrt", "rcp", "ex2", "lg2", "sin", "cos", "tanh", "abs", "neg")
def _one(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, _TYPES | _ROUNDS)
    kind, name, body = _type(state, instruction), instruction.opcode[0], state.body
    target, source = instruction.operands
    if kind not in _FLOAT_TYPES:
        bits = width(kind)
        value = state.read(source, bits)
        result = body.new(f"sub i{bits} 0, {value}") if name == "neg" else ""
        result = result or body.new(f"call i{bits} @llvm.abs.i{bits}(i{bits} {value}, i1 false)")
        state.write(target, bits, result)
        return
    floating = "double" if kind == "f64" else "float"
    suffix = f"f{width_of(floating)}"
    results = []
    for value in unpack(state, source, kind):
        if name == "neg":
            results.append(body.new(f"fneg {floating} {value}"))
        elif name in ("rcp", "rsqrt"):
            if name == "rsqrt":
                value = body.new(f"call {floating} @llvm.sqrt.{suffix}({floating} {value})")
            results.append(body.new(f"fdiv {floating} 1.0, {value}"))
        else:
            results.append(body.new(f"call {floating} @llvm.{_UNARY[name]}.{suffix}({floating} {value})"))
    pack(state, target, kind, results)


@ptx("and", "or", "xor", "not", "shl", "shr", "popc", "clz", "brev")
def _bits(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, _TYPES)
    kind, name, body = _type(state, instruction), instruction.opcode[0], state.body
    bits = width(kind)
    target, first, *others = instruction.operands
    value = state.read(first, bits)
    if name in ("and", "or", "xor"):
        state.write(target, bits, body.new(f"{name} i{bits} {value}, {state.read(others[0], bits)}"))
    elif name == "not":
        state.write(target, bits, body.new(f"xor i{bits} {value}, -1"))
    elif name in ("shl", "shr"):
        # A shift by more than the width gives zero, or the sign; LLVM's would give anything.
        amount = state.read(others[0], 32)
        limit = bits - 1 if kind.startswith("s") else bits
        bounded = body.new(f"call i32 @llvm.umin.i32(i32 {amount}, i32 {limit})")
        wide = body.new(f"{'sext' if kind.startswith('s') else 'zext'} i{bits} {value} to i{2 * bits}")
        by = bounded if bits == 16 else body.new(f"zext i32 {bounded} to i{2 * bits}")
        verb = "shl" if name == "shl" else "ashr" if kind.startswith("s") else "lshr"
        moved = body.new(f"{verb} i{2 * bits} {wide}, {by}")
        state.write(target, bits, body.new(f"trunc i{2 * bits} {moved} to i{bits}"))
    else:
        function = {"popc": "ctpop", "clz": "ctlz", "brev": "bitreverse"}[name]
        extra = ", i1 false" if name == "clz" else ""
        state.write(target, bits, body.new(f"call i{bits} @llvm.{function}.i{bits}(i{bits} {value}{extra})"))


@ptx("lop3")
def _lop3(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, frozenset(("b32",)))
    target, *sources, table = instruction.operands
    values = [state.read(source, 32) for source in sources]
    chosen = int(state.word(table))
    result = "0"
    for k in range(8):
        if chosen >> k & 1:
            terms = [v if k >> (2 - j) & 1 else state.body.new(f"xor i32 {v}, -1") for j, v in enumerate(values)]
            both = state.body.new(f"and i32 {terms[0]}, {terms[1]}")
            all_three = state.body.new(f"and i32 {both}, {terms[2]}")
            result = state.body.new(f"or i32 {result}, {all_three}")
    state.write(target, 32, result)


@ptx("prmt")
def _prmt(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, frozenset(("b32",)))
    body = state.body
    target, first, second, selector = instruction.operands
    high = body.new(f"shl i64 {state.word(second)}, 32")
    both = body.new(f"or i64 {high}, {state.word(first)}")
    choice = state.word(selector)
    result = "0"
    for k in range(4):
        nibble = body.new(f"lshr i64 {choice}, {4 * k}")
        place = body.new(f"shl i64 {body.new(f'and i64 {nibble}, 7')}, 3")
        byte = body.new(f"and i64 {body.new(f'lshr i64 {both}, {place}')}, 255")
        sign = body.new(f"icmp ugt i64 {byte}, 127")
        spread = body.new(f"select i1 {sign}, i64 255, i64 0")
        signs = body.new(f"and i64 {nibble}, 8")
        wants = body.new(f"icmp ne i64 {signs}, 0")
        byte = body.new(f"select i1 {wants}, i64 {spread}, i64 {byte}")
        result = body.new(f"or i64 {result}, {body.new(f'shl i64 {byte}, {8 * k}')}")
    state.write_word(target, 32, result)


_COMPARE = {
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "lo": "lt",
    "ls": "le",
    "hi": "gt",
    "hs": "ge",
}


@ptx("setp")
def _setp(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, _TYPES | frozenset(_COMPARE) | {"ftz", "and", "or", "xor"})
    kind, body = _type(state, instruction), state.body
    target, left, right, *combined = instruction.operands
    relation = parts[0]
    if kind in _FLOAT_TYPES:
        floating = "double" if kind == "f64" else "float"
        values = [unpack(state, operand, kind)[0] for operand in (left, right)]
        code = "une" if relation == "ne" else "o" + relation
        result = body.new(f"fcmp {code} {floating} {values[0]}, {values[1]}")
    else:
        bits = width(kind)
        first, second = state.read(left, bits), state.read(right, bits)
        code = _COMPARE[relation]
        if code not in ("eq", "ne"):
            code = ("s" if kind.startswith("s") else "u") + code
        result = body.new(f"icmp {code} i{bits} {first}, {second}")
    if combined:
        verb = next(part for part in parts if part in ("and", "or", "xor"))
        result = body.new(f"{verb} i1 {result}, {state.read(combined[0], 1)}")
    if isinstance(target, Pair):
        state.write(target.first, 1, result)
        state.write(target.second, 1, body.new(f"xor i1 {result}, true"))
    else:
        state.write(target, 1, result)


@ptx("selp")
def _selp(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, _TYPES)
    bits = width(_type(state, instruction))
    target, first, second, condition = instruction.operands
    values = state.read(first, bits), state.read(second, bits)
    chosen = state.body.new(f"select i1 {state.read(condition, 1)}, i{bits} {values[0]}, i{bits} {values[1]}")
    state.write(target, bits, chosen)


_CVT = frozenset(("rn", "rz", "rni", "rzi", "rmi", "rpi", "rna", "ftz", "sat", "satfinite"))
_INTEGER_ROUND = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


@ptx("cvt")
def _cvt(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, _TYPES | _CVT)
    body = state.body
    kinds = [part for part in parts if is_type(part)]
    to, source = kinds
    target, *sources = instruction.operands
    modes = set(parts) - set(kinds)
    known = {"rn", "ftz"} | ({"rna"} if to == "tf32" else set())
    if to in ("f16x2", "bf16x2") and source == "f32" and modes <= known:
        high, low = (unpack(state, operand, "f32")[0] for operand in sources)
        pack(state, target, to, [low, high])
        return
    if to == "tf32" and source == "f32" and modes <= {"rna", "rn", "satfinite"}:
        bits = state.read(sources[0], 32)
        add = "4096" if "rna" in modes else ""
        if not add:
            odd = body.new(f"and i32 {body.new(f'lshr i32 {bits}, 13')}, 1")
            add = body.new(f"add i32 {odd}, 4095")
        rounded = body.new(f"and i32 {body.new(f'add i32 {bits}, {add}')}, -8192")
        finite = body.new(f"icmp ult i32 {body.new(f'and i32 {bits}, 2147483647')}, 2139095040")
        state.write(target, 32, body.new(f"select i1 {finite}, i32 {rounded}, i32 {bits}"))
        return
    from_float, to_float = source in ("f16", "bf16", "f32", "f64"), to in ("f16", "bf16", "f32", "f64")
    if from_float and to_float and modes <= known:
        (value,) = unpack(state, sources[0], source)
        if source == "f64" and to == "f32":
            value = body.new(f"fptrunc double {value} to float")
        elif to == "f64" and source != "f64":
            value = body.new(f"fpext float {value} to double")
        elif source == "f64" and to != "f64":
            raise state.refuse(f"instruction `{instruction.text}`")
        pack(state, target, to, [value])
        return
    if from_float and not to_float and modes & set(_INTEGER_ROUND) and is_type(to) and to[0] in "su":
        (value,) = unpack(state, sources[0], source)
        floating = "double" if source == "f64" else "float"
        suffix, wide = f"f{width_of(floating)}", width(to)
        mode = next(iter(modes & set(_INTEGER_ROUND)))
        whole = body.new(f"call {floating} @llvm.{_INTEGER_ROUND[mode]}.{suffix}({floating} {value})")
        result = body.new(f"call i{wide} @llvm.fpto{to[0]}i.sat.i{wide}.{suffix}({floating} {whole})")
        state.write(target, wide, result)
        return
    if not from_float and to_float and source[0] in "su" and modes <= {"rn"}:
        floating = "double" if to == "f64" else "float"
        value = state.read(sources[0], width(source))
        made = body.new(f"{source[0]}itofp i{width(source)} {value} to {floating}")
        if to in ("f16", "bf16") and width(source) > 16:
            raise state.refuse(f"instruction `{instruction.text}`")
        pack(state, target, to, [made])
        return
    if not from_float and not to_float and source[0] in "su" and to[0] in "su" and not modes - {"sat"}:
        old_bits, new_bits = width(source), width(to)
        value = state.read(sources[0], old_bits)
        if "sat" in modes:
            raise state.refuse(f"instruction `{instruction.text}`, for its .sat")
        if new_bits > old_bits:
            value = body.new(f"{'sext' if source[0] == 's' else 'zext'} i{old_bits} {value} to i{new_bits}")
        elif new_bits < old_bits:
            value = body.new(f"trunc i{old_bits} {value} to i{new_bits}")
        state.write(target, new_bits, value)
        return
    raise state.refuse(f"instruction `{instruction.text}`")
