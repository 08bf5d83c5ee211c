"""A whole random model, and inputs for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tests.frontend.random_onnx.kinds import KINDS
from tests.frontend.random_onnx.maker import SIZES, Input, Maker, Shape, Size, Unfit, names_read, tensors, value_info

OPSET, IR_VERSION = 23, 11
FIRST_DTYPES = (*["float32"] * 7, "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
CALL_SIZES = (1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 33, 64)
SMALL = (1, 2, 3, 4, 5, 8, 17)  # sizes of a model for the emulator


@dataclass
class RandomModel:
    """A model, and how its inputs are drawn."""

    seed: int
    model: onnx.ModelProto
    inputs: dict[str, Input]
    kinds: tuple[str, ...]
    has_edges: bool = False

    @property
    def names(self) -> list[str]:
        """The open sizes."""
        return sorted({d.name for given in self.inputs.values() for d in given.shape if isinstance(d, Size)})

    def feeds(self, number: int, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """The inputs of one call."""
        numbers = np.random.default_rng([self.seed, number])
        return {name: given.draw(numbers, sizes, self.has_edges) for name, given in self.inputs.items()}


def random_model(
    seed: int, *, is_open: bool = False, is_small: bool = False, most_steps: int = 6, only: Iterable[str] = ()
) -> RandomModel:
    """A model of one to `most_steps` kinds of operators; equal arguments give equal models.

    is_open   some of its sizes are open
    is_small  its values have some hundred elements at most
    only      of these kinds alone
    """
    sizes = SMALL if is_small else SIZES
    m = Maker(seed, 1500 if is_small else 100_000, sizes, is_open)
    first = _first_shape(m, 300 if is_small else 40_000)
    m.values.append(m.input(first, m.choose(*FIRST_DTYPES)))
    kinds = [KINDS[name] for name in only] or list(KINDS.values())
    taken: list[str] = []
    wanted = m.random.randint(1, most_steps)
    for _ in range(8 * wanted):
        kind = m.random.choices(kinds, [k.weight for k in kinds])[0]
        n_nodes, n_values = len(m.nodes), len(m.values)
        try:
            kind.make(m, m.pick(kind.takes))
        except Unfit:
            m.undo(n_nodes, n_values)
            continue
        taken.append(kind.name)
        if len(taken) == wanted:
            break
    if not m.nodes:
        m.node("Identity", m.values[0])
    return RandomModel(seed, _model(m), m.inputs, tuple(taken))


def _first_shape(m: Maker, most: int) -> Shape:
    rank = m.choose(1, 2, 2, 3, 3, 4, 4, 4)
    shape = [m.choose(1, 1, 2) if rank == 4 and n == 0 else m.size() for n in range(rank)]
    while np.prod(shape) > most:
        shape = [max(1, d // 2) for d in shape]
    if m.is_open:
        opened = m.random.sample(range(rank), m.random.randint(1, min(rank, 3)))
        shape = [Size(d, f"n{k}") if k in opened else d for k, d in enumerate(shape)]
    elif m.chance(0.02):
        shape[m.random.randrange(rank)] = 0
    return tuple(shape)


def _model(m: Maker) -> onnx.ModelProto:
    read = Counter(names_read(m.nodes))
    made = {name for node in m.nodes for name in node.output}
    unread = [v for v in m.values if v.name in made and not read[v.name]]
    others = [v for v in m.values if v.name in made and read[v.name]]
    outputs = unread[-3:] + ([m.random.choice(others)] if others and m.chance(0.3) else [])
    inputs = [value_info(name, given.dtype, declared(given.shape)) for name, given in m.inputs.items()]
    results = [value_info(v.name, v.dtype, None) for v in outputs]
    hidden = {name for node in m.nodes if node.domain for name in node.output} - {v.name for v in outputs}
    inferred = [value_info(name, m.types[name], None) for name in sorted(hidden & {*m.types})]  # ONNX infers none
    graph = helper.make_graph(m.nodes, "random", inputs, results, tensors(m.constants), value_info=inferred)
    domains = {node.domain for node in m.nodes if node.domain}
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(name, 1) for name in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def declared(shape: Shape) -> list[int | str]:
    """A shape as a model's file has it: open sizes by their names."""
    return [d.name if isinstance(d, Size) else d for d in shape]
