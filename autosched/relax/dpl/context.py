"""Several patterns at once: values of a dataflow block and who reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from autosched.errors import InvalidTypeError
from autosched.relax.dpl.pattern import DFPattern, Matcher, Matches
from autosched.relax.expr import DataflowBlock, Function, SeqExpr, Var
from autosched.relax.rewrite import used_vars


class PatternContext:
    """Collects what `used_by` and `only_used_by` say; `match_dfb` finds values that fulfil all of it.

    with PatternContext() as ctx:
        a, b = is_op("relax.nn.relu")(wildcard()), is_op("relax.add")(wildcard(), wildcard())
        a.used_by(b)
        found = ctx.match_dfb(func.body.blocks[0])
    """

    _stack: ClassVar[list[PatternContext]] = []

    def __init__(self, incremental: bool = False):
        parent = PatternContext.current() if incremental else None
        self.constraints: list[tuple[DFPattern, DFPattern, int, bool]] = list(parent.constraints if parent else ())

    def __enter__(self) -> PatternContext:
        PatternContext._stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        PatternContext._stack.remove(self)

    @staticmethod
    def current() -> PatternContext | None:
        """The innermost context."""
        return PatternContext._stack[-1] if PatternContext._stack else None

    def add_constraint(self, producer: DFPattern, consumer: DFPattern, index: int, only: bool) -> None:
        """Note that `consumer` reads `producer`, as its argument `index` (-1: any), and perhaps nothing else does."""
        self.constraints.append((producer, consumer, index, only))

    def patterns(self) -> list[DFPattern]:
        """The patterns that are spoken of, in order."""
        return list(dict.fromkeys(p for a, b, *_ in self.constraints for p in (a, b)))

    def match_dfb(self, dfb: DataflowBlock) -> dict[DFPattern, Var] | None:
        """The variables of a block that the patterns match; None where there are none.

        Raises TypeError for what is no dataflow block.
        """
        if not isinstance(dfb, DataflowBlock):
            raise InvalidTypeError(f"match_dfb takes a dataflow block, got {type(dfb).__name__}")
        return next(self._matches(dfb), None)

    def _matches(self, dfb: DataflowBlock) -> Iterator[dict[DFPattern, Var]]:
        values = {b.var: b.value for b in dfb.bindings}
        readers: dict[Var, list[Var]] = {}
        for var, value in values.items():
            for v in dict.fromkeys(used_vars(value)):
                readers.setdefault(v, []).append(var)
        outside = list(dict.fromkeys(v for value in values.values() for v in used_vars(value) if v not in values))
        patterns = self.patterns()

        def assign(position: int, chosen: dict[DFPattern, Var], found: Matches) -> Iterator[dict[DFPattern, Var]]:
            if position == len(patterns):
                yield dict(chosen)
                return
            pattern = patterns[position]
            for var in (*outside, *values):
                if var in chosen.values():
                    continue
                matcher = Matcher(values)
                matcher.found = dict(found)
                if not matcher.match(pattern, var):
                    continue
                chosen[pattern] = var
                if self._holds(chosen, values, readers):
                    yield from assign(position + 1, chosen, matcher.found)
                del chosen[pattern]

        yield from assign(0, {}, {})

    def _holds(
        self, chosen: Mapping[DFPattern, Var], values: Mapping[Var, object], readers: Mapping[Var, list[Var]]
    ) -> bool:
        for producer, consumer, index, only in self.constraints:
            if producer not in chosen or consumer not in chosen:
                continue
            a, b = chosen[producer], chosen[consumer]
            if b not in readers.get(a, ()):
                return False
            if only and (readers[a] != [b] or type(a) is Var and a in values):
                return False
            args = getattr(values.get(b), "args", ())
            if index >= 0 and (index >= len(args) or args[index] is not a):
                return False
        return True


def dataflow_blocks(function: Function) -> list[DataflowBlock]:
    """The dataflow blocks of a function."""
    assert isinstance(function.body, SeqExpr), "a function's body is a sequence"
    return [b for b in function.body.blocks if isinstance(b, DataflowBlock)]
