"""PTX instructions that LLVM has no name for, as inline assembly."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from llvmlite import ir

from autosched.codegen.cpu.types import I32

F32 = ir.FloatType()

# kind: shape, layouts and types (D, A, B, C) of the instruction
_PRODUCTS = {
    "f16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "s8": "m16n8k32.row.col.s32.s8.s8.s32",
}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "f32": 32, "s32": 32}


def _assembly(
    builder: ir.IRBuilder, text: str, results: Sequence[ir.Type], constraints: str, args: Sequence[ir.Value]
) -> list[ir.Value]:
    """The results of an instruction, which has effects beyond them: it is neither moved nor left out."""
    kind = results[0] if len(results) == 1 else ir.LiteralStructType(list(results)) if results else ir.VoidType()
    function_type = ir.FunctionType(kind, [a.type for a in args])
    value = builder.asm(function_type, text, constraints, list(args), side_effect=True)
    if len(results) <= 1:
        return [value]
    return [builder.extract_value(value, i) for i in range(len(results))]


def mma_words(kind: str) -> tuple[int, int, int]:
    """How many words of 32 bits a lane has of C, A and B."""
    shape, _, _, *types = _PRODUCTS.get(kind, kind).split(".")
    m, n, k = map(int, re.split("[mnk]", shape)[1:])
    bits = [_BITS[t] for t in types]
    return m * n * bits[3] // 1024, m * k * bits[1] // 1024, n * k * bits[2] // 1024


def mma(
    builder: ir.IRBuilder, kind: str, c: Sequence[ir.Value], a: Sequence[ir.Value], b: Sequence[ir.Value]
) -> list[ir.Value]:
    """c + a * b of a tile, whose words each lane has: floats where sums are float32, else bits."""
    name = _PRODUCTS.get(kind, kind)
    element = F32 if name.endswith(".f32") else I32
    letter = "f" if element is F32 else "r"
    numbers = itertools.count()
    results, *operands = (f"{{{', '.join(f'${next(numbers)}' for _ in part)}}}" for part in (c, a, b, c))
    text = f"mma.sync.aligned.{name} {results}, {', '.join(operands)};"
    constraints = ",".join([f"={letter}"] * len(c) + ["r"] * (len(a) + len(b)) + [letter] * len(c))
    factors = [builder.bitcast(x, I32) if x.type == F32 else x for x in (*a, *b)]
    return _assembly(builder, text, [element] * len(c), constraints, [*factors, *c])


def ldmatrix(builder: ir.IRBuilder, count: int, transposed: bool, address: ir.Value) -> list[ir.Value]:
    """`count` matrices of 8 rows of 16 bytes from shared memory; lane i gives row i % 8 of matrix i / 8."""
    names = ", ".join(f"${i}" for i in range(count))
    flag = ".trans" if transposed else ""
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{flag}.shared.b16 {{{names}}}, [${count}];"
    return _assembly(builder, text, [I32] * count, ",".join(["=r"] * count + ["r", "~{memory}"]), [address])


def to_tf32(builder: ir.IRBuilder, word: ir.Value) -> ir.Value:
    """The bits of a float32 rounded to the 11 bits that tf32 keeps."""
    return _assembly(builder, "cvt.rna.tf32.f32 $0, $1;", [I32], "=r,f", [builder.bitcast(word, F32)])[0]


def cp_async(
    builder: ir.IRBuilder,
    size: int,
    target: ir.Value,
    source: ir.Value,
    taken: ir.Value | None = None,
    offsets: tuple[int, int] = (0, 0),
) -> None:
    """Begin a copy of 4, 8 or 16 bytes from device to shared memory; of `taken` bytes, the rest becomes 0.

    offsets   bytes that are added to both addresses, as a part of the instruction
    """
    cache = "cg" if size == 16 else "ca"
    to, start = (f"[${i}+{at}]" if at else f"[${i}]" for i, at in enumerate(offsets))
    text = f"cp.async.{cache}.shared.global {to}, {start}, {size}"
    if taken is None:
        _assembly(builder, f"{text};", [], "r,l,~{memory}", [target, source])
    else:
        _assembly(builder, f"{text}, $2;", [], "r,l,r,~{memory}", [target, source, taken])


def cp_async_commit(builder: ir.IRBuilder) -> None:
    """Make a group of the copies begun since the last one."""
    _assembly(builder, "cp.async.commit_group;", [], "~{memory}", [])


def cp_async_wait(builder: ir.IRBuilder, groups: int) -> None:
    """Wait until at most the last `groups` groups of this thread's copies are under way."""
    _assembly(builder, f"cp.async.wait_group {groups};", [], "~{memory}", [])


def mbarrier_inval(builder: ir.IRBuilder, barrier: ir.Value) -> None:
    """Give back the memory of an mbarrier."""
    _assembly(builder, "mbarrier.inval.shared.b64 [$0];", [], "r,~{memory}", [barrier])


def mbarrier_copies(builder: ir.IRBuilder, barrier: ir.Value) -> None:
    """Let the phase end only when the copies that this thread has begun by `cp_async` have ended."""
    _assembly(builder, "cp.async.mbarrier.arrive.shared.b64 [$0];", [], "r,~{memory}", [barrier])


def mbarrier_test(builder: ir.IRBuilder, barrier: ir.Value, parity: ir.Value) -> None:
    """Wait until the phase of this parity has ended, as sm_80 can: the thread asks again and again."""
    text = "{ .reg .pred p; AGAIN: mbarrier.test_wait.parity.shared.b64 p, [$0], $1; @p bra DONE; bra AGAIN; DONE: }"
    _assembly(builder, text, [], "r,r,~{memory}", [barrier, parity])


# dtype: (type of the instruction, letter of its operand)
ATOMIC_ADDS = {
    "float32": ("f32", "f"), "float64": ("f64", "d"), "float16": ("noftz.f16", "h"), "int32": ("s32", "r"),
    "uint32": ("u32", "r"), "int64": ("u64", "l"), "uint64": ("u64", "l"),
}  # fmt: skip


def atomic_add(builder: ir.IRBuilder, dtype: str, is_shared: bool, address: ir.Value, value: ir.Value) -> None:
    """Add to a place of shared memory (a 32-bit address) or device memory; what was there is not given."""
    kind, letter = ATOMIC_ADDS[dtype]
    space, width = ("shared", "r") if is_shared else ("global", "l")
    text = f"red.{space}.add.{kind} [$0], $1;"
    _assembly(builder, text, [], f"{width},{letter},~{{memory}}", [address, value])


# --- compute capability 9 ---------------------------------------------------------------------------------------------

# kind: (k of an instruction and its types, what follows the operands: signs, and for 16 bits whether A and B run along
# M and N)
_GROUP_PRODUCTS = {
    "f16": ("k16.f32.f16.f16", "1, 1, 0, {along}"),
    "bf16": ("k16.f32.bf16.bf16", "1, 1, 0, {along}"),
    "tf32": ("k8.f32.tf32.tf32", "1, 1"),
    "s8": ("k32.s32.s8.s8", ""),
}


def wgmma(
    builder: ir.IRBuilder, kind: str, columns: int, c: Sequence[ir.Value], a: ir.Value, b: ir.Value, b_along_n: bool,
    products: Sequence[tuple[int, int, int]],
) -> list[ir.Value]:  # fmt: skip
    """c + a * b by the four warps of a warpgroup, as one group of products that may still run when this returns.

    c         sums of each thread: 4 for each 64 x 8 of the result, tiles of 64 rows one after the other
    a, b      descriptors of the operands in shared memory
    products  (tile of 64 rows, what is added to a, what is added to b) of each instruction, in units of 16 bytes
    The group before it has ended.
    """
    name, rest = _GROUP_PRODUCTS[kind]
    letter = "f" if c[0].type == F32 else "r"
    n, per_tile = len(c), columns // 2
    tail = f", {rest.format(along=int(b_along_n))}" if rest else ""
    lines = ["{ .reg .pred p; .reg .b64 da, db; setp.ne.b32 p, 1, 0; wgmma.fence.sync.aligned;"]
    for tile, from_a, from_b in products:
        sums = ", ".join(f"${i}" for i in range(tile * per_tile, (tile + 1) * per_tile))
        lines.append(f"add.s64 da, ${2 * n}, {from_a}; add.s64 db, ${2 * n + 1}, {from_b};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n{columns}{name} {{{sums}}}, da, db, p{tail};")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; }")
    return _tied(builder, " ".join(lines), letter, c, [a, b])


def wgmma_wait(builder: ir.IRBuilder, c: Sequence[ir.Value]) -> list[ir.Value]:
    """The sums when all products have ended."""
    return _tied(builder, "wgmma.wait_group.sync.aligned 0;", "f" if c[0].type == F32 else "r", c, [])


def wgmma_begin(
    builder: ir.IRBuilder, kind: str, columns: int, c: Sequence[ir.Value] | int, a: Sequence[ir.Value], b: ir.Value,
    b_along_n: bool, upper: int, products: Sequence[tuple[int, int, int]],
) -> list[ir.Value]:  # fmt: skip
    """Begin c + a * b of 16-bit floats by the four warps of a warpgroup, as one group of products.

    c         sums of each thread, as for `wgmma`; a number: so many that begin at 0
    a         the lower half of its descriptor, or registers: 4 for each 64 x 16 of it, tiles of 64 rows one after the
              other
    b, upper  the lower half of its descriptor, the upper half of both
    products  (tile of 64 rows, what is added to a in units of 16 bytes or its first register, what is added to b) of
              each instruction, in the order of the sums
    """
    name, _ = _GROUP_PRODUCTS[kind]
    n, per_tile, fresh = (c, columns // 2, True) if isinstance(c, int) else (len(c), columns // 2, False)
    first = n if fresh else 2 * n  # the number of the first operand that is not a sum
    in_registers, last = len(a) > 1, first + len(a)
    lines = ["{ .reg .pred p, q; .reg .b32 x; .reg .b64 da, db;"]
    lines.append("setp.ne.b32 p, 1, 0; setp.ne.b32 q, 0, 0; wgmma.fence.sync.aligned;")
    begun: set[int] = set()
    for tile, from_a, from_b in products:
        sums = ", ".join(f"${i}" for i in range(tile * per_tile, (tile + 1) * per_tile))
        keeps = "q" if fresh and tile not in begun else "p"
        begun.add(tile)
        if in_registers:
            operand = f"{{{', '.join(f'${first + from_a + i}' for i in range(4))}}}"
            tail = f"1, 1, {int(b_along_n)}"
        else:
            lines.append(f"add.s32 x, ${first}, {from_a}; mov.b64 da, {{x, {upper}}};")
            operand, tail = "da", f"1, 1, 0, {int(b_along_n)}"
        lines.append(f"add.s32 x, ${last}, {from_b}; mov.b64 db, {{x, {upper}}};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n{columns}{name} {{{sums}}}, {operand}, db, {keeps}, {tail};")
    lines.append("wgmma.commit_group.sync.aligned; }")
    ties = [] if isinstance(c, int) else [str(i) for i in range(n)]
    constraints = ",".join([*["=f"] * n, *ties, *["r"] * len(a), "r", "~{memory}"])
    own = [] if isinstance(c, int) else list(c)
    return _assembly(builder, " ".join(lines), [F32] * n, constraints, [*own, *a, b])


def named_barrier(builder: ir.IRBuilder, number: ir.Value, threads: int, *, waits: bool) -> None:
    """Arrive at one of a block's 16 barriers, which lets go on who waits there when so many threads have come."""
    _assembly(builder, f"bar.{'sync' if waits else 'arrive'} $0, {threads};", [], "r,~{memory}", [number])


def wgmma_end(builder: ir.IRBuilder, left: int, registers: Sequence[ir.Value]) -> list[ir.Value]:
    """The registers of products, sums and operands, when only the last `left` groups of products still run."""
    letters = ["f" if x.type == F32 else "r" for x in registers]
    ties = [str(i) for i in range(len(registers))]
    constraints = ",".join([*(f"={letter}" for letter in letters), *ties, "~{memory}"])
    text = f"wgmma.wait_group.sync.aligned {left};"
    return _assembly(builder, text, [x.type for x in registers], constraints, registers)


def _tied(
    builder: ir.IRBuilder, text: str, letter: str, c: Sequence[ir.Value], others: Sequence[ir.Value]
) -> list[ir.Value]:
    """An assembly that changes registers where they are."""
    ties = [str(i) for i in range(len(c))]
    constraints = ",".join([*[f"={letter}"] * len(c), *ties, *["l"] * len(others), "~{memory}"])
    return _assembly(builder, text, [x.type for x in c], constraints, [*c, *others])


def mbarrier_init(builder: ir.IRBuilder, barrier: ir.Value, count: int) -> None:
    """Let a phase end when as many have arrived."""
    _assembly(builder, f"mbarrier.init.shared::cta.b64 [$0], {count};", [], "r,~{memory}", [barrier])


def mbarrier_fence(builder: ir.IRBuilder) -> None:
    """Let copies see mbarriers that this thread has initialised."""
    _assembly(builder, "fence.mbarrier_init.release.cluster;", [], "~{memory}", [])


def cluster_arrive(builder: ir.IRBuilder) -> None:
    """Tell the threads of all blocks of the cluster that this one has come here.

    What it stored before does not go with it, which would wait for the whole device's memory: `mbarrier_fence` lets the
    others see mbarriers.
    """
    _assembly(builder, "barrier.cluster.arrive.relaxed;", [], "~{memory}", [])


def cluster_wait(builder: ir.IRBuilder) -> None:
    """Wait until all threads of the cluster have arrived."""
    _assembly(builder, "barrier.cluster.wait.acquire;", [], "~{memory}", [])


def mbarrier_arrive_at(builder: ir.IRBuilder, barrier: ir.Value, condition: ir.Value, rank: ir.Value) -> None:
    """Arrive at the mbarrier that a block of the cluster has at the same place, where the condition is not 0.

    What it tells is that a place in shared memory is free. Nothing that was stored goes with it, so its scope is the
    block: the cluster's would wait for the whole device's memory.
    """
    text = (
        "{ .reg .pred p; .reg .b32 there; setp.ne.b32 p, $1, 0; mapa.shared::cluster.u32 there, $0, $2; "
        "@p mbarrier.arrive.shared::cluster.b64 _, [there]; }"
    )
    _assembly(builder, text, [], "r,r,r,~{memory}", [barrier, condition, rank])


def mbarrier_arrive(builder: ir.IRBuilder, barrier: ir.Value, condition: ir.Value) -> None:
    """Arrive where the condition (32 bits) is not 0; there is no branch, so that a warp stays together."""
    text = "{ .reg .pred p; setp.ne.b32 p, $1, 0; @p mbarrier.arrive.release.cta.shared::cta.b64 _, [$0]; }"
    _assembly(builder, text, [], "r,r,~{memory}", [barrier, condition])


def mbarrier_expect(builder: ir.IRBuilder, barrier: ir.Value, count: int) -> None:
    """Arrive, and let the phase end only when as many bytes have come."""
    text = f"mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], {count};"
    _assembly(builder, text, [], "r,~{memory}", [barrier])


def mbarrier_wait(builder: ir.IRBuilder, barrier: ir.Value, parity: ir.Value) -> None:
    """Wait until the phase of this parity has ended; what copies of boxes have brought is seen then."""
    text = (
        "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra DONE; bra AGAIN; DONE: }"
    )
    _assembly(builder, text, [], "r,r,~{memory}", [barrier, parity])


def bulk_copy(builder: ir.IRBuilder, size: int, target: ir.Value, source: ir.Value, barrier: ir.Value) -> None:
    """Begin to copy bytes, a multiple of 16, from device to shared memory and tell an mbarrier of them."""
    text = f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], {size}, [$2];"
    _assembly(builder, text, [], "r,l,r,~{memory}", [target, source, barrier])


def tensor_ahead(builder: ir.IRBuilder, tensor_map: ir.Value) -> None:
    """Bring a tensor map to where copies look for it."""
    _assembly(builder, "prefetch.tensormap [$0];", [], "l,~{memory}", [tensor_map])


def tensor_copy(
    builder: ir.IRBuilder, target: ir.Value, tensor_map: ir.Value, at: Sequence[ir.Value], barrier: ir.Value,
    blocks: ir.Value | None = None,
) -> None:  # fmt: skip
    """Begin to copy a box of a tensor to shared memory and tell an mbarrier of its bytes.

    at      coordinates of its first element, the innermost first
    blocks  a bit for each block of the cluster that gets the box, at the same places as this one (16 bits)
    """
    rank = len(at)
    coordinates = ", ".join(f"${3 + i}" for i in range(rank))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{coordinates}}}], [$2];"
    )
    constraints, more = ["r", "l", "r", *["r"] * rank], []
    if blocks is not None:
        text = text.replace("::bytes ", "::bytes.multicast::cluster ").replace("];", f"], ${3 + rank};")
        constraints, more = [*constraints, "h"], [blocks]
    _assembly(builder, text, [], ",".join([*constraints, "~{memory}"]), [target, tensor_map, barrier, *at, *more])
