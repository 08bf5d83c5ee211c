"""AutoTVM's configuration spaces: knobs that a template defines as it runs."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from autosched.autotvm.task.axes import Axis, VirtualAxis, get_factors, get_pow2s
from autosched.autotvm.task.entities import (
    CODES,
    AnnotateEntity,
    AnnotateSpace,
    OtherOptionEntity,
    OtherOptionSpace,
    PolicyOptions,
    ReorderEntity,
    ReorderSpace,
    SplitEntity,
    SplitSpace,
    TransformSpace,
    entity_from,
    entity_value,
)  # fmt: skip
from autosched.errors import IndexOutOfRangeError, InvalidTypeError, InvalidValueError, TVMError

if TYPE_CHECKING:
    from autosched.autotvm.measure.types import MeasureInput, MeasureResult
    from autosched.autotvm.task.entities import Entity
    from autosched.json_types import Json, JsonObject


class InstantiationError(TVMError):
    """A configuration that its template refuses."""


class ConfigSpace:
    """The knobs of a template, each with its entities; a template defines them by running once.

    space_map  name -> its entities;   cfg["name"]  its current entity, while it is defined the first one
    """

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: OrderedDict[str, TransformSpace] = OrderedDict()
        self._entity_map: OrderedDict[str, Entity] = OrderedDict()
        self._collect = True
        self.errors: list[str] = []
        self.code_hash: str | None = None
        self.flop = 0.0
        self.cost: float | None = None
        self._constraints: list[Callable[[], bool]] = []

    # Defining

    @staticmethod
    def axis(var: object) -> VirtualAxis:
        """An axis of the space: a te axis, or its length."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(
        self, name: str, axis: object, policy: str = "factors", **kwargs: Unpack[PolicyOptions]
    ) -> list[Axis]:
        """A knob that splits an axis.

        policy       "factors" (divisors, no tail), "power2", "verbose" (both), "candidate"
        num_outputs  axes that come out;   max_factor, filter(entity), no_tail  what is left out;   candidate  as given
        """
        if kwargs.get("num_outputs", 1) < 1:
            raise InvalidValueError(
                f"define_split '{name}': num_outputs is {kwargs['num_outputs']}, at least 1 is needed"
            )
        return self._define(SplitSpace, name, [axis], policy, **kwargs)

    def define_reorder(
        self, name: str, axes: Sequence[object], policy: str, **kwargs: Unpack[PolicyOptions]
    ) -> list[Axis]:
        """A knob that reorders axes: "identity", "all", "interval_all", "candidate", "interleave(_cuda)"."""
        return self._define(ReorderSpace, name, axes, policy, **kwargs)

    def define_annotate(
        self, name: str, axes: Sequence[object], policy: str, **kwargs: Unpack[PolicyOptions]
    ) -> list[Axis]:
        """A knob that annotates axes: words of none, unroll and vec joined by _, or "bind_gpu", "locate_cache", …"""
        return self._define(AnnotateSpace, name, axes, policy, **kwargs)

    def define_knob(self, name: str, candidate: Sequence[object]) -> None:
        """A knob that is one of some values."""
        if isinstance(candidate, str) or not isinstance(candidate, Iterable):
            raise InvalidTypeError(f"define_knob '{name}': candidates are a list, not {type(candidate).__name__}")
        self._define(OtherOptionSpace, name, [], "candidate", candidate=list(candidate))

    def _define(
        self,
        kind: type[SplitSpace] | type[ReorderSpace] | type[AnnotateSpace] | type[OtherOptionSpace],
        name: str,
        axes: Sequence[object],
        policy: str,
        **kwargs: Unpack[PolicyOptions],
    ) -> list[Axis]:
        if self._collect and name not in self.space_map:
            known = [a if isinstance(a, VirtualAxis | Axis) else VirtualAxis(a) for a in axes]
            space = kind(known, policy, **kwargs)
            self.space_map[name] = space
            self._entity_map[name] = space[0]
            return [Axis(space, i) for i in range(space.num_output)]
        return [Axis(None, i) for i in range(kind.get_num_output(axes, policy, **kwargs))]

    def multi_filter(self, filter: Callable[[ConfigSpace], bool]) -> None:
        """Leave out configurations as a whole."""
        self._constraints.append(lambda: filter(self))

    def add_flop(self, flop: float) -> None:
        """Say how many operations the template does, where they cannot be counted."""
        self.flop += float(flop)

    def raise_error(self, msg: str) -> None:
        """Note that a configuration cannot be instantiated."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Whether no error was noted."""
        return not self.errors

    # Looking

    def __len__(self) -> int:
        return math.prod(len(space) for space in self.space_map.values())

    @property
    def range_length(self) -> int:
        """The number of configurations."""
        return len(self)

    @property
    def dims(self) -> list[int]:
        """The number of entities of each knob."""
        return [len(space) for space in self.space_map.values()]

    def get(self, index: int) -> ConfigEntity:
        """Configuration number `index`; the first knob changes fastest. Raises IndexError outside the space."""
        if not 0 <= index < len(self):
            raise IndexOutOfRangeError(f"Index out of range: size {len(self)}, got index {index}")
        entities: OrderedDict[str, Entity] = OrderedDict()
        rest = index
        for name, space in self.space_map.items():
            entities[name] = space[rest % len(space)]
            rest //= len(space)
        return ConfigEntity(index, self.code_hash, entities, self._constraints)

    def is_index_valid(self, index: int) -> bool:
        """Whether there is a configuration of that number."""
        return 0 <= index < len(self)

    def point2knob(self, point: int) -> list[int]:
        """The entities' numbers of a configuration's number."""
        found = []
        for size in self.dims:
            found.append(point % size)
            point //= size
        return found

    def knob2point(self, knob: Sequence[int]) -> int:
        """A configuration's number of its entities' numbers."""
        point, factor = 0, 1
        for number, size in zip(knob, self.dims, strict=True):
            point += number * factor
            factor *= size
        return point

    def __iter__(self) -> Iterator[object]:
        return self._entity_map.__iter__()

    def __getitem__(self, name: str) -> Any:
        return self._entity_map[name]

    def __setitem__(self, name: str, entity: Entity) -> None:
        self._entity_map[name] = entity

    def __contains__(self, name: str) -> bool:
        return name in self._entity_map

    def __repr__(self) -> str:
        lines = [f"{i:2d} {name}: {space}" for i, (name, space) in enumerate(self.space_map.items())]
        return "\n".join([f"ConfigSpace (len={len(self)}, space_map=", *(f"  {line}" for line in lines), ")"])


class ConfigEntity(ConfigSpace):
    """One configuration: an entity per knob."""

    def __init__(
        self,
        index: int | None,
        code_hash: str | None,
        entity_map: Mapping[str, Entity],
        constraints: Sequence[Callable[[], bool]] = (),
    ):
        super().__init__()
        self.index, self.code_hash = index, code_hash
        self._collect = False
        self._entity_map = OrderedDict(entity_map)
        self._constraints = list(constraints)

    def get_flatten_feature(self) -> np.ndarray:
        """The entities as one vector of float32."""
        numbers: list[float] = []
        for entity in self._entity_map.values():
            match entity:
                case SplitEntity():
                    numbers += entity.size
                case ReorderEntity():
                    numbers += entity.perm
                case AnnotateEntity():
                    words = {"none": 0, "unroll": 1, "vec": 2, "parallel": 3}
                    numbers += [words.get(a, 4 + hash(a) % 8) if isinstance(a, str) else a for a in entity.anns]
                case _:
                    numbers.append(float(entity.val) if isinstance(entity.val, int | float) else 0.0)
        return np.array(numbers, dtype=np.float32)

    def get_other_option(self) -> JsonObject:
        """The values of the knobs that are plain values."""
        return {name: e.val for name, e in self._entity_map.items() if isinstance(e, OtherOptionEntity)}

    def to_json_dict(self) -> JsonObject:
        """The configuration as JSON values."""
        entities = [[name, CODES[type(e)], entity_value(e)] for name, e in self._entity_map.items()]
        return {
            "index": None if self.index is None else int(self.index),
            "code_hash": self.code_hash,
            "entity": entities,
        }

    @staticmethod
    def from_json_dict(json_dict: Mapping[str, Json]) -> ConfigEntity:
        """Read what `to_json_dict` gave."""
        try:
            entities = OrderedDict((name, entity_from(code, value)) for name, code, value in json_dict["entity"])
            return ConfigEntity(json_dict["index"], json_dict.get("code_hash"), entities)
        except (KeyError, TypeError) as error:
            raise InvalidValueError(f"from_json_dict: no configuration ({error!r} is missing or malformed)") from None

    def __len__(self) -> int:
        return 1

    def __hash__(self) -> int:
        return hash((self.index, self.code_hash))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self.to_json_dict() == other.to_json_dict()

    def __repr__(self) -> str:
        values = ",".join(f"('{name}', {CODES[type(e)]}:{e})" for name, e in self._entity_map.items())
        return f"[{values}],{self.code_hash},{self.index}"


class FallbackConfigEntity(ConfigSpace):
    """A configuration where none is known: a template fills it while it runs."""

    is_fallback = True

    def __init__(self) -> None:
        super().__init__()
        self.index = -1

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """From the last factor to the first, take the largest divisor of what is left that is not above the limit.

        constraints  limits; -1: none
        """
        space = self.space_map[name]
        if not isinstance(space, SplitSpace) or len(constraints) != space.num_output:
            raise TVMError(f"fallback_split: '{name}' is no split into {len(constraints)}")
        size, rest = [1] * space.num_output, space.product
        for position in reversed(range(space.num_output)):
            limit = constraints[position]
            fitting = [f for f in get_factors(rest) if limit == -1 or f <= limit]
            if not fitting:
                raise TVMError(f"Cannot find feasible fallback split entity for node: {name}")
            size[position] = fitting[-1]
            rest //= fitting[-1]
        self._entity_map[name] = SplitEntity(size)

    def fallback_with_reference_log(self, ref_log: Sequence[tuple[MeasureInput, MeasureResult]]) -> None:
        """Take over the record whose splits are most alike: its inner sizes as limits, its other knobs as they are."""
        splits = {name: space for name, space in self.space_map.items() if isinstance(space, SplitSpace)}
        divisors = {name: set(get_factors(space.product)) for name, space in splits.items()}
        best, best_score = None, 0.0
        for inp, _ in ref_log:
            score = 0.0
            for name in splits:
                product = abs(math.prod(inp.config[name].size))
                score += len(divisors[name] & set(get_factors(product))) / len(divisors[name])
            if best is None or score > best_score:
                best, best_score = inp.config, score
        if best is None:
            return
        for name in splits:
            limits = list(best[name].size)
            limits[0] = -1
            self.fallback_split(name, limits)
        for name in self.space_map:
            if name not in splits:
                self._entity_map[name] = best[name]

    def __setitem__(self, name: str, entity: Entity) -> None:
        self._entity_map[name] = entity

    def __repr__(self) -> str:
        values = ",".join(f"('{name}', {e})" for name, e in self._entity_map.items())
        return f"[{values}],fallback,-1"


__all__ = [
    "AnnotateEntity", "AnnotateSpace", "Axis", "ConfigEntity", "ConfigSpace", "FallbackConfigEntity",
    "InstantiationError", "OtherOptionEntity", "OtherOptionSpace", "ReorderEntity", "ReorderSpace", "SplitEntity",
    "SplitSpace", "TransformSpace", "VirtualAxis", "get_factors", "get_pow2s",
]  # fmt: skip
