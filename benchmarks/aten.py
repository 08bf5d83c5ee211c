"""`python -m benchmarks.aten`: PyTorch's core operators on the samples of PyTorch's own tests.

Each sample is exported, taken apart to core operators, imported, built and run; results are compared with PyTorch's.
An operator with a dtype passes when all its samples do. Samples with tensors of no elements are left out. Where a
result of float16 or bfloat16 is another than PyTorch's, PyTorch's own in float32, rounded, decides: some of its
kernels, such as `grid_sampler_2d`, round every step to the narrow type and are further from the truth than the
tolerance.

    python -m benchmarks.aten --only sort topk --dtypes float32 -v
    python -m benchmarks.aten --samples 2 --results aten.jsonl --resume --markdown aten.md    # goes on where it stopped
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.errors import AutoschedError
from autosched.frontend.torch import from_exported_program
from autosched.frontend.torch.graph import array_of
from autosched.records import FallbackContext
from benchmarks.machine import describe

DTYPES = ("float32", "float16", "bfloat16", "int64", "bool")
TOLERANCES = {"float32": (1e-4, 1e-5), "float16": (4e-3, 2e-3), "bfloat16": (3e-2, 2e-2), "float64": (1e-7, 1e-7)}
PASS, WRONG, REFUSED, CRASH = "pass", "wrong", "refused", "error"
HALVES = ("float16", "bfloat16")
TIES = ("sort", "topk", "argmax", "argmin", "max", "min", "argsort")  # positions of equals may be others
RANDOM = ("rand", "randn", "randperm", "native_dropout")
MEMORY = ("empty", "empty_strided")  # values that mean nothing

# core operator -> where its samples are, where they are not under its own name
SAMPLES: dict[str, tuple[str, ...]] = {
    "_adaptive_avg_pool2d": ("nn.functional.adaptive_avg_pool2d",),
    "_adaptive_avg_pool3d": ("nn.functional.adaptive_avg_pool3d",),
    "_cdist_forward": ("cdist",),
    "_embedding_bag": ("nn.functional.embedding_bag",),
    "_log_softmax": ("log_softmax",),
    "_native_batch_norm_legit_no_training": ("nn.functional.batch_norm",),
    "_native_batch_norm_legit": ("_native_batch_norm_legit", "nn.functional.instance_norm"),
    "_pdist_forward": ("nn.functional.pdist",),
    "_softmax": ("softmax",),
    "_to_copy": ("_to_copy", "to", "float", "long"),
    "_fft_r2c": ("fft.rfft",),
    "_fft_c2r": ("fft.hfft",),
    "alias": ("alias_copy", "squeeze"),
    "any": ("any",),
    "avg_pool2d": ("nn.functional.avg_pool2d",),
    "avg_pool3d": ("nn.functional.avg_pool3d",),
    "bitwise_not": ("bitwise_not",),
    "clamp": ("clamp",),
    "col2im": ("nn.functional.fold", "nn.functional.unfold"),
    "convolution": tuple(f"nn.functional.conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)),
    "copy": ("select_scatter", "slice_scatter"),
    "div": ("div", "true_divide"),
    "elu": ("nn.functional.elu",),
    "embedding": ("nn.functional.embedding",),
    "gelu": ("nn.functional.gelu",),
    "grid_sampler_2d": ("nn.functional.grid_sample", "grid_sampler_2d"),
    "hardtanh": ("nn.functional.hardtanh",),
    "index": ("__getitem__",),
    "leaky_relu": ("nn.functional.leaky_relu",),
    "max_pool2d_with_indices": ("nn.functional.max_pool2d",),
    "max_pool3d_with_indices": ("nn.functional.max_pool3d",),
    "native_dropout": ("nn.functional.dropout",),
    "native_group_norm": ("native_group_norm", "nn.functional.group_norm"),
    "pow": ("pow", "__rpow__"),
    "reflection_pad1d": ("nn.functional.pad",),
    "reflection_pad2d": ("nn.functional.pad",),
    "reflection_pad3d": ("nn.functional.pad",),
    "relu": ("nn.functional.relu",),
    "replication_pad2d": ("nn.functional.pad",),
    "replication_pad3d": ("nn.functional.pad",),
    "sum": ("sum",),
    "upsample_bilinear2d": ("nn.functional.interpolate", "nn.functional.upsample_bilinear"),
    "upsample_nearest2d": ("nn.functional.interpolate", "nn.functional.upsample_nearest"),
    "view": ("view", "reshape"),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of the samples of one operator with one dtype: the worst of them, and how many there were."""

    operator: str
    dtype: str
    status: str
    samples: int
    reason: str = ""


def core_operators() -> tuple[Any, ...]:
    """PyTorch's own list: the overloads with the tag `core` that take tensors."""
    import torch

    found = []
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags and overload != "out":
                found.append(getattr(packet, overload))
    return tuple(found)


def _infos(name: str) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = SAMPLES.get(name, (name, name.lstrip("_")))
    return [info for info in op_db if info.name in wanted or (name not in SAMPLES and info.aten_name in wanted)]


def _tensors(value: Any) -> list[Any]:
    import torch

    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def _program(info: Any, sample: Any) -> tuple[Any, list[Any], Any]:
    """(the sample as an exported program of core operators, its tensors, the module that was exported).

    What is no tensor is part of the program.
    """
    import torch

    call = (sample.input, tuple(sample.args), dict(sample.kwargs))
    leaves, spec = torch.utils._pytree.tree_flatten(call)
    places = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]

    class Call(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            full = list(leaves)
            for i, tensor in zip(places, tensors, strict=True):
                full[i] = tensor
            first, args, kwargs = torch.utils._pytree.tree_unflatten(full, spec)
            return info.op(first, *args, **kwargs)

    tensors = [leaves[i] for i in places]
    program = torch.export.export(Call(), tuple(tensors))
    return program.run_decompositions(), tensors, Call()


def _uses(program: Any) -> set[str]:
    return {str(n.target) for n in program.graph.nodes if n.op == "call_function"}


def samples_of(operator: Any, dtype: str, most: int) -> Iterator[tuple[Any, list[Any], Any]]:
    """Programs that hold the operator, with tensors and module, at most so many, spread over the samples there are."""
    import torch

    name = operator._schema.name.rpartition("::")[2]
    kind, found = getattr(torch, dtype), 0
    for info in _infos(name):
        if kind not in info.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        try:
            samples = [s for s in info.sample_inputs("cpu", kind, requires_grad=False) if not _is_empty(s)]
        except Exception:  # samples that PyTorch itself cannot make
            continue
        step = max(1, len(samples) // (2 * most))
        own = 0
        for sample in [*samples[::step], *samples[1::step]]:
            if found >= most or own >= max(2, most // 2) and len(_infos(name)) > 1:
                break
            try:
                program, tensors, module = _program(info, sample)
            except Exception:  # what cannot be exported is no matter of ours
                continue
            if str(operator) in _uses(program):
                found, own = found + 1, own + 1
                yield program, tensors, module


def _is_empty(sample: Any) -> bool:
    tensors = _tensors((sample.input, sample.args, sample.kwargs))
    return not tensors or any(not t.numel() or t.is_complex() or t.is_sparse for t in tensors)


def check(operator: Any, dtype: str, most: int) -> Outcome | None:
    """The outcome of an operator with a dtype; None where there are no samples."""
    name = str(operator).removeprefix("aten.")
    worst, count, reason = PASS, 0, ""
    order = (PASS, REFUSED, CRASH, WRONG)
    for program, tensors, module in samples_of(operator, dtype, most):
        expected = program.module()(*tensors)
        if any(not t.numel() or t.is_complex() for t in _tensors(expected)):
            continue
        count += 1
        status, why = _outcome(name, program, tensors, expected)
        if status == WRONG and dtype in HALVES and (exact := _in_float32(module, tensors, expected)) is not None:
            status, why = _outcome(name, program, tensors, exact)
        if order.index(status) > order.index(worst):
            worst, reason = status, why
    return Outcome(name, dtype, worst, count, reason) if count else None


def _in_float32(module: Any, tensors: Sequence[Any], expected: Any) -> Any:
    """What PyTorch computes in float32 of the same values, rounded to the types expected; None where it does not."""

    try:
        wide = module(*(t.float() if t.is_floating_point() else t for t in tensors))
    except RuntimeError:  # a type is written in the call
        return None
    return [w.to(e.dtype) for w, e in zip(_tensors(wide), _tensors(expected), strict=True)]


def _outcome(name: str, program: Any, tensors: Sequence[Any], expected: Any) -> tuple[str, str]:
    arrays = [np.array(array_of(t, "input")) for t in tensors]
    try:
        module = from_exported_program(program)
        result = autosched.build(module, target="cpu", threads=1, records=FallbackContext())(*arrays)
        results = list(result) if isinstance(result, tuple | list) else [result]
    except AutoschedError as error:
        return REFUSED, error.line
    except Exception as error:  # what a user would meet as a traceback
        return CRASH, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    wanted = [array_of(t, "output") for t in _tensors(expected)]
    if len(results) != len(wanted):
        return WRONG, f"{len(results)} results instead of {len(wanted)}"
    for position, (ours, theirs) in enumerate(zip(results, wanted, strict=True)):
        base = name.partition(".")[0]
        if base in RANDOM or base in MEMORY:
            continue
        problem = _difference(np.asarray(ours), theirs)
        if problem and base in TIES and _are_ties(arrays[0], np.asarray(ours), theirs):
            continue
        if problem:
            return WRONG, f"result {position}: {problem}"
    return PASS, ""


def _are_ties(x: Any, ours: Any, theirs: Any) -> bool:
    """Whether the positions name equal elements of a tensor, along one of its dimensions."""
    if ours.shape != theirs.shape or ours.dtype != np.int64 or theirs.dtype != np.int64:
        return False
    if not theirs.ndim:
        return bool(x.reshape(-1)[ours] == x.reshape(-1)[theirs])
    for d in range(x.ndim):
        pair = [p if p.ndim == x.ndim else np.expand_dims(p, d) for p in (ours, theirs)]
        others = [n for axis, n in enumerate(x.shape) if axis != d]
        if all(
            p.ndim == x.ndim and p.max() < x.shape[d] and [n for a, n in enumerate(p.shape) if a != d] == others
            for p in pair
        ):
            a, b = (np.take_along_axis(x, p, d) for p in pair)
            if np.array_equal(a, b):
                return True
    return False


def _difference(ours: Any, theirs: Any) -> str:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    name = str(theirs.dtype)
    if name not in TOLERANCES:
        different = int((ours != theirs).sum())
        return f"{different} of {ours.size} differ" if different else ""
    relative, absolute = TOLERANCES[name]
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    close = np.isclose(a, b, rtol=relative, atol=absolute * max(1.0, _scale(b)), equal_nan=True)
    return (
        ""
        if close.all()
        else f"{int((~close).sum())} of {close.size} differ, such as {a[~close][0]} for {b[~close][0]}"
    )


def _scale(values: Any) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 1.0


def table(outcomes: Sequence[Outcome]) -> str:
    """The results as Markdown: totals, what does not pass with its reason, and every operator."""
    counts = Counter(o.status for o in outcomes)
    by_operator: dict[str, dict[str, Outcome]] = defaultdict(dict)
    for o in outcomes:
        by_operator[o.operator][o.dtype] = o
    lines = [
        "# PyTorch's core operators", "",
        "Written by `python -m benchmarks.aten --markdown`. Samples are those of PyTorch's own tests, exported, "
        "imported, built and run; samples with tensors of no elements are left out.", "",
        describe(), "",
        f"{counts[PASS]} of {len(outcomes)} operators with a dtype pass ({counts[PASS] / max(1, len(outcomes)):.1%}), "
        f"{counts[REFUSED]} are refused, {counts[WRONG]} wrong, {counts[CRASH]} other errors.", "",
        "| operator | dtype | | reason |", "|---|---|---|---|",
    ]  # fmt: skip
    for o in outcomes:
        if o.status != PASS:
            lines.append(f"| {o.operator} | {o.dtype} | {o.status} | {o.reason.replace('|', '/')} |")
    lines += ["", f"| operator | {' | '.join(DTYPES)} |", "|---" * (len(DTYPES) + 1) + "|"]
    for name, found in sorted(by_operator.items()):
        cells = [f"{found[d].status} ({found[d].samples})" if d in found else "" for d in DTYPES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def read(path: Path) -> dict[tuple[str, str], Outcome]:
    """The outcomes of a file by operator and dtype, the last of each; one without samples says that there are none."""
    found = [Outcome(**json.loads(text)) for text in path.read_text().splitlines()] if path.exists() else []
    return {(o.operator, o.dtype): o for o in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check operators, print what does not pass, write a file where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aten", description=__doc__)
    parser.add_argument("--only", nargs="*", help="operators, such as 'add.Tensor' or 'add'")
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--samples", type=int, default=4, help="most samples of an operator with a dtype")
    parser.add_argument("--results", type=Path, help="a file of results, a line each, that this run adds to")
    parser.add_argument("--resume", action="store_true", help="leave out what is in the file of results")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    known = read(options.results) if options.results and options.resume else {}
    outcomes = []
    for operator in core_operators():
        name = str(operator).removeprefix("aten.")
        if options.only and name not in options.only and name.partition(".")[0] not in options.only:
            continue
        for dtype in options.dtypes:
            start = time.perf_counter()
            is_known = (name, dtype) in known
            outcome = known[name, dtype] if is_known else check(operator, dtype, options.samples)
            if options.results and not is_known:
                with options.results.open("a") as file:
                    file.write(json.dumps(asdict(outcome or Outcome(name, dtype, PASS, 0))) + "\n")
            if outcome is None or not outcome.samples:
                continue
            outcomes.append(outcome)
            if options.verbose or outcome.status != PASS:
                seconds = time.perf_counter() - start
                print(
                    f"{outcome.status:8}{name:40}{dtype:10}{outcome.samples:3} {seconds:5.1f} s  {outcome.reason}",
                    flush=True,
                )
    if options.markdown:
        options.markdown.write_text(table(outcomes))
    counts = Counter(o.status for o in outcomes)
    print(f"{counts[PASS]} of {len(outcomes)} pass, {dict(counts)}")
    return int(bool(counts[WRONG] or counts[CRASH]))


if __name__ == "__main__":
    sys.exit(main())
