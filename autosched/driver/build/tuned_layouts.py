"""What records know of the times of convolutions in each layout: the oracle of the choice of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TypeAlias

from autosched.driver.build.choose import Usable, make_task
from autosched.errors import RecordError
from autosched.records import Record, RecordReader
from autosched.records.choose import match_device
from autosched.records.found import outdated
from autosched.records.lock import Lock
from autosched.records.lookup import parts, sources
from autosched.relax.expr import Call
from autosched.relax.transform import LegalizeKernels, layout_example, stored_shapes
from autosched.target import Target
from autosched.task import Task, Workload
from autosched.tir import PrimFunc

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
Interface: TypeAlias = "tuple[tuple[int, ...], ...]"  # shapes of data, weight and result


@dataclass(frozen=True)
class Timed:
    """A convolution's time, in seconds, and the record that says so; None for a lock's."""

    workload: Workload
    seconds: float
    record: Record | None = None


class TunedLayouts:
    """Times of convolutions that somebody has tuned, by geometry and by the layouts of data and result.

    The time of one with something fused behind it stands for the bare one's; that with the least behind it is taken.
    What was compared with another default than the convolution has is not: a build would not use it.
    A lock brings the times that were used when it was written, so that a locked build chooses the same layouts.

    reader, threads  as given: what else records know of a model is looked up in them
    answers  what was said, by the key of the bare convolution's workload, in seconds
    """

    def __init__(self, reader: RecordReader | None, target: Target, threads: int):
        self.target, self.reader, self.threads = target, reader, threads
        self.answers: dict[str, float] = {}
        self.known: dict[Interface, list[Timed]] = {}
        locked = _locked(reader)
        for timed in _winners(reader, target, threads) if locked is None else starmap(Timed, locked):
            if len(timed.workload.shapes) > 2:
                interface = (*timed.workload.shapes[:2], timed.workload.shapes[-1])
                self.known.setdefault(interface, []).append(timed)

    def seconds(self, call: Call, has: int, result: int) -> float | None:
        """See `LayoutOracle`."""
        near = self.known.get(stored_shapes(call, has, result))
        if not near:
            return None
        bare = self._bare(call, has, result)
        valid, same = Usable(bare), [timed for timed in near if _anchor(timed.workload) == _anchor(bare.workload)]
        held = [x for x in same if x.record is None or not outdated(x.record, bare, valid)]
        if not held:
            return None
        best = min(held, key=lambda x: (x.workload.epilogue.count("+") + bool(x.workload.epilogue), x.seconds))
        self.answers[bare.key] = best.seconds
        return best.seconds

    def _bare(self, call: Call, has: int, result: int) -> Task:
        """The task of the convolution with nothing fused to it."""
        module = LegalizeKernels()(layout_example(call, has, result))
        found = (
            make_task(f, self.target, threads=self.threads)
            for _, f in module.functions_items()
            if isinstance(f, PrimFunc)
        )
        return next(task for task in found if task.workload.op in CONVOLUTIONS)


def _anchor(workload: Workload) -> tuple[object, ...]:
    return workload.op, workload.dtypes[0], tuple(workload.attrs.items())


def _locked(reader: RecordReader | None) -> Sequence[tuple[Workload, float]] | None:
    """What a lock says, where the build is a locked one."""
    return next((part.layout_times for part in parts(reader) if isinstance(part, Lock)), None)


def _winners(reader: RecordReader | None, target: Target, threads: int) -> Iterator[Timed]:
    """The winners of convolutions that hold on this machine, with their times."""
    here = target.fingerprint()
    for source in sources(reader):
        for op in CONVOLUTIONS:
            try:
                for record in source.winners_of_op(Task(Workload(op, (), ()), target), op):
                    is_here = match_device(record, here, source.by_family).trust is not None
                    if record.threads == threads and is_here:
                        yield Timed(record.workload, record.measurement.median_s, record)
            except RecordError:  # times are never needed; a damaged database has been reported before
                continue
