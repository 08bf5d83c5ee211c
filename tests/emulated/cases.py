"""What is run on the emulated machine: artifacts for its CPU, their inputs, and what they have to give.

All is built here; the expected values come from float64 references, never from generated code.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import autosched
from autosched import relax, te
from autosched.codegen import compile_func
from autosched.codegen.native import native_for
from autosched.ir import IRModule
from autosched.records import FallbackContext
from autosched.relax.op.registry import OPERATORS, OpDef, Sample
from autosched.runtime import Module
from autosched.runtime.variants import Variants
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.tir import PrimFunc
from autosched.tir.evaluate import evaluate
from autosched.tir.interpret import interpret
from tests.codegen.cpu.test_math import erf, exp, inputs, sigmoid
from tests.codegen.random_programs import PROGRAMS, random_schedule
from tests.emulated.networks import NETWORKS
from tests.relax.op_samples import arguments
from tests.templates.cases import CASES, conv, dense
from tests.templates.cpu import test_winograd as winograd
from tests.tir.random_schedule import take_steps
from tests.tir.random_te import random_program

Arrays = list[np.ndarray]
KERNEL, OPERATOR, FUNCTION, EXACT = 1e-5, 2e-5, 3e-7, 0.0  # the largest errors: see `guest.find_error`


class Saved(Protocol):
    """What can be written as an artifact."""

    def save(self, path: Path) -> None: ...


@dataclass(frozen=True)
class Case:
    """One artifact and one call of it.

    call     "in place": a function on arrays, outputs last; "model": inputs in, results out
    limit    the largest error that passes
    each     the error of every value by that value, not by the largest one
    variant  which of several the machine has to load
    refused  the machine has to refuse it
    """

    group: str
    name: str
    artifact: Saved
    inputs: Arrays
    expected: Arrays
    call: str
    limit: float
    each: bool = False
    variant: str = ""
    refused: bool = False


def make_cases(target: Target, chosen: Callable[[str], bool]) -> Iterator[Case]:
    """The cases of the groups and names ("kernels: dense default") that are chosen, built one after the other."""
    for group, names in GROUPS.items():
        for name, make in names(target).items():
            if chosen(f"{group}: {name}"):
                yield make(group, name)


Makers = Mapping[str, Callable[[str, str], Case]]


def _kernel(func: PrimFunc, config: Config, target: Target) -> Callable[[str, str], Case]:
    def make(group: str, name: str) -> Case:
        applied = apply_config(func, config, target)
        kernel = compile_func(applied.func, target, name="k").kernel
        rng = np.random.default_rng(0)
        natural = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers]
        n = sum(arg.role == "output" for arg in kernel.args)
        packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
        wanted = [w.astype(a.dtype) for w, a in zip(evaluate(func, natural[:-n]), natural[-n:], strict=True)]
        return Case(group, name, Module({"k": kernel}, native_for(target)), packed[:-n], wanted, "in place", KERNEL)

    return make


def _kernels(target: Target) -> Makers:
    """Every template: the defaults of all that match, and configurations drawn from the whole space."""
    found = {}
    for name, (_, build) in CASES.items():
        func = build()
        for template, anchor in templates_for(func, target):
            found[f"{name}, {template.name}"] = _kernel(func, template.default(anchor, target), target)
        space = space_for(func, target)
        for number, config in enumerate(space.sample(np.random.default_rng(2), 2)):
            found[f"{name}, drawn {number}, {config.template}"] = _kernel(func, config, target)
    return found


def _sizes(target: Target) -> Makers:
    """Defaults at sizes around the tiles' borders."""
    products = {f"dense {m} x 33 x {n}": dense(m, 33, n) for m in (*range(1, 17), 29, 31) for n in (15, 100)}
    products |= {f"dense 5 x 40 x {n}": dense(5, 40, n) for n in (1, 16, 17, 31, 47, 48, 49, 64, 250)}
    for size in (5, 7, 13, 14, 28):
        products[f"conv 3x3 of {size}"] = conv(1, 32, size, 48, 3, 1, 1)
        products[f"conv 3x3 of {size}, stride 2"] = conv(1, 32, size, 32, 3, 2, 1)
        products[f"conv 1x1 of {size}"] = conv(1, 64, size, 32, 1, 1, 0)
        products[f"conv 5x5 of {size}"] = conv(1, 16, size, 16, 5, 1, 2)
        products[f"depthwise of {size}"] = conv(1, 48, size, 48, 3, 1, 1, groups=48)
    for size, kernel in ((23, 3), (37, 7), (34, 11)):
        products[f"first {kernel}x{kernel} of {size}"] = conv(1, 3, size, 48, kernel, 2, kernel // 2, first=True)
    return {name: _kernel(func, default_config(func, target), target) for name, func in products.items()}


def _winograd(target: Target) -> Makers:
    """Winograd's convolutions: sizes and padding, what is fused behind, configurations."""
    found = {}
    block = 2 * min(target.lanes("float32"), 8)
    for name, (batch, channels, height, width, outputs, padding) in winograd.CASES.items():
        func = winograd.conv(batch, 2 * channels, height, width, 2 * outputs, padding, block=block)
        for m in (2, 4):
            found[f"{name}, m={m}"] = _kernel(func, winograd.config(m=m, rows=6), target)
    for epilogue in ("", "residual"):
        func = winograd.conv(1, 32, 9, 6, 48, (1, 1, 1, 1), block=block, epilogue=epilogue)
        found[f"behind: {epilogue or 'nothing'}"] = _kernel(func, winograd.config(), target)
    func = winograd.conv(2, 32, 10, 11, 80, (1, 1, 1, 1), block=block)
    space = space_for(func, target)
    drawn = (c for c in space.sample(np.random.default_rng(3), 60) if c.template == "winograd")
    return found | {f"drawn {n}": _kernel(func, config, target) for n, (config, _) in enumerate(zip(drawn, range(10)))}


def _functions(target: Target) -> Makers:
    """exp and its like over their range and at infinities, NaN, denormals; compared value by value."""
    exact: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "exp": exp, "log": np.log, "tanh": np.tanh, "erf": erf, "sigmoid": sigmoid, "sqrt": np.sqrt,
        "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "abs": np.abs,
    }  # fmt: skip

    def make(group: str, name: str) -> Case:
        x = np.concatenate([part := inputs(name in ("log", "sqrt")), part[:5]])[::7].copy()
        a = te.placeholder(x.shape, name="a")
        func = te.create_prim_func([a, te.compute(x.shape, lambda i: getattr(te, name)(a[i]), name="f")], "int64")
        kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k").kernel
        with np.errstate(all="ignore"):
            wanted = exact[name](x.astype("d")).astype("f")
        return Case(
            group, name, Module({"k": kernel}, native_for(target)), [x], [wanted], "in place", FUNCTION, each=True
        )

    return dict.fromkeys(exact, make)


def _programs(target: Target) -> Makers:
    """Random programs under random schedules: casts, integers, conditions, reductions, loops of every kind."""

    def of_floats(group: str, name: str) -> Case:
        r = random.Random(name)
        func = random_schedule(r.choice(PROGRAMS)(r), r, r.randint(1, 12))
        rng = np.random.default_rng(r.randrange(1000))
        arrays = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers]
        wanted = [a.copy() for a in arrays]
        interpret(func, wanted)
        return program(group, name, func, arrays, wanted, 1e-4)

    def of_whole_numbers(group: str, name: str) -> Case:
        r = random.Random(name)
        made = random_program(r.randrange)
        sch = autosched.tir.Schedule(made.func)
        take_steps(sch, 2 + r.randrange(20), r.randrange)
        return program(group, name, sch.func, made.arguments, made.expected, EXACT)

    def program(group: str, name: str, func: PrimFunc, arrays: Arrays, wanted: Arrays, limit: float) -> Case:
        kernel = compile_func(func, target, name="k").kernel
        n = sum(arg.role == "output" for arg in kernel.args)
        assert all(arg.role == "output" for arg in kernel.args[-n:]), "outputs come last"
        return Case(group, name, Module({"k": kernel}, native_for(target)), arrays[:-n], wanted[-n:], "in place", limit)

    return {f"floats {n}": of_floats for n in range(40)} | {f"whole numbers {n}": of_whole_numbers for n in range(60)}


def _operators(target: Target) -> Makers:
    """Every sample of every operator, through the whole build."""
    return {f"{d.name} {n}": _operator(d, s, target) for d in OPERATORS.values() for n, s in enumerate(d.samples)}


def _operator(definition: OpDef, sample: Sample, target: Target) -> Callable[[str, str], Case]:
    def make(group: str, name: str) -> Case:
        values: Arrays = []
        params: list[relax.Var] = []

        def param(arg: Any) -> Any:
            if isinstance(arg, relax.Tuple):
                return relax.Tuple(tuple(map(param, arg.fields)))
            if not isinstance(arg, relax.Constant):
                return arg
            values.append(arg.data)
            params.append(relax.Var(f"x{len(params)}", arg.struct_info))
            return params[-1]

        args = tuple(map(param, arguments(definition, sample)))
        bb = relax.BlockBuilder()
        with bb.function("main", params):
            with bb.dataflow():
                result = bb.emit(definition.make(args, sample.attrs))
                info = result.struct_info
                fields = range(len(info.fields)) if isinstance(info, relax.TupleStructInfo) else ()
                parts = [bb.emit_output(relax.TupleGetItem(result, n)) for n in fields]
                output = parts or bb.emit_output(result)
            bb.emit_func_output(output)
        return _model(group, name, bb.get(), values, target, OPERATOR)

    return make


def _model(group: str, name: str, module: IRModule, values: Arrays, target: Target, limit: float) -> Case:
    built = autosched.build(module, target=target, records=FallbackContext(), threads=1)
    with np.errstate(all="ignore"):
        wanted = relax.evaluate(module, values)
        precise = relax.evaluate(module, values, dtype="float64")
    pairs = zip(*((x if isinstance(x, tuple) else (x,)) for x in (wanted, precise)), strict=True)
    return Case(group, name, built, values, [p.astype(w.dtype) for w, p in pairs], "model", limit)


def _networks(target: Target) -> Makers:
    """Small networks through the whole build."""

    def make(group: str, name: str) -> Case:
        module = NETWORKS[name]()
        rng = np.random.default_rng(0)
        values = [rng.standard_normal(p.struct_info.static_shape).astype("f") for p in module["main"].params]
        return _model(group, name, module, values, target, KERNEL)

    return dict.fromkeys(NETWORKS, make)


def _artifacts(target: Target) -> Makers:
    """Which variant is loaded, and what is refused."""

    def several(*targets: str, variant: str = "", refused: bool = False) -> Callable[[str, str], Case]:
        def make(group: str, name: str) -> Case:
            module = NETWORKS["small"]()
            x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype("f")
            given: Any = list(targets) if len(targets) > 1 else targets[0]
            built = autosched.build(module, target=given, records=FallbackContext(), threads=1)
            wanted = [relax.evaluate(module, [x], dtype="float64").astype("f")]
            return Case(group, name, built, [x], wanted, "model", KERNEL, variant=variant, refused=refused)

        return make

    x86 = {cpu: f"llvm -mcpu={cpu}" for cpu in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "sapphirerapids")}
    if target.architecture == "aarch64":
        arm = {cpu: f"llvm -mtriple={target.triple} -mcpu={cpu}" for cpu in ("generic", "cortex-a72", "neoverse-n1")}
        return {
            "three of them": several(*arm.values(), variant="neoverse-n1"),
            "x86-64 and one": several(x86["x86-64-v3"], arm["cortex-a72"], variant="cortex-a72"),
            "x86-64 alone is refused": several(x86["x86-64-v2"], refused=True),
        }
    return {
        "v3 and v4": several(x86["x86-64-v3"], x86["x86-64-v4"], variant="x86-64-v4"),
        "v4, v2 and one newer": several(x86["x86-64-v4"], x86["x86-64-v2"], x86["sapphirerapids"], variant="x86-64-v4"),
        "v2 and v3": several(x86["x86-64-v2"], x86["x86-64-v3"], variant="x86-64-v3"),
        "newer alone is refused": several(x86["sapphirerapids"], refused=True),
    }


GROUPS: Mapping[str, Callable[[Target], Makers]] = {
    "artifacts": _artifacts,
    "networks": _networks,
    "kernels": _kernels,
    "sizes": _sizes,
    "winograd": _winograd,
    "functions": _functions,
    "programs": _programs,
    "operators": _operators,
}


# Bochs 2.7 takes the fifth bit of a gather's or scatter's index register for a reserved one: an illegal instruction.
_REFUSED = re.compile(r"v\w*(?:gather|scatter)\w+\s[^\n#]*\([^)]*%[xyz]mm(?:1[6-9]|2\d|3[01])\b")


def is_refused(artifact: Any) -> bool:
    """Whether a kernel has right instructions that the emulator does not know."""
    kernels = {} if isinstance(artifact, Variants) else artifact.kernels
    return any(
        ("gather" in k.llvm or "scatter" in k.llvm) and _REFUSED.search(k.asm) is not None for k in kernels.values()
    )


def save_cases(folder: Path, cases: Iterator[Case]) -> list[dict[str, Any]]:
    """Write cases for `guest.py`; gives what cases.json says of them."""
    folder.mkdir(parents=True)
    rows = []
    for number, case in enumerate(cases):
        case.artifact.save(folder / f"{number:04d}.asx")
        for n, array in enumerate((*case.inputs, *case.expected)):
            np.save(folder / f"{number:04d}.{n}.npy", array)
        row = {"number": number, "group": case.group, "name": case.name, "limit": case.limit, "each": case.each}
        row |= {"inputs": len(case.inputs), "outputs": len(case.expected), "call": case.call}
        row |= {"left_out": is_refused(case.artifact)}
        rows.append(row | {"variant": case.variant, "refused": case.refused})
    (folder / "cases.json").write_text(json.dumps(rows))
    return rows
