"""Schedules for CPUs, in the order in which they are asked: special ones first, the one that takes everything last."""

from collections.abc import Mapping, Sequence

from autosched.target import Target
from autosched.templates.base import Applied, Template
from autosched.templates.cpu import peaks as peaks
from autosched.templates.cpu.attention import AttentionRows
from autosched.templates.cpu.attention_amx import AmxAttention
from autosched.templates.cpu.attention_sized import schedule_attention
from autosched.codegen.cpu.amx_nest import WORDS
from autosched.templates.cpu.amx_tile import has_tiles
from autosched.templates.cpu.byte_products import sums_columns as sums_columns, widens_bytes as widens_bytes
from autosched.templates.cpu.columns import ColumnReduction
from autosched.templates.cpu.concat import Concat
from autosched.templates.cpu.conv2d import Conv2dBlocked
from autosched.templates.cpu.conv_amx import LEAST_TAPS, AmxConv2d
from autosched.templates.cpu.conv_plain import PlainConv2d
from autosched.templates.cpu.conv_sized import schedule_conv
from autosched.templates.cpu.depthwise import DepthwiseConv2d
from autosched.templates.cpu.elementwise import Elementwise
from autosched.templates.cpu.expand_depthwise import ExpandDepthwise, joins_convolutions as joins_convolutions
from autosched.templates.cpu.expand_depthwise_sized import schedule_expand_depthwise
from autosched.templates.cpu.matmul_sized import schedule_product
from autosched.templates.cpu.matmul import Matmul
from autosched.templates.cpu.matmul_nbits import MatmulNBits
from autosched.templates.cpu.matmul_nbits_bytes import MatmulNBitsBytes
from autosched.templates.cpu.rows import RowReduction
from autosched.templates.cpu.scan import Scan
from autosched.templates.cpu.scan_sized import schedule_scans
from autosched.templates.cpu.scatter import Scatter, schedule_scatter
from autosched.templates.cpu.sized import schedule_sized
from autosched.templates.cpu.short_rows import ShortRows
from autosched.templates.cpu.sort import Sort, schedule_sort
from autosched.templates.cpu.window import WindowReduction
from autosched.templates.cpu.winograd import Winograd
from autosched.templates.cpu.window_sized import schedule_windows
from autosched.templates.cpu.winograd_rows_sized import schedule_winograd_rows
from autosched.templates.cpu.winograd_sized import schedule_winograd
from autosched.templates.cpu.winograd_rows import WinogradRows
from autosched.templates.cpu.winograd_taps import WinogradTaps
from autosched.templates.product import BYTE_GROUP, PAIR
from autosched.tir import PrimFunc

FIRST_CHANNELS = 4  # of the image that a first layer reads, or fewer

TEMPLATES: tuple[Template, ...] = (
    Matmul(),
    MatmulNBitsBytes(),
    MatmulNBits(),
    AmxConv2d(),
    Conv2dBlocked(),
    Winograd(),
    WinogradTaps(),
    WinogradRows(),
    DepthwiseConv2d(),
    ExpandDepthwise(),
    PlainConv2d(),
    Sort(),
    Scatter(),
    Scan(),
    ColumnReduction(),
    WindowReduction(),
    AmxAttention(),
    AttentionRows(),
    ShortRows(),
    RowReduction(),
    Concat(),
    Elementwise(),
)

WIDENED = ("float16", "bfloat16")  # no CPU that is met computes with them
MULTIPLIES_BYTES = True
CONVOLVES_PLANES = True  # no template takes windows over three dimensions
SPLITS_PRODUCTS = True  # DaViT takes .97 of the time so, Hiera and MobileViT .98, ViT-tiny .994 (Emerald Rapids)
# Without vdpbf16ps words of two bfloat16 are unpacked again for each tile; with more rows products take longer than the
# way of a weight twice as large.
MOST_UNPACKED_ROWS = 16
LEAST_QUERIES = 16  # whose keys are worth being arranged in pairs
MIN_BLOCK = 8  # channels in a block where vectors are shorter


def layout_blocks(target: Target) -> tuple[int, ...]:
    """Channels in a block of the layouts that values of a graph may get: a vector, and two.

    Also half a vector where that loses no speed: 24 channels fill three such blocks.
    """
    block = max(MIN_BLOCK, target.lanes("float32"))
    halves = (block // 2,) if 2 * target.unit_bits <= target.vector_bits else ()
    return *halves, block, 2 * block


def tile_blocks(target: Target) -> Mapping[str, int]:
    """Channels in a block of what a convolution multiplies in tile registers, by dtype."""
    groups = {"uint8": BYTE_GROUP, "bfloat16": PAIR}
    return {dtype: group * WORDS for dtype, group in groups.items() if has_tiles(group, target)}


def schedule_sizes(func: PrimFunc, target: Target) -> Applied:
    """A function over symbols, as attention, a product, a convolution, scans, sorts or scatters where it is that."""
    special = (
        schedule_attention, schedule_product, schedule_winograd, schedule_winograd_rows, schedule_expand_depthwise,
        schedule_conv, schedule_windows, schedule_scans, schedule_sort, schedule_scatter,
    )  # fmt: skip
    found = next((applied for schedule in special if (applied := schedule(func, target)) is not None), None)
    return found or schedule_sized(func, target)


def narrows_convolution(target: Target, weight: Sequence[int], strides: Sequence[int], groups: int) -> bool:
    """Whether a convolution is faster on bfloat16: in tile registers each, by vdpbf16ps those that are no Winograd's.

    By vdpbf16ps a core multiplies at most twice as fast as in float32, Winograd's algorithm saves more products. So do
    first layers, whose channels fill no words: 3x3 of 3 channels takes 1.6 times as long as in float32.
    """
    _, channels, _, taps = weight
    if channels <= FIRST_CHANNELS and groups == 1 and (taps < LEAST_TAPS or not has_tiles(PAIR, target)):
        return False
    if has_tiles(PAIR, target):
        return True
    is_winograd = tuple(weight[2:]) == (3, 3) and tuple(strides) == (1, 1) and groups == 1
    return _has_bfloat_dot(target) and not is_winograd


def streams_bfloat16(target: Target, rows: int) -> bool:
    """Whether a product of so many rows is faster on bfloat16 than on its values as float32; rows: 0 if not known."""
    return rows <= MOST_UNPACKED_ROWS or has_tiles(PAIR, target) or _has_bfloat_dot(target)


def _has_bfloat_dot(target: Target) -> bool:
    return {"avx512bf16", "avx512vl"} <= target.features


def narrows_attention(target: Target, queries: int, keys: int) -> bool:
    """Whether attention of so many queries and keys is faster on bfloat16: in tile registers, but for a few of them."""
    return has_tiles(PAIR, target) and queries >= LEAST_QUERIES and keys >= LEAST_QUERIES
