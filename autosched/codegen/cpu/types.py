"""LLVM types of TIR dtypes, and the names that LLVM gives to vectors of them in its intrinsics."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from llvmlite import ir

from autosched.errors import CodegenError
from autosched.target import Target
from autosched.tir.dtypes import item_bytes

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32 = ir.FloatType()
BYTES = I8.as_pointer()
VOID = ir.VoidType()

_FLOATS: dict[str, ir.Type] = {"float16": ir.HalfType(), "float32": ir.FloatType(), "float64": ir.DoubleType()}
_INT_BITS = {
    f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)
}  # fmt: skip


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


@functools.cache  # types and constants that are asked for again keep their text
def value_type(dtype: str, lanes: int = 1) -> ir.Type:
    """The type of a value: bool is one bit. Raises CodegenError for a dtype that no CPU code exists for."""
    if dtype == "bool":
        element = I1
    elif dtype in _FLOATS:
        element = _FLOATS[dtype]
    elif dtype in _INT_BITS:
        element = ir.IntType(_INT_BITS[dtype])
    else:
        raise CodegenError(f"no code for values of dtype '{dtype}'", hint="cast to float32, float16 or an integer")
    return element if lanes == 1 else ir.VectorType(element, lanes)


def memory_type(dtype: str, lanes: int = 1) -> ir.Type:
    """The type in memory: bool is a byte."""
    return value_type("uint8" if dtype == "bool" else dtype, lanes)


def is_signed(dtype: str) -> bool:
    """Whether an integer dtype has a sign."""
    return dtype.startswith("int")


def lanes_of(value: ir.Value) -> int:
    """Lanes of an LLVM value: 1 for a scalar."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


def element_of(llvm_type: ir.Type) -> ir.Type:
    """The element type of a vector type; a scalar type as it is."""
    return llvm_type.element if isinstance(llvm_type, ir.VectorType) else llvm_type


def suffix(llvm_type: ir.Type) -> str:
    """LLVM's name of a type inside an intrinsic's name: f32, v8f32, v4i64."""
    element = element_of(llvm_type)
    if isinstance(element, ir.IntType):
        name = f"i{element.width}"
    else:
        name = {"half": "f16", "float": "f32", "double": "f64"}[str(element)]
    return f"v{llvm_type.count}{name}" if isinstance(llvm_type, ir.VectorType) else name


def constant(llvm_type: ir.Type, number: float | None) -> ir.Constant:
    """A constant, the same in all lanes."""
    if isinstance(llvm_type, ir.VectorType):
        return _in_all_lanes(llvm_type, ir.Constant(llvm_type.element, number))
    return ir.Constant(llvm_type, number)


# By type and text: -0.0 is not 0.0. Their texts are long and asked for in every line of an unrolled loop.
_vectors: dict[tuple[ir.Type, str], ir.Constant] = {}
MOST_VECTORS = 4096


def _in_all_lanes(vector: ir.Type, one: ir.Constant) -> ir.Constant:
    key = vector, one.get_reference()
    found = _vectors.get(key)
    if found is None:
        if len(_vectors) >= MOST_VECTORS:
            _vectors.clear()
        text = _SHORT.get(one.get_reference().strip())
        values = [one] * vector.count
        found = _vectors[key] = ir.Constant(vector, values) if text is None else _Short(vector, values, text)
    return found


# By the text of one lane: +0.0 is 0x0 here, -0.0 is not.
_SHORT = {"0": "zeroinitializer", "0x0": "zeroinitializer", "undef": "undef"}


class _Short(ir.Constant):  # type: ignore[misc]  # llvmlite has no types
    """A vector that LLVM has a word for; there is one in most lines."""

    def __init__(self, vector: ir.Type, values: list[ir.Constant], text: str):
        super().__init__(vector, values)
        self.text = text

    def _get_reference(self) -> str:
        return self.text


def undefined(vector: ir.Type) -> ir.Constant:
    """A vector whose lanes hold anything."""
    return _in_all_lanes(vector, ir.Constant(vector.element, ir.Undefined))


def call_intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, args: list[ir.Value]) -> ir.Value:
    """Call the LLVM intrinsic `name`, declared where needed."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(function, args)


class _LaneAddresses(ir.instructions.GEPInstr):  # type: ignore[misc]  # llvmlite has no types
    """The address of an element in each lane: llvmlite knows no `getelementptr` of several."""

    def __init__(self, block: ir.Block, pointer: ir.Value, offsets: ir.Value):
        super().__init__(block, pointer, [offsets], False, "", pointer.type.pointee)
        self.type = ir.VectorType(pointer.type, lanes_of(offsets))


def lane_addresses(builder: ir.IRBuilder, pointer: ir.Value, offsets: ir.Value) -> ir.Value:
    """A vector of pointers to the elements at `offsets` behind one pointer, which CPUs load with one instruction."""
    found = _LaneAddresses(builder.block, pointer, offsets)
    builder._insert(found)
    return found


def splat(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """The scalar in every lane; a vector as it is."""
    if lanes == 1 or isinstance(value.type, ir.VectorType):
        return value
    vector = _vector_of(value.type, lanes)
    if isinstance(value, ir.Constant):
        return _in_all_lanes(vector, value)
    one = builder.insert_element(undefined(vector), value, I32(0))
    return builder.shuffle_vector(one, undefined(vector), constant(_vector_of(I32, lanes), 0))


@functools.cache
def _vector_of(element: ir.Type, lanes: int) -> ir.Type:
    return ir.VectorType(element, lanes)


@dataclass(frozen=True, slots=True)
class Isa:
    """Vector width in bits, and whether a * b + c is one instruction.

    has_byte_dots   whether the dot product of four bytes is one instruction
    pair_bits       the widest vectors of 16-bit integers whose products are added in pairs by one instruction; 0: none
    has_bfloat_dot  whether that of two bfloat16 is
    rounds_bytes    whether one instruction rounds floats to the nearest integers
    permutes_bytes  whether one instruction puts the bytes of 512 bits into any order
    gathers         whether one instruction loads elements from places of their own in less time than several do
    estimates       whether quotients of float32 had better be made of reciprocals with 14 bits
    fetches_into_l2 whether what is far ahead is asked for into the second level of caches alone
    has_byte_tiles, has_bfloat_tiles  whether products of whole tiles are
    """

    vector_bits: int
    has_fma: bool
    num_registers: int
    has_byte_dots: bool = False
    pair_bits: int = 0
    has_bfloat_dot: bool = False
    rounds_bytes: bool = False
    permutes_bytes: bool = False
    gathers: bool = False
    estimates: bool = False
    fetches_into_l2: bool = False
    has_byte_tiles: bool = False
    has_bfloat_tiles: bool = False

    @staticmethod
    def of(target: Target) -> Isa:
        features = target.features
        has_dots = "avx512vnni" in features or ("avxvnni" in features and target.vector_bits <= 256)
        pairs = 0 if "ssse3" not in features else 512 if "avx512bw" in features else target.vector_bits
        has_bfloat_dot = {"avx512bf16", "avx512vl"} <= features
        tiles = ("amx-int8" in features, "amx-bf16" in features) if "amx-tile" in features else ()
        rounds, permutes = target.architecture == "x86_64", "avx512vbmi" in features
        gathers = "avx512vl" in features and not target.mcpu.startswith("znver")  # there one takes as long as loads
        # from memory 35 GB/s, into the first level, or not asked for, 24 to 28
        into_l2 = target.mcpu == "znver4"
        # 16 divisions keep a divider, which works beside the multiply-adds, busy for 6 cycles, on Intel's cores for 16
        estimates = "avx512vl" in features and target.mcpu != "znver4"
        known = has_dots, pairs, has_bfloat_dot, rounds, permutes, gathers, estimates, into_l2, *tiles
        return Isa(target.vector_bits, target.has_fma, target.num_registers, *known)

    def lanes(self, dtype: str) -> int:
        """Values of a dtype in one vector register."""
        return max(1, self.vector_bits // (8 * item_bytes(dtype)))
