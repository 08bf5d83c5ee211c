"""What the lanes of a warp do together: shuffles, votes, reductions, matrix products. In the language of words.py."""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.clocks import warp_sync
from autosched.codegen.cuda.emulate.memory import fail, find, put, word
from autosched.codegen.cuda.emulate.words import (
    add_f64,
    f32_of_f64,
    f64_of_f32,
    load8,
    load32,
    load64,
    mul_f64,
    sign_extend,
    store32,
    store64,
    trailing_zeros,
)

# Types of matrix elements, as operands of MMA.
F16, BF16, TF32, S8, U8, E4M3, E5M2, F64, F32, S32 = range(10)
# Operands of MMA: mask, m, n, k, type of A, of B, of C and D; then the registers of A, B, C.
MMA_FIRST = 8


def collect(block: int, first: int) -> int:
    """Do the instructions whose lanes are all there. Returns whether there was one, or -1 - lane after a fault."""
    stride = word(block, at.STRIDE)
    some = 0
    for lane in range(32):
        thread = first + lane * stride
        op = word(thread, at.OP)
        if op == at.ACTIVE:
            some = 1
            _active(first, stride, thread)
            continue
        if op < at.FIRST_WARP or op > at.LAST_WARP:
            continue
        site, mask = word(thread, at.SITE), word(thread, at.ARGS) & 0xFFFFFFFF
        if mask >> lane & 1 == 0:
            fail(thread, at.F_MASK, mask, 0, site, lane)
            return -1 - lane
        complete, there = 1, mask
        for other in range(32):
            if mask >> other & 1 == 0:
                continue
            peer = first + other * stride
            state = word(peer, at.OP)
            if state == at.ABSENT:
                there = there & ~(1 << other)
            elif state == at.DONE:
                fail(thread, at.F_EXITED, mask, 0, site, word(peer, at.INDEX))
                return -1 - lane
            elif state != op or word(peer, at.SITE) != site or word(peer, at.ARGS) & 0xFFFFFFFF != mask:
                complete = 0
        if complete == 0:
            continue
        if op >= at.MMA and there != 0xFFFFFFFF:
            fail(thread, at.F_PARTIAL, there, 0, site, 0)
            return -1 - lane
        failed = _perform(op, block, first, stride, there)
        if failed < 0:
            return failed
        for other in range(32):
            if there >> other & 1:
                put(first + other * stride, at.OP, at.READY)
        some = 1
    return some


def _active(first: int, stride: int, thread: int) -> int:
    """activemask: the lanes that stand at the same instruction."""
    site = word(thread, at.SITE)
    mask = 0
    for lane in range(32):
        other = first + lane * stride
        if word(other, at.OP) == at.ACTIVE and word(other, at.SITE) == site:
            mask = mask | 1 << lane
    for lane in range(32):
        if mask >> lane & 1:
            put(first + lane * stride, at.ARGS, mask)
            put(first + lane * stride, at.OP, at.READY)
    return 0


def _perform(op: int, block: int, first: int, stride: int, mask: int) -> int:
    if op == at.WARP_SYNC:
        warp_sync(block, first, mask)
    elif op == at.SHUFFLE:
        _shuffle(block, first, stride, mask)
    elif op == at.VOTE:
        _vote(first, stride, mask)
    elif op == at.MATCH_ANY or op == at.MATCH_ALL:
        _match(op, first, stride, mask)
    elif op == at.REDUCE:
        _reduce(first, stride, mask)
    elif op == at.ELECT:
        leader = trailing_zeros(mask)
        for lane in range(32):
            if mask >> lane & 1:
                put(first + lane * stride, at.ARGS, leader)
                put(first + lane * stride, at.ARGS + 1, lane == leader)
    elif op == at.MMA:
        _multiply(block, first, stride)
    elif op == at.LDMATRIX:
        return _load_matrix(block, first, stride)
    elif op == at.STMATRIX:
        return _store_matrix(first, stride)
    return 0


def _shuffle(block: int, first: int, stride: int, mask: int) -> int:
    """Operands: mask, mode (0 idx, 1 up, 2 down, 3 bfly), value, lane operand, clamp. Results: value, predicate."""
    values = word(block, at.SCRATCH)
    for lane in range(32):
        store64(values + lane * 8, word(first + lane * stride, at.ARGS + 2))
    for lane in range(32):
        if mask >> lane & 1 == 0:
            continue
        thread = first + lane * stride
        mode, b, c = word(thread, at.ARGS + 1), word(thread, at.ARGS + 3) & 31, word(thread, at.ARGS + 4)
        clamp, segment = c & 31, c >> 8 & 31
        low, high = lane & segment, (lane & segment) | (clamp & ~segment)
        if mode == 1:
            source = lane - b
            inside = source >= high
        elif mode == 2:
            source = lane + b
            inside = source <= high
        elif mode == 3:
            source = lane ^ b
            inside = source <= high
        else:
            source = low | (b & ~segment)
            inside = source <= high
        if inside == 0:
            source = lane
        # What a lane outside the mask gives is undefined; a number that nobody expects shows if it is used.
        put(thread, at.ARGS, load64(values + source * 8) if mask >> source & 1 else 0x7FC0DEAD)
        put(thread, at.ARGS + 1, inside)
    return 0


def _vote(first: int, stride: int, mask: int) -> int:
    """Operands: mask, mode (0 all, 1 any, 2 equal, 3 ballot), predicate. Results: ballot, predicate."""
    ballot = 0
    for lane in range(32):
        if mask >> lane & 1 and word(first + lane * stride, at.ARGS + 2) & 1:
            ballot = ballot | 1 << lane
    for lane in range(32):
        if mask >> lane & 1:
            thread = first + lane * stride
            mode = word(thread, at.ARGS + 1)
            result = ballot == mask
            if mode == 1:
                result = ballot != 0
            elif mode == 2:
                result = ballot == mask or ballot == 0
            put(thread, at.ARGS, ballot if mode == 3 else result)
            put(thread, at.ARGS + 1, result)
    return 0


def _match(op: int, first: int, stride: int, mask: int) -> int:
    """Operands: mask, value. Results: lanes with the same value (all of them, or none, for `all`), predicate."""
    for lane in range(32):
        if mask >> lane & 1 == 0:
            continue
        same = 0
        for other in range(32):
            if mask >> other & 1:
                if word(first + other * stride, at.ARGS + 1) == word(first + lane * stride, at.ARGS + 1):
                    same = same | 1 << other
        if op == at.MATCH_ALL and same != mask:
            same = 0
        put(first + lane * stride, at.ARGS, same)
    for lane in range(32):
        if mask >> lane & 1:
            put(first + lane * stride, at.ARGS + 1, word(first + lane * stride, at.ARGS) == mask)
    return 0


def _reduce(first: int, stride: int, mask: int) -> int:
    """redux.sync. Operands: mask, 0 add 1 min 2 max 3 and 4 or 5 xor 6 umin 7 umax, value."""
    begun, result, kind = 0, 0, 0
    for lane in range(32):
        if mask >> lane & 1 == 0:
            continue
        thread = first + lane * stride
        kind = word(thread, at.ARGS + 1)
        value = word(thread, at.ARGS + 2) & 0xFFFFFFFF
        if kind == 1 or kind == 2:
            value = sign_extend(value, 32)
        if begun == 0:
            result = value
            begun = 1
        elif kind == 0:
            result = result + value
        elif kind == 1 or kind == 6:
            result = value if value < result else result
        elif kind == 2 or kind == 7:
            result = value if value > result else result
        elif kind == 3:
            result = result & value
        elif kind == 4:
            result = result | value
        else:
            result = result ^ value
    for lane in range(32):
        if mask >> lane & 1:
            put(first + lane * stride, at.ARGS, result & 0xFFFFFFFF)
    return 0


def f32_of_f16(bits: int) -> int:
    """The float32 with the value of a float16."""
    sign, exponent, fraction = (bits >> 15 & 1) << 31, bits >> 10 & 31, bits & 0x3FF
    if exponent == 31:
        return sign | 0x7F800000 | fraction << 13
    return sign | _f32_of_parts(exponent, fraction, 10, 112)


def _f32_of_parts(exponent: int, fraction: int, width: int, rebias: int) -> int:
    """The float32 of a number with `width` bits of fraction, whose exponent is less by `rebias` than a float32's."""
    if exponent == 0:
        if fraction == 0:
            return 0
        exponent = 1
        while fraction >> width == 0:
            fraction = fraction << 1
            exponent -= 1
        fraction = fraction & ((1 << width) - 1)
    return (exponent + rebias) << 23 | fraction << (23 - width)


def f16_of_f32(bits: int) -> int:
    """The float16 nearest to a float32, ties to even."""
    sign, magnitude = bits >> 16 & 0x8000, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return sign | 0x7FFF
    if magnitude >= 0x477FF000:
        return sign | 0x7C00
    if magnitude < 0x38800000:
        if magnitude < 0x33000000:
            return sign
        shift = 126 - (magnitude >> 23)
        fraction = (magnitude & 0x7FFFFF) | 0x800000
        half = fraction >> shift
        rest, middle = fraction & ((1 << shift) - 1), 1 << (shift - 1)
        if rest > middle or (rest == middle and half & 1):
            half += 1
        return sign | half
    rounded = magnitude + 0xFFF + (magnitude >> 13 & 1)
    return sign | (rounded - 0x38000000) >> 13


def bf16_of_f32(bits: int) -> int:
    """The bfloat16 nearest to a float32, ties to even."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def _f32_of_e4m3(bits: int) -> int:
    sign, exponent, fraction = (bits >> 7 & 1) << 31, bits >> 3 & 15, bits & 7
    if exponent == 15 and fraction == 7:
        return sign | 0x7FC00000
    return sign | _f32_of_parts(exponent, fraction, 3, 120)


def element(kind: int, register: int, position: int) -> int:
    """One element of a register: bits of float64, or an integer."""
    if kind == F16:
        return f64_of_f32(f32_of_f16(register >> position * 16 & 0xFFFF))
    if kind == BF16:
        return f64_of_f32((register >> position * 16 & 0xFFFF) << 16)
    if kind == TF32:
        return f64_of_f32(register & 0xFFFFE000)
    if kind == S8:
        return sign_extend(register >> position * 8 & 0xFF, 8)
    if kind == U8:
        return register >> position * 8 & 0xFF
    if kind == E4M3:
        return f64_of_f32(_f32_of_e4m3(register >> position * 8 & 0xFF))
    if kind == E5M2:
        return f64_of_f32(f32_of_f16((register >> position * 8 & 0xFF) << 8))
    return register


def packed_in(kind: int) -> int:
    """How many elements a 32-bit register holds."""
    if kind <= BF16:
        return 2
    return 4 if kind > TF32 and kind < F64 else 1


def _multiply(block: int, first: int, stride: int) -> int:
    """mma.sync: D = A B + C. Sums are exact up to float64, then rounded once; the device rounds at other places.

    A register r of A holds row g + 8 (r & 1) and columns p t + 4 p (r >> 1) …, where p elements are in a register,
    g = lane / 4 and t = lane % 4; one of B, rows p t + 4 p r … of column g; C has columns 2 t and
    2 t + 1 of rows g and g + 8.
    """
    m, n, depth = word(first, at.ARGS + 1), word(first, at.ARGS + 2), word(first, at.ARGS + 3)
    kind_a, kind_b, kind_c = word(first, at.ARGS + 4), word(first, at.ARGS + 5), word(first, at.ARGS + 6)
    packed = packed_in(kind_a)
    n_a, n_b = m * depth // 32 // packed, n * depth // 32 // packed
    halves = m // 8
    a, b = word(block, at.SCRATCH), word(block, at.SCRATCH) + 16 * 64 * 8
    for lane in range(32):
        operands = first + lane * stride + (at.ARGS + MMA_FIRST) * 8
        g, t = lane >> 2, lane & 3
        for r in range(n_a):
            register = load64(operands + r * 8)
            row, column = g, t * packed + r * 4 * packed
            if halves == 2:
                row, column = g + 8 * (r & 1), t * packed + (r >> 1) * 4 * packed
            for k in range(packed):
                store64(a + (row * 64 + column + k) * 8, element(kind_a, register, k))
        for r in range(n_b):
            register = load64(operands + (n_a + r) * 8)
            for k in range(packed):
                store64(b + (g * 64 + t * packed + r * 4 * packed + k) * 8, element(kind_b, register, k))
    for lane in range(32):
        thread = first + lane * stride
        operands = thread + (at.ARGS + MMA_FIRST + n_a + n_b) * 8
        g, t = lane >> 2, lane & 3
        if kind_c == F16:
            for half in range(halves):
                register = load64(operands + half * 8)
                low = dot(a, b, g + 8 * half, 2 * t, depth, f64_of_f32(f32_of_f16(register & 0xFFFF)))
                high = dot(a, b, g + 8 * half, 2 * t + 1, depth, f64_of_f32(f32_of_f16(register >> 16 & 0xFFFF)))
                store64(operands + half * 8, f16_of_f32(f32_of_f64(low)) | f16_of_f32(f32_of_f64(high)) << 16)
        else:
            for r in range(2 * halves):
                row, column = g + 8 * (r >> 1), 2 * t + (r & 1)
                old = load64(operands + r * 8)
                if kind_c == F32:
                    new = f32_of_f64(dot(a, b, row, column, depth, f64_of_f32(old)))
                elif kind_c == F64:
                    new = dot(a, b, row, column, depth, old)
                else:
                    new = sign_extend(old, 32)
                    for k in range(depth):
                        new += load64(a + (row * 64 + k) * 8) * load64(b + (column * 64 + k) * 8)
                    new = new & 0xFFFFFFFF
                store64(operands + r * 8, new)
        for r in range(2 * halves):
            put(thread, at.ARGS + r, load64(operands + r * 8))
    return 0


def dot(a: int, b: int, row: int, column: int, depth: int, begin: int) -> int:
    total = begin
    for k in range(depth):
        total = add_f64(total, mul_f64(load64(a + (row * 64 + k) * 8), load64(b + (column * 64 + k) * 8)))
    return total


def _load_matrix(block: int, first: int, stride: int) -> int:
    """ldmatrix of 8 x 8 matrices of 16 bits. Operands: mask, matrices, transposed, address. Results: registers."""
    count, transposed = word(first, at.ARGS + 1), word(first, at.ARGS + 2)
    rows = word(block, at.SCRATCH)
    for lane in range(count * 8):
        thread = first + lane * stride
        host = find(thread, word(thread, at.ARGS + 3), 16, 16, at.IN_SHARED, word(thread, at.SITE))
        if host == 0:
            return -1 - lane
        store64(rows + lane * 16, load64(host))
        store64(rows + lane * 16 + 8, load64(host + 8))
    for lane in range(32):
        for matrix in range(count):
            begin = rows + matrix * 128
            value = 0
            if transposed:
                for k in range(2):
                    place = begin + ((lane & 3) * 2 + k) * 16 + (lane >> 2) * 2
                    value = value | (load8(place) | load8(place + 1) << 8) << 16 * k
            else:
                value = load32(begin + (lane >> 2) * 16 + (lane & 3) * 4)
            put(first + lane * stride, at.ARGS + matrix, value)
    return 0


def _store_matrix(first: int, stride: int) -> int:
    """stmatrix. Operands: mask, matrices, transposed, address of a row, registers."""
    count, transposed = word(first, at.ARGS + 1), word(first, at.ARGS + 2)
    for row in range(count * 8):
        thread = first + row * stride
        host = find(thread, word(thread, at.ARGS + 3), 16, 16, at.IN_SHARED | at.WRITE, word(thread, at.SITE))
        if host == 0:
            return -1 - row
        matrix, inner = row >> 3, row & 7
        for k in range(4):
            if transposed:
                low = word(first + (2 * k * 4 + (inner >> 1)) * stride, at.ARGS + 4 + matrix)
                high = word(first + ((2 * k + 1) * 4 + (inner >> 1)) * stride, at.ARGS + 4 + matrix)
                shift = (inner & 1) * 16
                store32(host + k * 4, (low >> shift & 0xFFFF) | (high >> shift & 0xFFFF) << 16)
            else:
                store32(host + k * 4, word(first + (inner * 4 + k) * stride, at.ARGS + 4 + matrix))
    return 0


FUNCTIONS = (
    collect, _active, _perform, _shuffle, _vote, _match, _reduce, f32_of_f16, _f32_of_parts, f16_of_f32, bf16_of_f32,
    _f32_of_e4m3, element, packed_in, _multiply, dot, _load_matrix, _store_matrix,
)  # fmt: skip
