"""`make conformance`: the onnx package's own tests, and what became of each.

Each case is imported, built and run as a user would; its results are compared with those that the package ships.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.errors import AutoschedError

RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
SECONDS = 60  # that one case may take
PASS, WRONG, REFUSED, CRASH = "pass", "wrong", "refused", "error"


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    status  pass, wrong (other numbers), refused (a clear error) or error (any other exception)
    reason  the first line of the error, or where the numbers differ
    """

    name: str
    operators: tuple[str, ...]
    status: str
    reason: str = ""


def load_cases(kind: str) -> list[Any]:
    """The package's test cases of a kind, their data with them."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind=kind))


def _read_stored(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """(model, data sets) of a case that lies in the package's folder."""
    import onnx

    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        sides = []
        for side, values in (("input", model.graph.input), ("output", model.graph.output)):
            files = sorted(data.glob(f"{side}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))
            sides.append([_tensor(f.read_bytes(), v) for f, v in zip(files, values, strict=False)])
        sets.append((sides[0], sides[1]))
    return model, sets


def _tensor(data: bytes, value: Any) -> Any:
    import onnx
    from onnx import numpy_helper

    if value.type.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if value.type.WhichOneof("value") == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def run_case(case: Any) -> Outcome:
    """Import, build, run and compare one case."""
    model, sets = (case.model, case.data_sets) if case.model is not None else _read_stored(case)
    operators = tuple(dict.fromkeys(f"{n.domain}.{n.op_type}".lstrip(".") for n in model.graph.node))

    def outcome(status: str, reason: str = "") -> Outcome:
        return Outcome(case.name, operators, status, reason)

    is_random = not RANDOM.isdisjoint(operators)  # then shapes and dtypes are compared
    try:
        with _time_limit(SECONDS):
            for inputs, outputs in sets:
                problem = _compare(_run(model, list(map(_array, inputs))), list(map(_array, outputs)), case, is_random)
                if problem:
                    return outcome(WRONG, problem)
    except AutoschedError as error:
        return outcome(REFUSED, error.line)
    except TimeoutError:
        return outcome(CRASH, f"took longer than {SECONDS} s")
    except Exception as error:  # what a user would meet as a traceback
        return outcome(CRASH, f"{type(error).__name__}: {error}".splitlines()[0][:300])
    return outcome(PASS)


def _run(model: Any, inputs: list[Any]) -> list[Any]:
    result = autosched.build(model)(*inputs)
    return [_numpy(r) for r in (result if isinstance(result, tuple) else (result,))]


def _numpy(value: Any) -> Any:
    if isinstance(value, list):
        return [_numpy(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") else value


def _array(value: Any) -> Any:
    """A value as arrays: of some dtypes the package gives protobuf messages."""
    import onnx
    from onnx import numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _compare(got: list[Any], wanted: list[Any], case: Any, is_random: bool = False) -> str:
    if len(got) != len(wanted):
        return f"{len(got)} outputs instead of {len(wanted)}"
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if isinstance(b, list):
            if not isinstance(a, list) or (inner := _compare(a, b, case)):
                return f"output {i}: {inner if isinstance(a, list) else 'no sequence'}"
            continue
        if a is None or b is None:
            if a is not b:
                return f"output {i} is {a} instead of {b}"
            continue
        b = np.asarray(b)
        b = b.astype(object) if b.dtype.kind in "US" else b
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if is_random:
            continue
        if a.dtype.kind in "OSUb" or a.dtype.kind in "iu":
            if not np.array_equal(a, b):
                return f"output {i} differs"
        elif not np.allclose(
            a.astype(np.float64), b.astype(np.float64), _rtol(a, case), _atol(b, case), equal_nan=True
        ):
            with np.errstate(all="ignore"):
                worst = np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64)))
            return f"output {i} differs by up to {worst:.3g}"
    return ""


def _atol(wanted: np.ndarray, case: Any) -> float:
    """The case's; of Fourier transforms one place of the largest value, which all values are sums of.

    NumPy computes what the package expects in the same type: where it should give 0, it gives that much.
    """
    if not case.name.startswith("test_dft"):
        return float(case.atol)
    return max(float(case.atol), float(np.finfo(wanted.dtype).eps * np.abs(wanted).max(initial=0)))


def _rtol(x: Any, case: Any) -> float:
    """A bfloat16 may be two places off: the package rounds every step, kernels add up in float32."""
    return max(float(case.rtol), 2.0**-6) if str(x.dtype) == "bfloat16" else float(case.rtol)


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def main() -> None:
    """Run the cases and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of cases, comma-separated")
    parser.add_argument("--only", default="", help="only cases whose names hold one of these texts")
    parser.add_argument("--not-passed", type=Path, help="only cases that did not pass in this file, written by --json")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    args = parser.parse_args()
    outcomes = []
    passed = json.loads(args.not_passed.read_text()) if args.not_passed else []
    skipped = {o["name"] for o in passed if o["status"] == PASS}
    for kind in args.kinds.split(","):
        cases = [c for c in load_cases(kind) if not args.only or any(t in c.name for t in args.only.split(","))]
        cases = [c for c in cases if c.name not in skipped]
        for i, case in enumerate(cases):
            outcomes.append(run_case(case))
            if i % 100 == 99:
                print(f"{kind}: {i + 1} of {len(cases)}, {dict(Counter(o.status for o in outcomes))}", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps([o.__dict__ for o in outcomes], indent=1))
    for status in (WRONG, CRASH):
        for o in outcomes:
            if o.status == status:
                print(f"{status}: {o.name}: {o.reason}")
    refused: dict[str, list[str]] = defaultdict(list)
    for o in outcomes:
        if o.status == REFUSED:
            refused[o.reason.partition(" (")[0][:110]].append(o.name)
    for reason, names in sorted(refused.items(), key=lambda x: -len(x[1])):
        print(f"refused {len(names):4}: {reason}: {names[0]}")
    print(dict(Counter(o.status for o in outcomes)))


if __name__ == "__main__":
    main()
