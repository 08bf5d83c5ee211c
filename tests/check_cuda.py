"""`make check-cuda`: every template for GPUs on every architecture, as far as that can be shown without a GPU.

For each case the default and random configurations of each architecture's own space become machine code for it, without
stack frame and spills; so does the one schedule of functions over open sizes. The table of what came out is written to
`benchmarks/results/cuda-static.md`. Then networks at reduced sizes run on the emulator, then their kernels one by one,
there and thread by thread through the CPU. The whole takes an hour or two of one core: with `--rows FOLDER` a run goes
on where others have stopped, and several share the cases.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar, cast

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.errors import AutoschedError
from autosched.ir.structural import structural_equal
from autosched.relax.op.registry import get_op
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import apply_config, default_config, schedule_sizes, templates_for
from autosched.templates.tf32 import with_tf32
from autosched.tir import PrimFunc
from autosched.topi.attention import attention
from autosched.topi.conv_nd import Spatial
from autosched.topi.sort import argsort, cumsum, take_along
from benchmarks.machine import commit
from tests.cuda_open import OPEN_CASES

T = TypeVar("T")

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "cuda-static.md"


def _tensor(*shape: int, dtype: str = "float32", name: str = "A") -> Tensor:
    return te.placeholder(shape, dtype=dtype, name=name)


def _dense(m: int, k: int, n: int, dtype: str = "float32") -> PrimFunc:
    a, b = _tensor(m, k, dtype=dtype), _tensor(k, n, dtype=dtype, name="B")
    return create_prim_func([a, b, topi.relu(topi.matmul(a, b))])


def _int_dense(m: int, k: int, n: int) -> PrimFunc:
    """Rows of int8 with rows of int8, as quantised layers have them."""
    a, b = _tensor(m, k, dtype="int8"), _tensor(n, k, dtype="int8", name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis].astype("int32") * b[j, axis].astype("int32"), axis=axis))
    return create_prim_func([a, b, c])


def _int_conv(channels: int, size: int, out: int) -> PrimFunc:
    data = _tensor(1, channels, size, size, dtype="int8", name="data")
    weight = _tensor(out, channels, 3, 3, dtype="int8", name="weight")
    return create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 1, 1, "NCHW", out_dtype="int32")])


def _conv(
    channels: int, size: int, out: int, kernel: int, stride: int, groups: int = 1, dtype: str = "float32",
    batch: int = 1,
) -> PrimFunc:  # fmt: skip
    data = _tensor(batch, channels, size, size, dtype=dtype, name="data")
    weight = _tensor(out, channels // groups, kernel, kernel, dtype=dtype, name="weight")
    pad = kernel // 2
    if groups == 1:
        made = topi.nn.conv2d(data, weight, stride, pad, 1, "NCHW")
    else:
        made = topi.nn.group_conv2d_nchw(data, weight, stride, pad, 1, groups)
    return create_prim_func([data, weight, topi.relu(made)])


def _transposed_conv(channels: int, size: int, out: int, dtype: str = "float32") -> PrimFunc:
    """Windows of 4 by 4 that double the size."""
    data = _tensor(1, channels, size, size, dtype=dtype, name="data")
    weight = _tensor(channels, out, 4, 4, dtype=dtype, name="weight")
    spatial = Spatial((2, 2), (1, 1, 1, 1), (1, 1))
    return create_prim_func([data, weight, topi.relu(topi.conv_transpose_nd(data, weight, spatial, (0, 0), 1))])


def _conv_nd(size: Sequence[int], channels: int, out: int, stride: int, dtype: str = "float32") -> PrimFunc:
    """Windows of three in each dimension, padded by one."""
    n = len(size)
    data = _tensor(1, channels, *size, dtype=dtype, name="data")
    weight = _tensor(out, channels, *(3,) * n, dtype=dtype, name="weight")
    spatial = Spatial((stride,) * n, (1,) * 2 * n, (1,) * n)
    return create_prim_func([data, weight, topi.relu(topi.conv_nd(data, weight, spatial, 1))])


def _pooled(x: Tensor) -> Tensor:
    return topi.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False)


def _attention(
    m: int, t: int, d: int, dtype: str = "float32", causal: str | None = None, softcap: float | None = None
) -> PrimFunc:
    q, k, v = (_tensor(1, n, 12, d, dtype=dtype, name=name) for n, name in ((m, "q"), (t, "k"), (t, "v")))
    return create_prim_func([q, k, v, attention(q, k, v, None, d**-0.5, causal, softcap=softcap)])


def _of(shape: Sequence[int], compute: Callable[[Tensor], Tensor], dtype: str = "float32") -> PrimFunc:
    x = _tensor(*shape, dtype=dtype)
    return create_prim_func([x, compute(x)])


def _sort(shape: tuple[int, ...], axis: int, count: int | None = None, dtype: str = "float32") -> PrimFunc:
    x = _tensor(*shape, dtype=dtype)
    order = argsort(x, axis, True, "int32", count)
    return create_prim_func([x, order, take_along(x, order, axis)])


def _scatter(data: tuple[int, ...], n: int, dtype: str = "float32") -> PrimFunc:
    """Sums of n updates along the first axis."""
    shape = (n, *data[1:])
    x, at = _tensor(*data, dtype=dtype, name="d"), _tensor(*shape, dtype="int64", name="i")
    updates = _tensor(*shape, dtype=dtype, name="u")
    out = get_op("scatter_elements").compute(x, at, updates, 0, "add", "clip")
    return create_prim_func([x, at, updates, out])


def _concat(first: tuple[int, ...], second: tuple[int, ...], axis: int, dtype: str = "float32") -> PrimFunc:
    a, b = _tensor(*first, dtype=dtype), _tensor(*second, dtype=dtype, name="B")
    return create_prim_func([a, b, topi.concatenate([a, b], axis)])


def _take(rows: int, width: int, n: int, dtype: str = "float16") -> PrimFunc:
    x, at = _tensor(rows, width, dtype=dtype), _tensor(n, dtype="int64", name="B")
    return create_prim_func([x, at, topi.take(x, at, 0, mode="clip")])


def _nbits(m: int, k: int, n: int, dtype: str = "float16") -> PrimFunc:
    """Rows by weights of 4 bits in groups of 32, with zero points."""
    x, words = _tensor(m, k, dtype=dtype), _tensor(n, k // 8, dtype="uint32", name="w")
    scales, zeros = _tensor(n, k // 32, dtype=dtype, name="s"), _tensor(n, k // 32, dtype="uint8", name="z")
    return create_prim_func(
        [x, words, scales, zeros, topi.cast(topi.matmul_nbits(x, words, scales, zeros, 4, 32), dtype)]
    )


CASES: dict[str, Callable[[], PrimFunc]] = {
    "matmul 1024": lambda: _dense(1024, 1024, 1024),
    "matmul 70x67x131": lambda: _dense(70, 67, 131),
    "matmul 1024 float16": lambda: _dense(1024, 1024, 1024, "float16"),
    "tensor cores 1024 float16": lambda: _dense(1024, 1024, 1024, "float16"),
    "warpgroups 4096 float16": lambda: _dense(4096, 4096, 4096, "float16"),
    "warpgroups 2304 float16, last wave in parts": lambda: _dense(2304, 2304, 2304, "float16"),
    "tensor cores 1536 float16": lambda: _dense(1536, 1536, 1536, "float16"),
    "warpgroups 1000x1032x2056 bfloat16": lambda: _dense(1000, 1032, 2056, "bfloat16"),
    "tensor cores 1000x512x777 tf32": lambda: with_tf32(_dense(1000, 512, 777)),
    "tensor cores conv 3x3 28x28 128-128 tf32": lambda: with_tf32(_conv(128, 28, 128, 3, 1)),
    "tensor cores 512x768x1000 int8": lambda: _int_dense(512, 768, 1000),
    "tensor cores conv 3x3 28x28 128-128 int8": lambda: _int_conv(128, 28, 128),
    "matmul 1x768x3072": lambda: _dense(1, 768, 3072),
    "tensor cores conv 3x3 28x28 128-128 float16": lambda: _conv(128, 28, 128, 3, 1, dtype="float16"),
    "tensor cores conv 3x3 56x56 64-64 float16 batch 8": lambda: _conv(64, 56, 64, 3, 1, dtype="float16", batch=8),
    "tensor cores conv 3x3 s2 56x56 64-128 bfloat16": lambda: _conv(64, 56, 128, 3, 2, dtype="bfloat16"),
    "tensor cores conv 5x5 g2 30x30 48-96 float16": lambda: _conv(48, 30, 96, 5, 1, 2, "float16"),
    "tensor cores conv 1x1 s2 28x28 64-256 bfloat16": lambda: _conv(64, 28, 256, 1, 2, dtype="bfloat16"),
    "tensor cores conv g4 3x3 14x14 128-128 float16": lambda: _conv(128, 14, 128, 3, 1, 4, "float16"),
    "tensor cores 16x4096x512 float16": lambda: _dense(16, 4096, 512, "float16"),
    "tensor cores 1x4096x4096 float16": lambda: _dense(1, 4096, 4096, "float16"),
    "matmul of 4 bits 1x4096x4096 float16": lambda: _nbits(1, 4096, 4096),
    "matmul of 4 bits 3x1056x1001": lambda: _nbits(3, 1056, 1001, "float32"),
    "tensor cores of 4 bits 6x4096x4096 float16": lambda: _nbits(6, 4096, 4096),
    "tensor cores of 4 bits 100x1056x1001 bfloat16": lambda: _nbits(100, 1056, 1001, "bfloat16"),
    "matmul 8x4096x512": lambda: _dense(8, 4096, 512),
    "conv 3x3 7x7 512-512": lambda: _conv(512, 7, 512, 3, 1),
    "attention 1024 d64": lambda: _attention(1024, 1024, 64),
    "attention 512 d128 causal": lambda: _attention(512, 512, 128, causal="TopLeft"),
    "attention 1x4096 d128 in parts": lambda: _attention(1, 4096, 128),
    "attention 77x300 d40": lambda: _attention(77, 300, 40),
    "tensor cores attention 1024 d64": lambda: _attention(1024, 1024, 64, "float16", "TopLeft"),
    "tensor cores attention 512 d128": lambda: _attention(512, 512, 128, "bfloat16"),
    "tensor cores attention 77x300 d40": lambda: _attention(77, 300, 40, "float16"),
    "tensor cores attention 512 d64 with a soft cap": lambda: _attention(512, 512, 64, "float16", softcap=30.0),
    "attention 1x2048 d64 float16": lambda: _attention(1, 2048, 64, "float16"),
    "attention 4x1000 d100 float16 causal": lambda: _attention(4, 1000, 100, "float16", "BottomRight"),
    "conv 3x3 56x56 64-64": lambda: _conv(64, 56, 64, 3, 1),
    "conv 3x3 s2 56x56 64-128": lambda: _conv(64, 56, 128, 3, 2),
    "conv 1x1 14x14 256-1024": lambda: _conv(256, 14, 1024, 1, 1),
    "conv 7x7 s2 224x224 3-64": lambda: _conv(3, 224, 64, 7, 2),
    "conv dw 3x3 56x56 144": lambda: _conv(144, 56, 144, 3, 1, 144),
    "conv dw 5x5 s2 57x57 40 float16": lambda: _conv(40, 57, 40, 5, 2, 40, "float16"),
    "max pool 3x3 s2 112x112 64": lambda: _of((1, 64, 112, 112), _pooled),
    "winograd conv 3x3 28x28 128-128 batch 32": lambda: _conv(128, 28, 128, 3, 1, batch=32),
    "conv g4 3x3 28x28 32-64": lambda: _conv(32, 28, 64, 3, 1, 4),
    "conv transposed 4x4 s2 14x14 256-128": lambda: _transposed_conv(256, 14, 128),
    "tensor cores conv transposed 4x4 s2 14x14 256-128 float16": lambda: _transposed_conv(256, 14, 128, "float16"),
    "conv 1d 3 s2 3000 80-384": lambda: _conv_nd((3000,), 80, 384, 2),
    "tensor cores conv 1d 3 s2 3000 80-384 float16": lambda: _conv_nd((3000,), 80, 384, 2, "float16"),
    "conv 3d 3x3x3 8x28x28 32-64": lambda: _conv_nd((8, 28, 28), 32, 64, 1),
    "tensor cores conv 3d 3x3x3 8x28x28 32-64 bfloat16": lambda: _conv_nd((8, 28, 28), 32, 64, 1, "bfloat16"),
    "softmax 128x1000": lambda: _of((128, 1000), lambda x: topi.softmax(x, -1)),
    "softmax 128x1024": lambda: _of((128, 1024), lambda x: topi.softmax(x, -1)),
    "sum 4096x1024 float16": lambda: _of((4096, 1024), lambda x: topi.sum(x, -1), "float16"),
    "sum 64x70": lambda: _of((64, 70), lambda x: topi.sum(x, -1)),
    "global pool 1x512x7x7": lambda: _of((1, 512, 7, 7), lambda x: topi.mean(x, (2, 3))),
    "column sums 1000x37": lambda: _of((1000, 37), lambda x: topi.sum(x, 0)),
    "gelu 128x3072": lambda: _of((128, 3072), topi.gelu),
    "exp float16 101": lambda: _of((101,), topi.exp, "float16"),
    "sort 64x1000": lambda: _sort((64, 1000), 1),
    "sort 3x100000 float64": lambda: _sort((3, 100_000), 1, dtype="float64"),
    "sort 1000x17 along columns int8": lambda: _sort((1000, 17), 0, dtype="int8"),
    "topk 50 of 8x50257 float16": lambda: _sort((8, 50_257), 1, 50, "float16"),
    "cumsum 128x1000": lambda: _of((128, 1000), lambda x: cumsum(x, 1, False)),
    "cumsum 2x1000003 bfloat16": lambda: _of((2, 1_000_003), lambda x: cumsum(x, 1, True), "bfloat16"),
    "cumsum 3000x70 along columns int64": lambda: _of((3000, 70), lambda x: cumsum(x, 0, False), "int64"),
    "scatter 10000x64 by 5000": lambda: _scatter((10_000, 64), 5000),
    "scatter 300 by 1000 float16": lambda: _scatter((300,), 1000, "float16"),
    "concat 8x640x7x7": lambda: _concat((8, 640, 7, 7), (8, 320, 7, 7), 1),
    "concat 64x1280 int8": lambda: _concat((64, 1280), (64, 640), 1, "int8"),
    "take 128 of 30000x768": lambda: _take(30_000, 768, 128),
    "transpose 1x64x56x56": lambda: _of((1, 64, 56, 56), lambda x: topi.transpose(x, (0, 2, 3, 1))),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What became of the configurations of one case on all architectures.

    made      how many became machine code, by template and architecture
    failures  those that were refused, each with its architecture and the reason
    """

    case: str
    made: Mapping[tuple[str, str], int]
    failures: tuple[str, ...]
    registers: tuple[int, int]
    seconds: float

    def line(self) -> str:
        """The case's line of the table."""
        templates = ", ".join(sorted({template for template, _ in self.made}))
        low, high = self.registers
        counts = f"{sum(self.made.values()) + len(self.failures)} | {len(self.failures)}"
        return f"| {self.case} | {templates} | {counts} | {low} to {high} | {self.seconds:.1f} |"


def architectures(name: str, archs: Sequence[str]) -> tuple[str, ...]:
    """Those of `archs` that a case is about."""
    if name.startswith("tensor cores"):
        return tuple(arch for arch in archs if arch != "sm_75")  # whose instructions are smaller ones
    if name.startswith("warpgroups"):
        return tuple(arch for arch in archs if arch == "sm_90a")  # the only one that has their instructions
    return tuple(archs)


def configurations(func: PrimFunc, target: Target, n_random: int) -> list[Config]:
    """The default, and `n_random` random configurations of the templates that match, as many of each."""
    matches = templates_for(func, target)
    share = -(-n_random // len(matches))
    spaces = [template.space(anchor, target) for template, anchor in matches]
    random = [config for space in spaces for config in space.sample(0, share)]
    return [default_config(func, target), *random]


def run_case(name: str, n_random: int, archs: Sequence[str]) -> Row:
    """Compile for each architecture the default and random configurations of its own space.

    What several architectures have in common is written once, for the first of them, and assembled for each.
    """
    start, func = time.perf_counter(), CASES[name]()
    wanted: dict[Config, list[str]] = {}
    for arch in architectures(name, archs):
        for config in configurations(func, Target(f"cuda -arch={arch}"), n_random):
            users = wanted.setdefault(config, [])
            users += [arch] if arch not in users else []
    failures, registers, made = [], [], Counter[tuple[str, str]]()
    for config, users in wanted.items():
        made_first: CudaKernel | None = None
        for arch in users:
            target = Target(f"cuda -arch={arch}")
            try:
                if made_first is None:
                    kernel = compile_func(apply_config(func, config, target).func, target, name="kernel").kernel
                    assert isinstance(kernel, CudaKernel), "it was compiled for a GPU"
                    made_first = kernel
                    registers += [launch.registers for launch in kernel.resources.launches]
                else:
                    add_images(made_first, [arch])
            except AutoschedError as error:
                failures.append(f"{arch}, {config}: {error.line}")
            else:
                made[config.template, arch] += 1
    spread = (min(registers, default=0), max(registers, default=0))
    return Row(name, made, tuple(failures), spread, time.perf_counter() - start)


def run_open_case(name: str, archs: Sequence[str]) -> Row:
    """Compile the schedule that each architecture has for all sizes; one that several have is written once."""
    start, func = time.perf_counter(), OPEN_CASES[name]()
    failures, registers, made = [], [], Counter[tuple[str, str]]()
    known: list[tuple[PrimFunc, CudaKernel]] = []
    for arch in archs:
        target = Target(f"cuda -arch={arch}")
        try:
            scheduled = schedule_sizes(func, target).func
            again = next((k for f, k in known if structural_equal(f, scheduled)), None)
            if again is not None:
                add_images(again, [arch])
            else:
                kernel = compile_func(scheduled, target, name="kernel").kernel
                assert isinstance(kernel, CudaKernel), "it was compiled for a GPU"
                known.append((scheduled, kernel))
                registers += [launch.registers for launch in kernel.resources.launches]
        except AutoschedError as error:
            failures.append(f"{arch}: {error.line}")
        else:
            made["open sizes", arch] += 1
    spread = (min(registers, default=0), max(registers, default=0))
    return Row(name, made, tuple(failures), spread, time.perf_counter() - start)


HEAD = "| case | templates | configurations × architectures | refused | registers | s |\n|---|---|---|---|---|---|"


def table(rows: Sequence[Row], archs: Sequence[str]) -> str:
    """The results as Markdown: a line for each case, then one for each template."""
    made: Counter[tuple[str, str]] = sum((Counter(row.made) for row in rows), Counter())
    title = f"### Machine code for {', '.join(archs)}: the default and random configurations of each case"
    lines = [title, "", HEAD, *(row.line() for row in rows), ""]
    lines += ["### Configurations of each template that became machine code", ""]
    lines += [f"| template | {' | '.join(archs)} |", "|---|" + "---|" * len(archs)]
    for template in sorted({template for template, _ in made}):
        lines.append(f"| {template} | {' | '.join(str(made[template, arch] or '') for arch in archs)} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class NetworkRow:
    """What became of a network's kernels: how many there are, and what is wrong with those that are not right."""

    network: str
    dtype: str
    kernels: int
    wrong: tuple[str, ...]

    def line(self) -> str:
        """The network's line of its table."""
        return f"| {self.network} | {self.dtype} | {self.kernels} | {len(self.wrong)} |"


def every_network() -> Iterator[tuple[str, str]]:
    """Names of networks with their types."""
    from tests.cuda_networks import DTYPES, NETWORKS

    return product(NETWORKS, DTYPES)


def run_network(name: str, dtype: str) -> NetworkRow:
    """Run a network on the emulator as it is built, then each default kernel in two orders and through the CPU."""
    from tests.cuda_networks import problems_of, problems_of_whole, tasks_of

    tasks = tasks_of(name, dtype)
    found = [next(problems_of_whole(name, dtype), ""), *(next(problems_of(task), "") for task in tasks)]
    return NetworkRow(name, dtype, len(tasks), tuple(filter(None, found)))


def network_table(rows: Sequence[NetworkRow]) -> str:
    """The networks' results as Markdown."""
    lines = ["### Default kernels of networks at reduced sizes, on the emulator in two orders and through the CPU", ""]
    return "\n".join([*lines, "| network | dtype | kernels | wrong |", "|---|---|---|---|", *(r.line() for r in rows)])


class Kept:
    """Rows in a folder, a file each, which other runs of the same commit have written or are writing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.commit = folder, commit()

    def take(self, key: str, make: Callable[[], T]) -> T:
        """The row of that key: the kept one, else a new one, which is kept."""
        if self.folder is None:
            return make()
        file = self.folder / f"{key}, {self.commit}"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{os.getpid()}")
            part.write_bytes(pickle.dumps(make()))
            part.rename(file)
        return cast(T, pickle.loads(file.read_bytes()))


def main() -> int:
    """Run all cases; 1 where a configuration did not become machine code, or a network's kernel is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.check_cuda", description=__doc__)
    parser.add_argument("--only", default="", help="only cases whose names hold one of these texts")
    parser.add_argument("--random", type=int, default=20, help="random configurations of each case")
    parser.add_argument("--archs", default=",".join(ARCHS))
    parser.add_argument("--save", action="store_true", help=f"write the table to {RESULTS.name}")
    parser.add_argument("--rows", type=Path, help="a folder of rows: those of this commit are taken, new ones added")
    args = parser.parse_args()
    archs, kept = args.archs.split(","), Kept(args.rows)
    rows, networks = list[Row](), list[NetworkRow]()
    if args.rows and (not kept.commit or "dirty" in kept.commit):
        parser.error("--rows keeps rows of a commit: commit the changes first")

    def wanted(name: str) -> bool:
        return not args.only or any(text in name for text in args.only.split(","))

    for name in filter(wanted, CASES):
        row = kept.take(f"{name}, {args.random} random, {args.archs}", partial(run_case, name, args.random, archs))
        rows.append(row)
        print("\n    ".join([row.line(), *row.failures]), flush=True)
    for name in filter(wanted, OPEN_CASES):
        rows.append(kept.take(f"{name}, {args.archs}", partial(run_open_case, name, archs)))
        print("\n    ".join([rows[-1].line(), *rows[-1].failures]), flush=True)
    for name, dtype in every_network() if not args.only or "network" in args.only else ():
        if wanted(key := f"network {name} {dtype}"):
            networks.append(kept.take(key, partial(run_network, name, dtype)))
            print("\n    ".join([networks[-1].line(), *networks[-1].wrong]), flush=True)
    text = table(rows, archs) + ("\n" + network_table(networks) + "\n" if networks else "")
    print(text)
    if args.save:
        RESULTS.write_text(f"`python -m tests.check_cuda --random {args.random}`, commit {kept.commit}.\n\n{text}")
    return 1 if any(n.wrong for n in networks) or any(r.failures for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
