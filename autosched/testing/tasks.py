"""Small tasks, trials and records for tests."""

from __future__ import annotations

from autosched.records import Record, make_record
from autosched.space import Config, ConfigSpace, Knob, choice
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial, Workload

AVX2 = "llvm -mcpu=x86-64-v3 -num-cores=4"


def matmul_task(m: int = 128, n: int = 256, k: int = 784, *, target: str = AVX2, threads: int = 2) -> Task:
    """A matrix product to look records up for; it has no PrimFunc."""
    workload = Workload("matmul", ("float32",) * 3, ((m, k), (k, n), (m, n)))
    return Task(workload, Target(target), threads=threads)


def trial(rows: int, time_s: float | None = None, status: Status = Status.OK) -> Trial:
    """A trial of `matmul` with one knob; its time is 1 ms / rows where none is given."""
    config = Config("matmul", {"rows": rows})
    if status is not Status.OK:
        return Trial(config, Measurement(status, error="made for a test"))
    return Trial(config, Measurement(status, (time_s if time_s is not None else 1e-3 / rows,), "a test"))


def record(rows: int = 1, *, task: Task | None = None, winner: bool = False, default: bool = False) -> Record:
    """A record of `trial(rows)`."""
    return make_record(task or matmul_task(), trial(rows), session="test", is_winner=winner, is_default=default)


def bowl_space(sizes: tuple[int, ...] = (8, 8, 6), constraint: str = "a * b <= 32") -> ConfigSpace:
    """A small space of ints a, b, c, … from 1 on, with one constraint."""
    names = "abcdefgh"[: len(sizes)]
    knobs: list[Knob] = [choice(name, range(1, size + 1)) for name, size in zip(names, sizes, strict=True)]
    return ConfigSpace("bowl", knobs, [constraint] if constraint else [])


def bowl_time_s(config: Config) -> float:
    """A smooth time over `bowl_space`: the best is 1 ms, where every knob is 4."""
    values = [float(v) for v in config.knobs.values() if isinstance(v, int)]
    return 1e-3 * (1 + sum((v - 4) ** 2 for v in values) / 10)
