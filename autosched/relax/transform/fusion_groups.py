"""Which kernel calls run as one: the grouping that FuseOps writes down.

A group has at most one anchor (convolution, matrix product, reduction), or two of which the back end makes one kernel.
Behind an anchor stand element-wise calls of the anchor's own shape, each reading the one before, so that a schedule
computes them on the anchor's tile while it is in registers. Calls without an anchor join where every element is still
computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.ir.module import IRModule
from autosched.relax.expr import Call, Function, Var, VarBinding
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.rewrite import used_vars, users
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.annotate_patterns import OpPattern, pattern_of
from autosched.tir.buffer import Buffer
from autosched.tir.expr import const, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import blocks, free_vars, statements, substitute
from autosched.tir.inlined_size import ValueSize, inlined_size, is_too_large
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import For, LoopKind

# Whether one anchor's function and another's, which reads its result as a given parameter, are worth one kernel.
Joins = Callable[[PrimFunc, PrimFunc, Buffer], bool]

USUAL_SIZE = 64  # what a symbolic size is taken to be where it is asked which of two tensors is larger
MAX_GROUP = 64  # calls in one kernel: code that nobody can read or compile is slower than memory


@dataclass(eq=False)
class Member:
    """A kernel call: its position, variable, pattern, and the members that read it (None: somebody else does)."""

    index: int
    var: Var
    call: Call
    pattern: OpPattern
    size: ValueSize[Var]  # of the result's elements; reads by parameter
    readers: list[Member | None] = field(default_factory=list)
    group: Group | None = None

    @property
    def shape(self) -> tuple[Hashable, ...] | None:
        """The result's shape, symbolic sizes by their form: equal for equal shapes. None for several results."""
        info = self.var.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            return None
        return tuple(d if isinstance(d, int) else form_key(Analyzer().simplify(d)) for d in info.dims)

    @property
    def n_elements(self) -> int:
        """The size of the result; see `_size`."""
        info = self.var.struct_info
        assert isinstance(info, TensorStructInfo), "it has a shape"
        return _size(info)

    def reads(self, other: Member) -> bool:
        return any(v is other.var for a in tir_inputs(self.call) for v in used_vars(a))


@dataclass(eq=False)
class Group:
    """Calls that become one kernel, in order; the last one's result is the kernel's."""

    members: list[Member]
    anchored: bool = False

    def add(self, members: Sequence[Member]) -> None:
        for m in members:
            m.group = self
        self.members = sorted({*self.members, *members}, key=lambda m: m.index)


def stands_alone(func: PrimFunc) -> bool:
    """Whether a function somebody wrote by hand is no part of a group: it is scheduled, or counts in int32."""
    loops = [x for x in statements(func.body) if isinstance(x, For)]
    scheduled = bool(func.attrs.get("tir.is_scheduled")) or any(x.kind is not LoopKind.SERIAL for x in loops)
    return scheduled or any(x.loop_var.dtype != "int64" for x in loops)


def find_members(module: IRModule, function: Function) -> list[Member]:
    """The kernel calls of a function with who reads them."""
    members: dict[Var, Member] = {}
    sizes: dict[PrimFunc, ValueSize[Buffer]] = {}
    for index, b in enumerate(function.bindings()):
        if isinstance(b, VarBinding) and is_call_tir(b.value) and isinstance(module[tir_target(b.value)], PrimFunc):  # type: ignore[arg-type]
            func = module[tir_target(b.value)]  # type: ignore[arg-type]
            given = func.attrs.get("op_pattern")
            pattern = pattern_of(func) if given is None else OpPattern(given)
            if stands_alone(func):
                pattern = OpPattern.OPAQUE
            members[b.var] = Member(index, b.var, b.value, pattern, _size_of(func, b.value, sizes))  # type: ignore[arg-type]
    readers = users(function)
    for var, m in members.items():
        m.readers = [members.get(r) if r is not None else None for r in dict.fromkeys(readers.get(var, [None]))]
    return list(members.values())


def _size_of(func: PrimFunc, call: Call, known: dict[PrimFunc, ValueSize[Buffer]]) -> ValueSize[Var]:
    """The size of what a call computes for one element, by the variables that it reads."""
    if func not in known:
        known[func] = inlined_size(blocks(func.body)[1:])
    reads: Counter[Var] = Counter()
    for argument, buffer in zip(tir_inputs(call), func.buffers, strict=False):
        for var in used_vars(argument):
            reads[var] += known[func].reads.get(buffer, 0)
    return ValueSize(known[func].own, reads, known[func].depth)


def fits_one_expression(members: Sequence[Member]) -> bool:
    """Whether the code stays small once all members, which are in order, are inlined into their readers."""
    sizes: dict[Var, int] = {}
    depths: dict[Var, int] = {}
    for m in members:
        if is_too_large(m.size, sizes, depths) and any(v in sizes for v in m.size.reads):
            return False
        inlined = m.pattern <= OpPattern.INJECTIVE
        sizes[m.var], depths[m.var] = (m.size.total(sizes), m.size.levels(depths)) if inlined else (1, 0)
    return True


def post_dominators(members: Sequence[Member]) -> Mapping[Member, Member | None]:
    """For each member the nearest one through which all uses of its result pass; None where there is none."""
    parent: dict[Member, Member | None] = {}
    depth: dict[Member | None, int] = {None: 0}
    for m in reversed(members):
        common: Member | None = m.readers[0] if m.readers else None
        for r in m.readers[1:]:
            common = _meet(common, r, parent, depth)
        parent[m] = common
        depth[m] = depth[common] + 1
    return parent


def _meet(
    a: Member | None, b: Member | None, parent: Mapping[Member, Member | None], depth: Mapping[Member | None, int]
) -> Member | None:
    while a is not b:
        if depth[a] < depth[b]:
            a, b = b, a
        assert a is not None, "the root is the shallowest"
        a = parent[a]
    return a


def between(start: Member, end: Member) -> list[Member]:
    """All members on the ways from `start` to its post-dominator `end`, which is the last of them."""
    found: set[Member] = {end}
    stack = [start]
    while stack:
        for r in stack.pop().readers:
            assert r is not None, "all ways lead to the post-dominator"
            if r not in found:
                found.add(r)
                stack.append(r)
    return sorted(found, key=lambda m: m.index)


def _is_chain(path: Sequence[Member]) -> bool:
    """Whether each member reads the one before it."""
    return all(b.reads(a) for a, b in zip(path, path[1:], strict=False))


def _reads_another(m: Member, group: Sequence[Member]) -> bool:
    """Whether a call reads a tensor of its result's shape that no member of the group has computed."""
    own = {member.var for member in group}
    read = (v for a in tir_inputs(m.call) for v in used_vars(a) if v not in own)
    infos = (v.struct_info for v in read)
    return any(isinstance(i, TensorStructInfo) and i.shape is not None and _size(i) == m.n_elements for i in infos)


def _grow_anchor(anchor: Member, parents: Mapping[Member, Member | None], with_sums: bool) -> None:
    """Take in element-wise consumers of the anchor's shape for as long as they form a chain.

    with_sums  also those that read another tensor of that shape, as the sum at the end of a residual block
    """
    group = Group([anchor], anchored=True)
    anchor.group = group
    last = anchor
    while (end := parents[last]) is not None and len(group.members) < MAX_GROUP:
        path = between(last, end)
        fits = all(
            m.group is None and m.pattern <= OpPattern.BROADCAST and m.shape == anchor.shape and m.shape is not None
            for m in path
        )
        if not with_sums and any(_reads_another(m, [*group.members, *path]) for m in path):
            return
        if not fits or not _is_chain([last, *path]) or not fits_one_expression([*group.members, *path]):
            return
        group.add(path)
        last = end


def _join_anchors(module: IRModule, members: Sequence[Member], joins: Joins) -> None:
    """Make one group of an anchor and the one whose group's result it alone reads."""
    ends = {m.group.members[-1].var: m.group for m in members if m.group is not None and m.group.anchored}
    for m in members:
        if m.pattern is not OpPattern.OUT_FUSABLE or m.group is None or m.group.members[0] is not m:
            continue
        second = module[tir_target(m.call)]
        assert isinstance(second, PrimFunc), "members are calls of such"
        for argument, buffer in zip(tir_inputs(m.call), second.buffers, strict=False):
            before = ends.get(argument) if isinstance(argument, Var) else None
            if before is not None and before.members[-1].readers == [m] and _are_alike(before, m.group):
                first = module[tir_target(before.members[0].call)]
                if isinstance(first, PrimFunc) and joins(first, second, buffer):
                    before.add(m.group.members)
                    break


def _are_alike(first: Group, second: Group) -> bool:
    """Whether two groups are short enough for one kernel, compute one type, and the first one's anchor is no sum."""
    both = [*first.members, *second.members]
    short = len(both) <= MAX_GROUP and fits_one_expression(both)
    infos = [m.var.struct_info for m in both]
    types = {i.dtype if isinstance(i, TensorStructInfo) else None for i in infos}
    return short and len(types) == 1 and first.members[0].pattern is OpPattern.OUT_FUSABLE


def _size(info: TensorStructInfo) -> int:
    """How many elements a tensor has, where every symbolic size is USUAL_SIZE."""
    size = 1
    for d in info.dims:
        if not isinstance(d, int):
            usual = substitute(d, {v: const(USUAL_SIZE, v.dtype) for v in free_vars(d)})
            d = const_int(Analyzer().simplify(usual)) or USUAL_SIZE
        size *= d
    return size


def _computes_once(m: Member) -> bool:
    """Whether a call reads no element of its inputs more often than about once: not so for tile or broadcast_to."""
    infos = [v.struct_info for a in tir_inputs(m.call) for v in used_vars(a)]
    read = sum(_size(i) for i in infos if isinstance(i, TensorStructInfo) and i.shape is not None)
    return m.shape is not None and m.n_elements <= read


def _join_plain(m: Member, parents: Mapping[Member, Member | None]) -> None:
    """Join a call without anchor with the one through which all its uses pass, and those between."""
    end = parents[m]
    if end is None or m.shape is None:
        return
    path = between(m, end)
    for p in path:
        if p.pattern > OpPattern.INJECTIVE or p.shape is None or (p.group is not None and p.group.anchored):
            return
        if p.n_elements > m.n_elements and not (p.pattern is OpPattern.INJECTIVE and _computes_once(p)):
            return
    joined = {m, *path}
    for p in list(joined):
        if p.group is not None:
            joined |= set(p.group.members)
    ordered = sorted(joined, key=lambda p: p.index)
    if len(joined) <= MAX_GROUP and fits_one_expression(ordered):
        Group([]).add(ordered)


def find_groups(
    module: IRModule, function: Function, with_sums: bool = True, joins: Joins | None = None
) -> list[Group]:
    """The groups of at least two calls, by the position of their last call; `with_sums` see `_grow_anchor`."""
    members = find_members(module, function)
    parents = post_dominators(members)
    for wanted in (OpPattern.OUT_FUSABLE, OpPattern.REDUCTION):
        for m in reversed(members):  # a sum of two anchors' results joins the later one: the other's is there by then
            if m.group is None and m.pattern is wanted and m.shape is not None:
                _grow_anchor(m, parents, with_sums)
    if joins is not None:
        _join_anchors(module, members, joins)
    for m in members:
        if m.pattern <= OpPattern.INJECTIVE and (m.group is None or not m.group.anchored):
            _join_plain(m, parents)
    groups = {id(m.group): m.group for m in members if m.group is not None and len(m.group.members) > 1}
    return sorted(groups.values(), key=lambda g: g.members[-1].index)
