"""What both IR levels share: nodes, modules, equality by form."""

from autosched.lazy_names import lazy_names
from autosched.ir.function import BaseFunc
from autosched.ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict, Node, Span, children, map_children, preorder
from autosched.ir.structural import assert_structural_equal, structural_equal, structural_hash, structural_key

__all__ = [
    "BaseFunc", "DummyGlobalInfo", "FrozenDict", "GlobalInfo", "VDevice",
    "GlobalVar", "IRModule", "Node", "Span", "assert_structural_equal", "children",
    "map_children", "structural_equal", "structural_hash", "structural_key", "preorder",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__)
