"""Schedules for NVIDIA's GPUs, in the order in which they are asked: special ones first, the one for all else last."""

from autosched.target import Target
from autosched.templates.base import Template
from autosched.templates.cuda.attention import AttentionPass
from autosched.templates.cuda.concat import Concat
from autosched.templates.cuda.contraction import Contraction, TensorContraction
from autosched.templates.cuda.conv2d import Conv2d
from autosched.templates.cuda.elementwise import Elementwise
from autosched.templates.cuda.matmul import Matmul
from autosched.templates.cuda.matmul_nbits import MatmulNBits
from autosched.templates.cuda.query_attention import QueryAttention
from autosched.templates.cuda.recurrence import Recurrence
from autosched.templates.cuda.reduction import GeneralReduction
from autosched.templates.cuda.rows import RowReduction
from autosched.templates.cuda.scan import Scan
from autosched.templates.cuda.scatter import Scatter
from autosched.templates.cuda.sized import schedule_sizes
from autosched.templates.cuda.sort import Sort
from autosched.templates.cuda.transpose import Transpose
from autosched.templates.cuda.tensor_attention import TensorAttention
from autosched.templates.cuda.tensor_matmul import TensorMatmul
from autosched.templates.cuda.tensor_window import TensorWindow
from autosched.templates.cuda.warpgroup_attention import WarpgroupAttention
from autosched.templates.cuda.warpgroup_matmul import WarpgroupMatmul
from autosched.templates.cuda.warpgroup_window import WarpgroupWindow
from autosched.templates.cuda.windows import SlidingWindow
from autosched.templates.cuda.winograd import Winograd

TEMPLATES: tuple[Template, ...] = (
    Recurrence(),
    MatmulNBits(),
    QueryAttention(),
    WarpgroupAttention(),
    TensorAttention(),
    AttentionPass(),
    WarpgroupMatmul(),
    WarpgroupWindow(),
    TensorWindow(),
    TensorContraction(),
    TensorMatmul(),
    Contraction(),
    Winograd(),
    Matmul(),
    Conv2d(),
    Sort(),
    Scan(),
    Scatter(),
    SlidingWindow(),
    RowReduction(),
    GeneralReduction(),
    Concat(),
    Transpose(),
    Elementwise(),
)


PRODUCT_TYPES = ("tf32",)
SHARES_HEADS = True
__all__ = ["PRODUCT_TYPES", "SHARES_HEADS", "TEMPLATES", "layout_blocks", "schedule_sizes"]


def layout_blocks(target: Target) -> tuple[int, ...]:
    """None: values of a graph keep their natural layouts."""
    del target
    return ()
