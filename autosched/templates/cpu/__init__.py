"""Schedules for CPUs, in the order in which they are asked: special ones first, the one that takes everything last."""

from autosched.target import Target
from autosched.templates.base import Template
from autosched.templates.cpu.attention import AttentionRows
from autosched.codegen.cpu.amx_nest import WORDS
from autosched.templates.cpu.amx_tile import has_tiles
from autosched.templates.cpu.conv2d import Conv2dBlocked
from autosched.templates.cpu.conv_amx import AmxConv2d
from autosched.templates.cpu.conv_plain import PlainConv2d
from autosched.templates.cpu.depthwise import DepthwiseConv2d
from autosched.templates.cpu.elementwise import Elementwise
from autosched.templates.cpu.matmul import Matmul
from autosched.templates.cpu.matmul_nbits import MatmulNBits
from autosched.templates.cpu.rows import RowReduction
from autosched.templates.cpu.window import WindowReduction
from autosched.templates.cpu.winograd import Winograd
from autosched.templates.product import BYTE_GROUP

TEMPLATES: tuple[Template, ...] = (
    Matmul(),
    MatmulNBits(),
    AmxConv2d(),
    Conv2dBlocked(),
    Winograd(),
    DepthwiseConv2d(),
    PlainConv2d(),
    WindowReduction(),
    AttentionRows(),
    RowReduction(),
    Elementwise(),
)

WIDENED = ("float16", "bfloat16")  # no CPU that is met computes with them
MULTIPLIES_BYTES = True
MIN_BLOCK = 8  # channels in a block where vectors are shorter


def layout_blocks(target: Target) -> tuple[int, ...]:
    """Channels in a block of the layouts that values of a graph may get: a vector, and two."""
    block = max(MIN_BLOCK, target.lanes("float32"))
    return block, 2 * block


def byte_block(target: Target) -> int:
    """Channels in a block of the bytes that a convolution multiplies in tile registers; 0: it has none."""
    return BYTE_GROUP * WORDS if has_tiles(BYTE_GROUP, target) else 0
