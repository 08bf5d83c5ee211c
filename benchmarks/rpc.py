"""Remote devices over loopback: calls, arrays, timings and tuning beside the same on this side.

    python -m benchmarks.rpc [--trials 60] [--write]

The servers are processes of this machine, so building and measuring share its cores, as they do in a local tuning. The
table is printed, and written to benchmarks/results/ with --write.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched import rpc
from autosched.driver import TuneOptions, extract_tasks, tune
from autosched.env import child_environment
from autosched.frontend.onnx import from_onnx
from autosched.rpc.reach import Address
from autosched.target import Target
from autosched.tuner.measure.remote.place import RemoteDevices
from benchmarks.machine import Table, result_file, write
from benchmarks.models import get_model

CALL_MS, COPY_RATIO, TIME_RATIO, TUNE_RATIO = 0.5, 2.0, 1.02, 0.9  # the bars
ARRAY_BYTES = 100 << 20
BLOCK = 1 << 20
ROUNDS = 9


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=60, help="of each tuning")
    parser.add_argument("--write", action="store_true", help="write the table to benchmarks/results/")
    options = parser.parse_args(arguments)
    table = Table("Remote devices over loopback", ("what", "remote", "here", "ratio", "bar"))
    with server() as port, rpc.connect("127.0.0.1", port) as session:
        table.rows += [calls(session), copies(session), *timings(session)]
    table.rows += tunings(options.trials)
    print(table.markdown(), flush=True)
    if options.write:
        command = f"python -m benchmarks.rpc {' '.join(sys.argv[1:] if arguments is None else arguments)}"
        write(result_file("rpc"), command, [table])


@contextmanager
def server() -> Iterator[int]:
    """A server in a process of its own; gives its port."""
    command = [sys.executable, "-m", "autosched", "rpc", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        yield int(line.split("127.0.0.1:")[1].split(",")[0])
    finally:
        process.terminate()
        process.wait()


def calls(session: rpc.RPCSession) -> tuple[str, ...]:
    """An empty call there and back."""
    took = [seconds(lambda: session.ask("list")) for _ in range(2000)]
    median = 1e3 * statistics.median(took)
    return "empty call, ms", f"{median:.3f}", "–", "–", verdict(median, CALL_MS)


def copies(session: rpc.RPCSession) -> tuple[str, ...]:
    """100 MB there and back, beside the same through two pipes to a process and back."""
    data = np.random.default_rng(0).integers(0, 255, ARRAY_BYTES, "uint8")
    there = session.array_of(data)

    def remote() -> None:
        there.copyfrom(data)
        there.numpy()

    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_echo, args=(theirs,))
    process.start()
    found = np.empty_like(data)

    def piped() -> None:
        for at in range(0, len(data), BLOCK):
            ours.send_bytes(data[at : at + BLOCK])
        for at in range(0, len(data), BLOCK):
            ours.recv_bytes_into(found[at : at + BLOCK])

    first, second = in_turn(remote, piped)
    ours.close()
    process.join()
    ratio = statistics.median(a / b for a, b in zip(first, second, strict=True))
    return (
        "100 MB there and back, s; here: through pipes of a process", f"{statistics.median(first):.3f}",
        f"{statistics.median(second):.3f}", f"{ratio:.2f}", verdict(ratio, COPY_RATIO),
    )  # fmt: skip


def _echo(pipe: Any) -> None:
    """Take an array in blocks, keep it, and send it back, until the pipe ends."""
    kept = np.empty(ARRAY_BYTES, "uint8")
    try:
        while True:
            for at in range(0, ARRAY_BYTES, BLOCK):
                pipe.recv_bytes_into(kept[at : at + BLOCK])
            for at in range(0, ARRAY_BYTES, BLOCK):
                pipe.send_bytes(kept[at : at + BLOCK])
    except EOFError:
        return


def timings(session: rpc.RPCSession) -> Iterator[tuple[str, ...]]:
    """`time_evaluator` of a model and of a kernel, there and here in turn."""
    executable = autosched.build(from_onnx(get_model("squeezenet")), target="cpu", threads=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.asx"
        executable.save(path)
        session.upload(path)
    there = session.load_module(path.name).create_executor(session.cpu(), 1)
    here = executable.create_executor(threads=1)
    generator = np.random.default_rng(0)
    for value in executable.inputs:
        array = generator.standard_normal(value.shape).astype(value.dtype)
        here.set_input(value.name, array)
        there["set_input"](value.name, array)

    def median(executor: Any) -> float:
        return float(executor.time_evaluator("run", number=2, repeat=20)().median)

    pairs = [(median(there), median(here)) for _ in range(ROUNDS)]
    ratio = statistics.median(a / b for a, b in pairs)
    first, second = (1e3 * statistics.median(x) for x in zip(*pairs, strict=True))
    yield (
        "time_evaluator of SqueezeNet, ms",
        f"{first:.3f}",
        f"{second:.3f}",
        f"{ratio:.3f}",
        verdict(ratio, TIME_RATIO),
    )


def tunings(trials: int) -> Iterator[tuple[str, ...]]:
    """Trials a second of ResNet-18's convolutions: here, by one server, by two."""
    module = from_onnx(get_model("resnet18"))
    tasks = extract_tasks(module, Target("cpu"), threads=1)
    chosen = tuple(i for i, task in enumerate(tasks) if "conv2d" in task.name)
    options = TuneOptions(trials=trials, tasks=chosen, threads=1, verify="task", fresh=True, until=0.0)
    rates = {}
    for count in (0, 1, 2):
        with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
            ports = [stack.enter_context(server()) for _ in range(count)]
            more = {}
            if ports:
                more["measurer"] = RemoteDevices([Address("127.0.0.1", port) for port in ports]).measurer
            start = time.perf_counter()
            report = tune(module, "cpu", records=os.path.join(folder, "t.db"), options=options, **more)
            rates[count] = report.n_trials / (time.perf_counter() - start)
    for count in (1, 2):
        ratio = rates[count] / rates[0]
        name = f"tuning ResNet-18's convolutions by {count} server{'s' * (count > 1)}, trials/s, finals included"
        bar = f"{TUNE_RATIO:g}{'' if ratio >= TUNE_RATIO else ' missed'}" if count == 1 else "–"
        yield name, f"{rates[count]:.2f}", f"{rates[0]:.2f}", f"{ratio:.2f}", bar


def in_turn(*runs: Callable[[], object]) -> list[list[float]]:
    """Seconds of each, in random order in every round."""
    found: list[list[float]] = [[] for _ in runs]
    rng = random.Random(0)
    for _ in range(ROUNDS):
        for i in rng.sample(range(len(runs)), len(runs)):
            found[i].append(seconds(runs[i]))
    return found


def seconds(run: Callable[[], object]) -> float:
    """What one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def verdict(value: float, bar: float) -> str:
    """The bar, and whether it was missed."""
    return f"{bar:g}{'' if value <= bar else ' missed'}"


if __name__ == "__main__":
    main()
