"""The layouts of all values of a function, chosen together: those of least total cost.

Each call has the layouts it can give; each of its arguments then has to come in some layout, and where that is not
the one in which the argument was made, it is changed, once for all who read it so. Calls and changes have costs
(`layout_costs`), and `least_cost` finds the cheapest assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from autosched.relax.expr import Call, DataflowVar, Function, Var
from autosched.relax.rewrite import used_vars, users
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.layout_costs import LayoutCosts
from autosched.relax.transform.layout_rules import PLAIN, data_arguments, forms_of, has_blocks_of_its_own, needed
from autosched.relax.transform.least_cost import CostGraph

BlocksOf = Callable[[Call], Sequence[int]]


class _Planner:
    def __init__(self, function: Function, blocks: BlocksOf, costs: LayoutCosts):
        self.costs, self.graph = costs, CostGraph()
        self.readers = users(function)
        self.forms: dict[Var, tuple[int, ...]] = {}
        self.tables: dict[Hashable, np.ndarray] = {}
        self.calls = {b.var: b.value for b in function.bindings() if isinstance(b.value, Call)}
        own = {var: tuple(blocks(call)) for var, call in self.calls.items() if has_blocks_of_its_own(call)}
        everywhere = tuple(sorted({x for sizes in own.values() for x in sizes}))
        for var, call in self.calls.items():
            self.forms[var] = forms_of(call, own.get(var, everywhere))
            self.graph.variable(var, len(self.forms[var]))
        for b in function.bindings():
            if b.var not in self.forms:
                self._reads_plain(used_vars(b.value))
        for var, call in self.calls.items():
            self._call(var, call)
        self._reads_plain(v for v, who in self.readers.items() if None in who)
        self._reads_plain(v for v in self.forms if not isinstance(v, DataflowVar))

    def forms_there(self, x: object) -> tuple[int, ...]:
        """The layouts in which a value may be made; parameters are plain."""
        return self.forms.get(x, (PLAIN,)) if isinstance(x, Var) else (PLAIN,)

    def _call(self, var: Var, call: Call) -> None:
        own, data = self.forms[var], [a for a in data_arguments(call) if isinstance(a, Var)]
        first = data[0] if data else None
        there = self.forms_there(first)
        known = self.costs.calls(call, [(has, result) for has in there for result in own])
        table = np.array([[known[has, result] for result in own] for has in there])
        if first in self.forms:
            self.graph.cost((first, var), table)
        else:
            self.graph.cost((var,), table[0])
        others = [v for v in used_vars(call) if not any(v is d for d in data)]
        for x in dict.fromkeys(data):
            if len(shape_of(x)) == 4:
                self._argument(x, var, call)
            else:
                others.append(x)
        self._reads_plain(others)

    def _argument(self, x: Var, var: Var, call: Call) -> None:
        """What it costs to bring an argument into the layout that the call needs."""
        there, own = self.forms_there(x), self.forms[var]
        wanted = [[needed(call, x, has, result) for result in own] for has in there]
        shape = shape_of(x)
        if len(self.readers.get(x, ())) <= 1:
            costs = [[self.costs.change(shape, has, w) for w in row] for has, row in zip(there, wanted, strict=True)]
            self._pair(x, var, costs)
            return
        for new in sorted({w for row in wanted for w in row}):  # changed once for all who read it so
            made = self._made(x, new)
            table = self._only_made(there, wanted, new)
            names = (x, var, made) if x in self.forms else (var, made)
            self.graph.cost(names, table if x in self.forms else table[0])

    def _only_made(self, there: tuple[int, ...], wanted: Sequence[Sequence[int]], new: int) -> np.ndarray:
        """Costs that refuse to read a value in a layout in which it neither is nor was made."""
        key = there, tuple(map(tuple, wanted)), new
        if key not in self.tables:
            right = np.array(
                [[w != new or has == new for w in row] for has, row in zip(there, wanted, strict=True)], bool
            )
            self.tables[key] = np.stack([np.where(right, 0.0, np.inf), np.zeros(right.shape)], axis=-1)
        return self.tables[key]

    def _made(self, x: Var, new: int) -> tuple[Var, int]:
        """The variable that says whether a value is brought into a layout."""
        made = (x, new)
        if made not in self.graph.sizes:
            self.graph.variable(made, 2)
            there = self.forms_there(x)
            table = np.array([[0.0, self.costs.change(shape_of(x), has, new)] for has in there])
            self.graph.cost((x, made) if x in self.forms else (made,), table if x in self.forms else table[0])
        return made

    def _pair(self, x: Var, var: Var, table: Sequence[Sequence[float]]) -> None:
        if x in self.forms:
            self.graph.cost((x, var), table)
        else:
            self.graph.cost((var,), table[0])

    def _reads_plain(self, values: object) -> None:
        """Somebody needs these values in plain layout."""
        for x in dict.fromkeys(values):  # type: ignore[call-overload]
            if len(self.forms_there(x)) == 1 and self.forms_there(x) == (PLAIN,):
                continue
            made = self._made(x, PLAIN)
            self.graph.cost((made,), [np.inf, 0.0])


def plan_layouts(function: Function, blocks: BlocksOf, costs: LayoutCosts) -> Mapping[Var, int]:
    """For each bound call's variable the channels in its blocks, or 0 for plain layout."""
    planner = _Planner(function, blocks, costs)
    if all(forms == (PLAIN,) for forms in planner.forms.values()):
        return {}
    found = planner.graph.solve()
    return {var: forms[found[var]] for var, forms in planner.forms.items()}


__all__ = ["plan_layouts"]
