"""What builders and runners pass to each other, and the options of a measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from autosched.errors import InvalidValueError
from autosched.runtime.kernel import Kernel
from autosched.task import ConfigLike, Measurement, Status, Task, Trial

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.templates.pack import Packing

THREAD_KNOBS = ("threads", "num_threads")  # knobs that say how many threads a candidate runs on


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How candidates are built, checked and timed.

    threads             threads of the runner; a configuration with a knob `threads` uses at most so many
    cache               "warm": the same arrays again and again; "cold": packed arguments (weights) rotate over copies
                        that together do not fit the last cache
    weight_bytes        of all weights of the model: where they fit the last cache, the copies rotate over so many bytes
                        and no more; None: unknown
    build_timeout_s     for one candidate, from schedule to object code
    run_timeout_s       for one candidate, with packing, checking and timing
    memory_limit_bytes  that one worker may take beyond what it starts with; None: half of the machine's memory
    builders            processes that compile; None: one for each core that we may use
    repeat_s            a repeat makes so many calls that it takes at least this long. On two threads of a Zen 5 the
                        median that a trial ends with is as exact as with 1.5 ms (0.6 %), in half the time
    round_s             the same for a kernel's turn where several are compared
    min_repeats         fewest repeats of a candidate that is not cut short
    interval            repeats end when the median is known within this share of it, with 95 % confidence
    budget_s            … or when they have taken this long
    cut_ratio           a candidate is cut short when even its fastest repeat takes so many times the best so far
    accuracy            error allowed as a share of the largest value, where rounding alone would be allowed less:
                        Winograd F(4x4, 3x3) costs about 1e-5
    seed                of the inputs
    companions          so many processes run the task's kernel in a loop while candidates are timed: its throughput is
                        measured, beside other instances; None: its latency, alone
    Raises  InvalidValueError for an impossible value.
    """

    threads: int = 1
    cache: Literal["warm", "cold"] = "warm"
    weight_bytes: int | None = None
    build_timeout_s: float = 20.0
    run_timeout_s: float = 20.0
    memory_limit_bytes: int | None = None
    builders: int | None = None
    repeat_s: float = 0.75e-3
    round_s: float = 1.5e-3
    min_repeats: int = 8
    interval: float = 0.02
    budget_s: float = 0.06
    cut_ratio: float = 1.2
    accuracy: float = 4e-5
    seed: int = 0
    companions: int | None = None

    @property
    def run_as(self) -> str:
        """What is measured, "latency" or "throughput"."""
        return "latency" if self.companions is None else "throughput"

    def facts(self, threads: int) -> JsonObject:
        """Give the fields of a measurement's `how` that these options decide, for a candidate on so many threads."""
        beside = {} if self.companions is None else {"as": self.run_as, "companions": self.companions}
        return {"threads": threads, "cache": self.cache, **beside}

    def __post_init__(self) -> None:
        positive = (
            "threads",
            "build_timeout_s",
            "run_timeout_s",
            "repeat_s",
            "round_s",
            "min_repeats",
            "budget_s",
            "cut_ratio",
        )
        for name in positive:
            if getattr(self, name) <= 0:
                raise InvalidValueError(f"{name} is {getattr(self, name)}", hint="give a number above 0")
        for name in ("memory_limit_bytes", "builders", "weight_bytes"):
            if (value := getattr(self, name)) is not None and value < (name != "weight_bytes"):
                raise InvalidValueError(f"{name} is {value}", hint="give a number above 0, or None")
        if self.companions is not None and self.companions < 0:
            raise InvalidValueError(f"companions is {self.companions}", hint="give a number from 0 on")
        if self.cache not in ("warm", "cold"):
            raise InvalidValueError(f"cache is {self.cache!r}", hint="'warm' or 'cold'")


@dataclass(frozen=True, slots=True)
class Compared:
    """A configuration measured in turn with a baseline.

    ratio      median over the rounds of its time by the baseline's in the same round; infinite for a failure
    low, high  the ratio's 95 % interval
    """

    config: Any
    measurement: Measurement
    ratio: float = math.inf
    low: float = math.inf
    high: float = math.inf

    @property
    def trial(self) -> Trial:
        """The configuration with its measurement."""
        return Trial(self.config, self.measurement)

    @property
    def noise(self) -> float:
        """Half of the interval, by the ratio; infinite for a failure."""
        return (self.high - self.low) / (2 * self.ratio) if self.measurement.is_ok else math.inf

    @property
    def is_faster(self) -> bool:
        """Whether it beats the baseline beyond doubt: the whole interval is below 1."""
        return self.measurement.is_ok and self.high < 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration of a task, to be measured."""

    task: Task
    config: ConfigLike


Packs: TypeAlias = "tuple[Packing | None, ...]"  # per argument of a kernel; None: it is taken as it is; (): all are


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate's machine code.

    packs    per argument an object whose `pack(array)` turns the natural array into the one that the kernel takes
             (inputs) or gives (outputs); None: as it is
    build_s  seconds of processor time that building took
    features by name what is known of it before it runs, for models to learn from: its loop nest, its instructions
    key      under which the kernel cache would have it; "" where its compiler does not say
    """

    candidate: Candidate
    kernel: Kernel = field(repr=False)
    packs: Packs = ()
    build_s: float = 0.0
    features: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A candidate that could not be built, and why."""

    candidate: Candidate
    measurement: Measurement


class CandidateError(Exception):
    """A candidate that failed, raised inside a worker: becomes a measurement with this status and text."""

    def __init__(self, status: Status, text: str):
        super().__init__(status, text)
        self.status, self.text = status, text


class Builder(Protocol):
    """Compiles candidates; gives each one's outcome as soon as it is there, in any order."""

    def build(self, candidates: Sequence[Candidate]) -> Iterator[Built | Failed]: ...


class Measurer(Protocol):
    """Builds, checks and times the configurations of a task: `LocalMeasurer`, a cluster, …; used in a `with`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def measure(self, task: Task, configs: Sequence[ConfigLike], best_s: float | None = None) -> Iterator[Trial]:
        """Each configuration's trial as it comes, in about the given order."""
        ...

    def compare(self, task: Task, configs: Sequence[ConfigLike]) -> Sequence[Compared]:
        """All in turn, the first one as the baseline."""
        ...


Ahead = Callable[
    [], tuple[Task, Sequence[ConfigLike]] | None
]  # the task and configurations that will probably come next


@runtime_checkable
class AheadMeasurer(Protocol):
    """A measurer whose builders need not wait: one that has nothing left to do begins with what will come next."""

    def measure(
        self, task: Task, configs: Sequence[ConfigLike], best_s: float | None = None, *, ahead: Ahead | None = None
    ) -> Iterator[Trial]:
        """As `Measurer.measure`; `ahead` is asked when no candidate waits for a builder, until it has an answer."""
        ...

    def rest(self) -> None:
        """Wait until nothing is built ahead any more; what was is forgotten."""
        ...

    def count_builders(self) -> int:
        """How many candidates are built at the same time."""
        ...


class Foresight(Protocol):
    """What is expected of candidates once they are built."""

    def is_hopeless(self, built: Built, best_s: float | None) -> bool:
        """Whether one is not worth being measured; `best_s` is its task's best time so far."""
        ...


@runtime_checkable
class ForeseeingMeasurer(Protocol):
    """A measurer that passes over what its foresight calls hopeless: of that there is no trial."""

    foresight: Foresight | None


class Runner(Protocol):
    """Checks and times what was built, one after another, in order.

    best_s  the task's best time so far, which decides what is clearly worse
    """

    def run(self, built: Sequence[Built], best_s: float | None = None) -> Iterator[Measurement]: ...
