"""wgmma: products by the four warps of a warpgroup, operands in shared memory. In the language of words.py.

A descriptor gives, in units of 16 bytes, where an operand begins (14 bits), its leading and its stride distance (at
bits 16 and 32), and how its 16-byte pieces are permuted (at bit 62: 1 within 128 bytes, 2 within 64, 3 within 32,
0 not).
"""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.collective import (
    F16,
    F32,
    dot,
    element,
    f16_of_f32,
    f32_of_f16,
    packed_in,
)
from autosched.codegen.cuda.emulate.memory import fail, find, put, word
from autosched.codegen.cuda.emulate.words import f32_of_f64, f64_of_f32, load16, load32, load64, sign_extend, store64

# Operands of WGMMA: n, k, type of A and B, of the sums, then whether A is in registers, whether sums are kept, the
# signs of A and B (1 or -1), whether A and B run along M and N; then the sums, then the registers or descriptors.
WGMMA_FIRST = 12
_DEPTH = 64  # words between rows of an operand in scratch memory


def _place(descriptor: int, row: int, column_bytes: int, along: int) -> int:
    """The shared address of an element, or 0 for a layout that is not known.

    row           of M or N
    column_bytes  along K in bytes, or, where the operand runs along M or N, the number in K (elements of 2 bytes)
    """
    start, leading, stride = (
        (descriptor & 0x3FFF) << 4,
        (descriptor >> 16 & 0x3FFF) << 4,
        (descriptor >> 32 & 0x3FFF) << 4,
    )
    swizzle = descriptor >> 62 & 3
    if swizzle == 0:
        if along:
            return 0
        return start + (row >> 3) * stride + (row & 7) * 16 + (column_bytes >> 4) * leading + (column_bytes & 15)
    line = 256 >> swizzle  # bytes of a row of the permuted pattern
    if along:
        if swizzle != 1:
            return 0
        address = (
            start + (row >> 6) * leading + (column_bytes >> 3) * stride + (column_bytes & 7) * 128 + (row & 63) * 2
        )
    else:
        address = start + (row >> 3) * stride + (row & 7) * line + column_bytes
    return address ^ ((address >> 7 & ((line >> 4) - 1)) << 4)


def _gather(thread: int, descriptor: int, rows: int, depth: int, kind: int, along: int, target: int) -> int:
    """Read an operand of shared memory as float64 or integers. Returns 0 after a fault."""
    size = 4 // packed_in(kind)
    site = word(thread, at.SITE)
    if descriptor >> 49 & 7:
        return fail(thread, at.F_DESCRIPTOR, descriptor, 0, site, 0)
    for row in range(rows):
        for column in range(depth):
            address = _place(descriptor, row, column if along else column * size, along)
            if address == 0:
                return fail(thread, at.F_DESCRIPTOR, descriptor, 0, site, 0)
            host = find(thread, address, size, size, at.IN_SHARED, site)
            if host == 0:
                return 0
            bits = load32(host) if size == 4 else load16(host) if size == 2 else load16(host) & 0xFF
            store64(target + (row * _DEPTH + column) * 8, element(kind, bits, 0))
    return 1


def multiply_group(block: int, leader: int, waiting: int) -> int:
    """D = A B + D of m64nNkK. Returns 0 after a fault, which is in the record of `waiting`."""
    stride = word(block, at.STRIDE)
    n, depth, kind, sums = (
        word(leader, at.ARGS), word(leader, at.ARGS + 1), word(leader, at.ARGS + 2), word(leader, at.ARGS + 3),
    )  # fmt: skip
    in_registers, keeps = word(leader, at.ARGS + 4), word(leader, at.ARGS + 5)
    sign = word(leader, at.ARGS + 6) * word(leader, at.ARGS + 7)
    packed = packed_in(kind)
    n_sums = n // 4 if sums == F16 else n // 2
    a, b = word(block, at.SCRATCH), word(block, at.SCRATCH) + 64 * _DEPTH * 8
    first_operand = at.ARGS + WGMMA_FIRST + n_sums
    if in_registers:
        for k in range(128):
            lane, warp = k & 31, k >> 5
            for r in range(4):
                register = word(leader + k * stride, first_operand + r)
                row, column = warp * 16 + (lane >> 2) + 8 * (r & 1), (lane & 3) * packed + (r >> 1) * 4 * packed
                for j in range(packed):
                    store64(a + (row * _DEPTH + column + j) * 8, element(kind, register, j))
        operand_b = word(leader, first_operand + 4)
    else:
        if _gather(waiting, word(leader, first_operand), 64, depth, kind, word(leader, at.ARGS + 8), a) == 0:
            return 0
        operand_b = word(leader, first_operand + 1)
    if _gather(waiting, operand_b, n, depth, kind, word(leader, at.ARGS + 9), b) == 0:
        return 0
    for k in range(128):
        lane, warp, thread = k & 31, k >> 5, leader + k * stride
        for r in range(n_sums):
            old = word(thread, at.ARGS + WGMMA_FIRST + r) if keeps else 0
            if sums == F16:
                row, column = warp * 16 + (lane >> 2) + 8 * (r & 1), 8 * (r >> 1) + 2 * (lane & 3)
                low = _signed_dot(a, b, row, column, depth, f64_of_f32(f32_of_f16(old & 0xFFFF)), sign)
                high = _signed_dot(a, b, row, column + 1, depth, f64_of_f32(f32_of_f16(old >> 16 & 0xFFFF)), sign)
                new = f16_of_f32(f32_of_f64(low)) | f16_of_f32(f32_of_f64(high)) << 16
            else:
                row, column = warp * 16 + (lane >> 2) + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * (lane & 3) + (r & 1)
                if sums == F32:
                    new = f32_of_f64(_signed_dot(a, b, row, column, depth, f64_of_f32(old), sign))
                else:
                    new = sign_extend(old, 32)
                    for j in range(depth):
                        new += load64(a + (row * _DEPTH + j) * 8) * load64(b + (column * _DEPTH + j) * 8)
                    new = new & 0xFFFFFFFF
            put(thread, at.ARGS + WGMMA_FIRST + r, new)
    return 1


def _signed_dot(a: int, b: int, row: int, column: int, depth: int, begin: int, sign: int) -> int:
    """begin + sign * A[row] B[column]."""
    flip = 1 << 63 if sign < 0 else 0
    return dot(a, b, row, column, depth, begin ^ flip) ^ flip


FUNCTIONS = (_place, _gather, multiply_group, _signed_dot)
