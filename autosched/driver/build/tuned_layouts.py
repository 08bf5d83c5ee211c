"""What records know of the times of convolutions in each layout: the oracle of the choice of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from autosched.errors import RecordError
from autosched.records import RecordReader
from autosched.records.choose import match_device
from autosched.records.lock import Lock
from autosched.records.lookup import parts, sources
from autosched.relax.expr import Call
from autosched.relax.transform import LegalizeKernels, layout_example, stored_shapes
from autosched.target import Target
from autosched.task import Task, Workload
from autosched.templates.workload import describe
from autosched.tir import PrimFunc

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
Interface: TypeAlias = "tuple[tuple[int, ...], ...]"  # shapes of data, weight and result


class TunedLayouts:
    """Times of convolutions that somebody has tuned, by geometry and by the layouts of data and result.

    The time of one with something fused behind it stands for the bare one's; that with the least behind it is taken.
    A lock brings the times that were used when it was written, so that a locked build chooses the same layouts.

    reader, threads  as given: what else records know of a model is looked up in them
    answers  what was said, by the key of the bare convolution's workload, in seconds
    """

    def __init__(self, reader: RecordReader | None, target: Target, threads: int):
        self.target, self.reader, self.threads = target, reader, threads
        self.answers: dict[str, float] = {}
        self.known: dict[Interface, list[tuple[Workload, float]]] = {}
        locked = _locked(reader)
        for workload, seconds in _winners(reader, target, threads) if locked is None else locked:
            if len(workload.shapes) > 2:
                interface = (*workload.shapes[:2], workload.shapes[-1])
                self.known.setdefault(interface, []).append((workload, seconds))

    def seconds(self, call: Call, has: int, result: int) -> float | None:
        """See `LayoutOracle`."""
        near = self.known.get(stored_shapes(call, has, result))
        if not near:
            return None
        bare = self._bare(call, has, result)
        same = [(w.epilogue.count("+") + bool(w.epilogue), s) for w, s in near if _anchor(w) == _anchor(bare)]
        if not same:
            return None
        self.answers[bare.key] = min(same)[1]
        return self.answers[bare.key]

    def _bare(self, call: Call, has: int, result: int) -> Workload:
        """The workload of the convolution with nothing fused to it."""
        module = LegalizeKernels()(layout_example(call, has, result))
        found = (describe(f, self.target) for _, f in module.functions_items() if isinstance(f, PrimFunc))
        return next(workload for workload in found if workload.op in CONVOLUTIONS)


def _anchor(workload: Workload) -> tuple[object, ...]:
    return workload.op, workload.dtypes[0], tuple(workload.attrs.items())


def _locked(reader: RecordReader | None) -> Sequence[tuple[Workload, float]] | None:
    """What a lock says, where the build is a locked one."""
    return next((part.layout_times for part in parts(reader) if isinstance(part, Lock)), None)


def _winners(reader: RecordReader | None, target: Target, threads: int) -> Iterator[tuple[Workload, float]]:
    """The winners of convolutions that hold on this machine, with their times."""
    here = target.fingerprint()
    for source in sources(reader):
        for op in CONVOLUTIONS:
            try:
                for record in source.winners_of_op(Task(Workload(op, (), ()), target), op):
                    is_here = match_device(record, here, source.by_family).trust is not None
                    if record.threads == threads and is_here:
                        yield record.workload, record.measurement.median_s
            except RecordError:  # times are never needed; a damaged database has been reported before
                continue
