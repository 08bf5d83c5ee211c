"""What one knob of AutoTVM may be: factors of a split, an order, annotations, or another value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, Unpack

from autosched.autotvm.task.axes import Axis, VirtualAxis, axis_length, get_factors, get_pow2s
from autosched.errors import TVMError
from autosched.te import Schedule, thread_axis

if TYPE_CHECKING:
    from autosched.json_types import Json
    from autosched.te import Tensor
    from autosched.tir.axis import IterVar


class Refuses(Protocol):
    """A configuration, which notes what is wrong with it."""

    def raise_error(self, msg: str) -> None: ...


class SplitEntity:
    """The sizes of a split axis, outermost first; -1 for what follows from the others."""

    def __init__(self, size: Sequence[int]):
        self.size = list(size)

    def apply(self, sch: Schedule, op: Tensor, axis: IterVar) -> list[IterVar]:
        """Split an axis; gives all axes, outer to inner."""
        found = []
        for index in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, factor=math.prod(self.size[index:]))
            found.append(outer)
        return [*found, axis]

    def __repr__(self) -> str:
        return str(self.size)


class ReorderEntity:
    """An order of axes, by their numbers."""

    def __init__(self, perm: Sequence[int]):
        self.perm = list(perm)

    def apply(self, sch: Schedule, op: Tensor, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder axes; gives them in their new order."""
        if len(axes) == len(self.perm):
            new = [axes[i] for i in self.perm]
        else:
            new = [axes[i] for i in self.perm if i < len(axes)]
        sch[op].reorder(*new)
        return new

    def __repr__(self) -> str:
        return str(self.perm)


class AnnotateEntity:
    """An annotation per axis."""

    def __init__(self, anns: Sequence[str | int]):
        self.anns = list(anns)  # words, or axes' numbers where caches are attached

    def apply(
        self,
        sch: Schedule,
        op: Tensor,
        axes: Sequence[IterVar],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Refuses | None = None,
        source: Sequence[Sequence[Tensor]] | None = None,
    ) -> list[IterVar]:
        """Annotate axes; gives them, fused ones as one."""
        if source is not None:  # where caches are attached
            for tensors, position in zip(source, self.anns):
                for tensor in tensors:
                    sch[tensor].compute_at(sch[op], axes[int(position)])
            return list(axes)
        result: list[IterVar | None] = list(axes)
        for i, annotation in enumerate(self.anns):
            self._annotate(sch, op, result, i, str(annotation), axis_lens, max_unroll, vec_size, cfg)
        return [axis for axis in result if axis is not None]

    def _annotate(
        self, sch: Schedule, op: Tensor, axes: list[Any], i: int, annotation: str,
        axis_lens: Sequence[int] | None, max_unroll: int | None, vec_size: Sequence[int] | None,
        cfg: Refuses | None,
    ) -> None:  # fmt: skip
        stage, length = sch[op], None if axis_lens is None else axis_lens[i]
        if annotation == "none":
            return
        if annotation == "unroll":
            if max_unroll and length is not None and length > max_unroll and cfg is not None:
                cfg.raise_error("Too large factor for unrolling")
            stage.unroll(axes[i])
        elif annotation == "vec":
            if vec_size and length is not None and length not in vec_size and cfg is not None:
                cfg.raise_error("Wrong size of lanes in vectorization")
            stage.vectorize(axes[i])
        elif annotation == "fuse":
            axes[i + 1] = stage.fuse(axes[i], axes[i + 1])
            axes[i] = None
        elif annotation in (
            "blockIdx.x",
            "blockIdx.y",
            "blockIdx.z",
            "threadIdx.x",
            "threadIdx.y",
            "threadIdx.z",
            "vthread",
        ):
            stage.bind(axes[i], thread_axis(annotation))
        else:
            raise TVMError(f"Invalid annotation {annotation}")

    def __repr__(self) -> str:
        return str(self.anns)


class OtherOptionEntity:
    """Any other value."""

    def __init__(self, val: object):
        self.val = val

    def __repr__(self) -> str:
        return str(self.val)


class PolicyOptions(TypedDict, total=False):
    """What policies take beside axes; `candidate` holds what its knob chooses from, other spaces have axes there."""

    num_outputs: int
    num_output: int
    filter: Callable[[SplitEntity], bool] | None
    max_factor: int
    no_tail: bool
    candidate: Sequence[Any]
    interval: tuple[int, int]
    spatial: Sequence[Sequence[object]]
    reduce: Sequence[Sequence[object]]
    num_anchor: int


class TransformSpace:
    """The entities of one knob."""

    def __init__(self) -> None:
        self.entities: Sequence[Entity] = []
        self.num_output = 0

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Entity:
        return self.entities[index]


class SplitSpace(TransformSpace):
    """All splits of an axis that a policy allows."""

    entities: list[SplitEntity]

    def __init__(self, axes: Sequence[VirtualAxis | Axis], policy: str, **options: Unpack[PolicyOptions]):
        super().__init__()
        self.product = axis_length(axes[0])
        self.policy = policy
        self.entities = []
        self.num_output = self.get_num_output(axes, "", **options)
        self._filter = options.get("filter")
        most = options.get("max_factor", 1 << 31)
        no_tail = bool(options.get("no_tail", policy in ("factors", "all")))
        if policy == "candidate":
            self.entities = [SplitEntity(size) for size in options["candidate"]]
            self.num_output = len(self.entities[0].size)
            return
        sources: dict[str, Callable[[int], set[int]]] = {
            "factors": lambda n: set(get_factors(n)),
            "all": lambda n: set(get_factors(n)),
            "power2": lambda n: set(get_pow2s(n)),
            "verbose": lambda n: {*get_factors(n), *get_pow2s(n)},
        }
        if policy not in sources:
            raise TVMError(f"Invalid policy: {policy}", hint=f"there are {', '.join(sources)}, candidate")
        factors = sorted(f for f in sources[policy](self.product) if f <= most)
        for inner in itertools.product(factors, repeat=self.num_output - 1):
            size = math.prod(inner)
            if size > self.product or (no_tail and self.product % size):
                continue
            entity = SplitEntity([-1, *reversed(inner)])
            if self._filter is None or self._filter(entity):
                self.entities.append(entity)
        if not self.entities:
            raise TVMError(f"no split of {self.product} is left by the filter")

    @staticmethod
    def get_num_output(axes: Sequence[object], policy: str, **options: Unpack[PolicyOptions]) -> int:
        """How many axes a split gives."""
        if policy == "candidate":
            return len(options["candidate"][0])
        return int(options.get("num_outputs", options.get("num_output", 2)))

    def __repr__(self) -> str:
        return f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_output}) len={len(self)}"


class ReorderSpace(TransformSpace):
    """All orders that a policy allows."""

    def __init__(self, axes: Sequence[VirtualAxis | Axis], policy: str, **options: Unpack[PolicyOptions]):
        super().__init__()
        self.num_output, self.policy = len(axes), policy
        numbers = list(range(len(axes)))
        if policy == "identity":
            self.entities = [ReorderEntity(numbers)]
        elif policy == "all":
            self.entities = [ReorderEntity(p) for p in itertools.permutations(numbers)]
        elif policy == "interval_all":
            begin, end = options["interval"]
            middle = itertools.permutations(numbers[begin:end])
            self.entities = [ReorderEntity([*numbers[:begin], *m, *numbers[end:]]) for m in middle]
        elif policy == "candidate":
            place = {id(axis): number for number, axis in enumerate(axes)}
            self.entities = [
                ReorderEntity([c if isinstance(c, int) else place[id(c)] for c in candidate])
                for candidate in options["candidate"]
            ]
        elif policy in ("interleave", "interleave_cuda"):
            place = {id(axis): number for number, axis in enumerate(axes)}
            spatial = [[place[id(a)] for a in chain] for chain in options["spatial"]]
            reduce = [[place[id(a)] for a in chain] for chain in options["reduce"]]
            self.entities = [ReorderEntity(p) for p in _interleaved(spatial, reduce, cuda=policy == "interleave_cuda")]
        else:
            raise TVMError(f"Invalid policy: {policy}")

    @staticmethod
    def get_num_output(axes: Sequence[object], policy: str, **options: Unpack[PolicyOptions]) -> int:
        """A reordering gives as many axes as it is given."""
        return len(axes)

    def __repr__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self)}"


def _interleaved(spatial: list[list[int]], reduce: list[list[int]], *, cuda: bool) -> list[list[int]]:
    """Outer spatial axes first; then the reduction's chains and the inner spatial axes, each chain in its order."""
    columns = list(zip(*spatial))
    if cuda:  # block, vthread and thread axes stay outside
        head = [axis for column in columns[:-1] for axis in column]
        return [[*head, *merged, *columns[-1]] for merged in _merge_chains(reduce)]
    outer = [axis for column in columns[:1] for axis in column]
    chains = [*reduce, *([axis for column in columns[1:] for axis in column] for _ in (0,))]
    return [[*outer, *merged] for merged in _merge_chains(chains)]


def _merge_chains(chains: list[list[int]]) -> list[list[int]]:
    """All sequences that hold every chain in its order."""
    waiting = [chain for chain in chains if chain]
    if not waiting:
        return [[]]
    found = []
    for number, chain in enumerate(waiting):
        rest = [c[1:] if i == number else c for i, c in enumerate(waiting)]
        found += [[chain[0], *tail] for tail in _merge_chains(rest)]
    return found


class AnnotateSpace(TransformSpace):
    """All annotations of axes that a policy allows."""

    def __init__(self, axes: Sequence[VirtualAxis | Axis], policy: str, **options: Unpack[PolicyOptions]):
        super().__init__()
        self.num_output, self.policy = len(axes), policy
        if policy in ("bind_gpu", "bind_gpu_virtual"):
            self.entities = [AnnotateEntity(_gpu(len(axes), virtual=policy == "bind_gpu_virtual"))]
        elif policy == "locate_cache":
            positions = itertools.combinations_with_replacement(range(len(axes)), int(options["num_anchor"]))
            self.entities = [AnnotateEntity(p) for p in positions]
        else:
            words = policy.replace("try_", "none_").split("_") if "try_" in policy else policy.split("_")
            if not words or set(words) - {"none", "unroll", "vec"}:
                raise TVMError(f"Invalid policy: {policy}")
            choices = itertools.product(dict.fromkeys(words), repeat=len(axes))
            self.entities = [AnnotateEntity(c) for c in choices if c.count("vec") <= 1]

    @staticmethod
    def get_num_output(axes: Sequence[object], policy: str, **options: Unpack[PolicyOptions]) -> int:
        """Annotating gives as many axes as it is given."""
        return len(axes)

    def __repr__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self)}"


def _gpu(n: int, *, virtual: bool) -> list[str]:
    step = 3 if virtual else 2
    if n < step:
        raise TVMError(f"{n} axes cannot be bound to a GPU's grid")
    dims = min(n // step, 3)
    names = [[f"blockIdx.{d}" for d in "zyx"[3 - dims :]]]
    if virtual:
        names.append(["vthread"] * dims)
    names.append([f"threadIdx.{d}" for d in "zyx"[3 - dims :]])
    return ["fuse"] * (n - step * dims) + [name for part in names for name in part]


class OtherOptionSpace(TransformSpace):
    """Values to choose from."""

    def __init__(self, axes: Sequence[object], policy: str, **options: Unpack[PolicyOptions]):
        super().__init__()
        self.entities = [OtherOptionEntity(value) for value in options["candidate"]]

    @staticmethod
    def get_num_output(axes: Sequence[object], policy: str, **options: Unpack[PolicyOptions]) -> int:
        """A value gives no axis."""
        return 0

    def __repr__(self) -> str:
        return f"OtherOption({self.entities}) len={len(self)}"


Entity: TypeAlias = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity
CODES = {SplitEntity: "sp", ReorderEntity: "re", AnnotateEntity: "an", OtherOptionEntity: "ot"}


def entity_value(entity: Entity) -> Json:
    """What an entity is, as a JSON value."""
    match entity:
        case SplitEntity():
            return entity.size
        case ReorderEntity():
            return entity.perm
        case AnnotateEntity():
            return entity.anns
    return entity.val


def entity_from(code: str, value: Json) -> Entity:
    """An entity of its code and JSON value. Raises TVMError for an unknown code."""
    kinds: dict[str, Callable[[Json], Entity]] = {
        "sp": SplitEntity,
        "re": ReorderEntity,
        "an": AnnotateEntity,
        "ot": OtherOptionEntity,
    }
    if code not in kinds:
        raise TVMError(f"Invalid config knob type: {code}")
    made: Entity = kinds[code](value)
    return made


__all__ = [
    "CODES", "AnnotateEntity", "AnnotateSpace", "Axis", "OtherOptionEntity", "OtherOptionSpace", "ReorderEntity",
    "ReorderSpace", "SplitEntity", "SplitSpace", "TransformSpace", "entity_from", "entity_value",
]  # fmt: skip
