"""Where an error of a primitive lies: a few words and, when it is shown, the function with the culprit marked."""

from __future__ import annotations

from autosched.ir import printing
from autosched.tir.expr import Var
from autosched.tir.schedule.tree import Tree, realizes_below
from autosched.tir.stmt import Stmt


class Place(str):
    """The words for a place in a function, which can also draw it."""

    __slots__ = ("node", "tree")

    tree: Tree
    node: Stmt

    @classmethod
    def of(cls, words: str, tree: Tree, node: Stmt) -> Place:
        place = cls(words)
        place.tree, place.node = tree, node
        return place

    def picture(self) -> str:
        """The function's text with a line of carets under the loop or block."""
        return printing.text(self.tree.func, obj_to_underline=(self.node,))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # another process gets the words alone


def where_block(tree: Tree, name: str) -> str:
    """The place of a block."""
    words = f"block '{name}' of function '{tree.func.attrs.get('global_symbol', 'main')}'"
    return Place.of(words, tree, tree.realizes[name]) if tree.draws_errors else words


def where_loop(tree: Tree, var: Var) -> str:
    """The place of a loop."""
    loop = tree.loops[var]
    words = f"loop '{var.name}' around {', '.join([r.block.name_hint for r in realizes_below(loop)][:3])}"
    return Place.of(words, tree, loop) if tree.draws_errors else words
