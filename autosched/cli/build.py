"""`autosched build`: a model becomes one file that runs without a compiler."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli import completion
from autosched.cli.common import Common, make_command
from autosched.cli.late import build_late, symbols, tell
from autosched.cli.model import artifact_of, check_source, load_module
from autosched.cli.output import Column, Table, milliseconds, percent, print_json, say, show
from autosched.cli.own import build_own
from autosched.cli.paths import check_output
from autosched.cli.values import CPUS, RANGES
from autosched.cli.waiting import compiling
from autosched.durations import step
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import ImportModelError, UsageError

Ranges = Mapping[str, tuple[int | range, ...]]

if TYPE_CHECKING:
    from autosched.driver import BuildReport
    from autosched.driver.build.entry import BuildOptions
    from autosched.driver.build.pins import Pinned
    from autosched.driver.build.sized import SizedModel
    from autosched.driver.settings import Records
    from autosched.ir import IRModule
    from autosched.json_types import JsonObject
    from autosched.runtime import Executable
    from autosched.runtime.dynamic import DynamicExecutable
    from autosched.runtime.relax_vm import VMExecutable
    from autosched.runtime.variants import Built

EXAMPLE = """
autosched build model.onnx -o model.asx
autosched build model.onnx -o model.asx --db tuned.db -v
autosched build model.onnx --strict --like x86-64-v4
autosched build model.onnx --pin fused_matmul_relu "rows=6 vectors=2"
autosched build model.onnx --mcpu x86-64-v3,x86-64-v4
autosched build model.onnx --target nvidia/nvidia-h200 --target "cuda -arch=sm_80" --target cpu
"""

LITTLE = 0.005  # of a model's time: a smaller estimate is not shown

REPORT_COLUMNS = (
    Column("kernel", "kernel"),
    Column("template", "template"),
    Column("types", "types"),
    Column("product", "multiplies by"),
    Column("origin", "configuration from"),
    Column("trust", "trust"),
    Column("expected_s", "expected ms", milliseconds, right=True),
    Column("reason", "reason"),
)


@make_command("build", example=EXAMPLE, several_targets=True)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write (default: MODEL with .asx).")
@click.option("--no-db", is_flag=True, help="Use every template's default; look nothing up.")
@click.option(
    "--locked",
    type=click.Path(path_type=Path),
    help="Use exactly the configurations in a file of `autosched logs lock`.",
)
@click.option(
    "--like",
    metavar="DEVICE",
    shell_complete=completion.names(completion.cpus),
    help="Use records of such devices too: a family (x86-64-v4), a name, a target.",
)
@click.option(
    "--pin",
    "pins",
    nargs=2,
    multiple=True,
    metavar="TASK CONFIG",
    help="Use this configuration for kernels of this name, or whose workload contains TASK; repeatable.",
)
@click.option(
    "--mcpu",
    type=CPUS,
    metavar="CPU,…",
    shell_complete=completion.lists(completion.cpus),
    help="Compile for these CPUs; of several, a machine loads what it can run.",
)
@click.option(
    "--as",
    "run_as",
    type=click.Choice(["latency", "throughput"]),
    default="latency",
    show_default=True,
    help="Which records come first: measured alone, or beside other instances.",
)
@click.option("--strict", is_flag=True, help="Fail where a kernel has no trusted record (exit code 1).")
@click.option(
    "--shapes", type=RANGES, help='Shapes of dynamic inputs: "x:1x3x224x224"; bounds of a batch: "x:1..512x784".'
)
@click.option(
    "--accuracy", type=click.Choice(["fast", "strict"]), default="fast", show_default=True, help="strict: no Winograd."
)
@click.option(
    "--inputs", type=click.Path(path_type=Path), help="Arguments of your own function: an .npz by their names."
)
@click.option(
    "--signature",
    "signatures",
    multiple=True,
    metavar="TYPES",
    help='Types of your own function\'s arguments: "float64[:,:], int64"; repeatable.',
)
@click.option(
    "--precision",
    type=click.Choice(["float32", "bf16", "tf32"]),
    help="bf16: products with weights on bfloat16; tf32, on GPUs: products of float32 on tensor cores.",
)
def command(
    common: Common,
    model: Path,
    output: Path | None,
    no_db: bool,
    locked: Path | None,
    like: str | None,
    pins: tuple[tuple[str, str], ...],
    mcpu: tuple[str, ...] | None,
    run_as: str,
    strict: bool,
    shapes: Ranges | None,
    accuracy: str,
    inputs: Path | None,
    signatures: tuple[str, ...],
    precision: str | None,
) -> None:
    """Compile MODEL with the best configurations known for this machine.

    MODEL may be your own function, "package.module:function" of `autosched.autotune`. It is compiled for its example,
    --inputs and --signature, and for what is recorded; `autosched.load` gives a callable that needs no Numba.

    One line says where the configurations came from, and what tuning the others may gain by what it has gained for
    their operators elsewhere; -v shows it for each kernel. A configuration is pinned as reports write it,
    "template: knob=value …"; what is not named has the template's default.
    """
    others = {"--locked": locked, "--like": like, "--pin": pins, "--mcpu": mcpu, "--strict": strict, "--shapes": shapes}
    others |= {"--precision": precision, "--accuracy": accuracy != "fast", "--no-db": no_db}
    if build_own(common, model, output, inputs, signatures, others):
        return
    for first, second, both in (
        ("--db", "--no-db", no_db and common.db),
        ("--pin", "--locked", pins and locked is not None),
        ("--mcpu", "--target", mcpu and common.targets != ("cpu",)),
    ):
        if both:
            raise UsageError(f"{first} and {second} exclude each other")
    path = output or artifact_of(model)
    check_source(model)
    check_output(path, inputs=[model, *map(Path, common.db), *([locked] if locked else [])])
    from autosched import driver
    from autosched.runtime.relax_vm import VMExecutable

    targets = {name: f"llvm -mcpu={name}" for name in mcpu or ()} or _named(common.targets)
    records, pinned = _records(common, no_db, locked, like, pins)
    options: BuildOptions = {
        "records": records, "threads": common.threads, "accuracy": accuracy, "precision": precision, "like": like,
        "strict": strict, "run_as": run_as,
    }  # fmt: skip
    fixed, ranged = driver.split_ranges(shapes)
    is_onnx = model.suffix.lower() == ".onnx"
    module, error = None, None
    try:
        if not (is_onnx and ranged):
            module = load_module(model, fixed, quiet=common.is_quiet, symbolic=not is_onnx, may_wait=True)
    except ImportModelError as found:
        if pins:
            raise
        error = found
    if module is None:
        if pins:
            raise UsageError("--pin takes a model of fixed sizes", hint="give numbers in --shapes")
        later = {name: build_late(error, model, shapes, target=t, **options) for name, t in targets.items()}
        _save(later, path)
        for name, late in later.items():
            tell(late, common, name)
    else:
        built = _built(module, targets, model.name, common, options, ranged)
        if pinned is not None:
            pinned.check_used()
        with step("runtime/artifact.py", "write the artifact"):
            _save(built, path)
        of_one_graph = {name: made for name, made in built.items() if not isinstance(made, VMExecutable)}
        advised = None if no_db or locked is not None or AUTOSCHED_TUNE.get() == "off" else targets
        if of_one_graph:
            _tell_built(of_one_graph, path, common, model, like, advised)
        for name, made in built.items():
            if isinstance(made, VMExecutable):
                tell(made, common, name)
    say(f"written to {path}", quiet=common.is_quiet)


def _records(
    common: Common, no_db: bool, locked: Path | None, like: str | None, pins: tuple[tuple[str, str], ...]
) -> tuple[Records | None, Pinned | None]:
    """(the records that configurations come from, the pinned ones among them)."""
    from autosched.records import FallbackContext

    records: Records | None = FallbackContext() if no_db else list(common.db) or None
    if locked is not None:
        from autosched.records.lock import read_lock

        records = read_lock(locked)
    if not pins:
        return records, None
    from autosched.driver.build.pins import Pinned
    from autosched.driver.settings import resolve_records

    pinned = Pinned(resolve_records(records, like=like), pins)
    return pinned, pinned


def _built(
    module: IRModule, targets: Mapping[str, str], what: str, common: Common, options: BuildOptions, ranged: Ranges
) -> dict[str, Executable | DynamicExecutable | SizedModel | VMExecutable]:
    """The builds of a model by the names of their targets."""
    from autosched import driver

    built: dict[str, Executable | DynamicExecutable | SizedModel | VMExecutable] = {}
    for name, target in targets.items():
        with compiling(f"building {what}{f' for {name}' if name else ''}", quiet=common.is_quiet):
            if not symbols(module):
                driver.tune_first(module, target, records=options["records"], threads=common.threads)
            built[name] = driver.build(module, target=target, shapes=ranged or None, **options)
    return built


def _tell_built(
    built: Mapping[str, Executable | DynamicExecutable | SizedModel], path: Path, common: Common, model: Path,
    like: str | None, advised: Mapping[str, str] | None,
) -> None:  # fmt: skip
    """Show the reports, and say for which of the targets `advised` tuning may pay."""
    from autosched import driver
    from autosched.runtime import Executable

    reports = {name: driver.build_report(executable) for name, executable in built.items()}
    _show(reports, built, path, common)
    for name, report in reports.items():
        advice = "" if advised is None or common.is_quiet else _advice(common, model, report.rows, like, advised[name])
        say(f"{name}: " * bool(name) + report.summary + advice, quiet=common.is_quiet)
    for name, executable in built.items():
        if not isinstance(executable, Executable):
            tell(executable, common, name)


def _named(targets: Sequence[str]) -> dict[str, str]:
    """Targets by the names of an artifact's variants; "" names the only one."""
    from autosched import driver

    return dict(zip(driver.name_targets(targets) if len(targets) > 1 else [""], targets, strict=True))


def _save(built: Mapping[str, Built | VMExecutable], path: Path) -> None:
    """Write the artifact of one build or of several."""
    from autosched.runtime.artifact import save_contents
    from autosched.runtime.variants import Variants

    first, *others = built.values()
    if others:
        Variants(built).save(path)
    else:
        save_contents(first.contents(), path)


def _show(reports: Mapping[str, BuildReport], built: Mapping[str, object], path: Path, common: Common) -> None:
    """Show the builds' reports, where they were asked for: one for each variant, if there are several."""
    _, *others = reports.values()
    if common.format == "json":
        document: JsonObject = {"artifact": str(path)}
        kind = "target" if len(common.targets) > 1 else "cpu"
        each = [
            {kind: name, "summary": r.summary, "graph": r.graph, "kernels": _rows(r, built[name])}
            for name, r in reports.items()
        ]
        print_json(document | ({"variants": each} if others else {k: v for k, v in each[0].items() if k != kind}))
    elif common.verbosity > 0 or common.format == "csv":
        columns = (Column("for", "for"), *REPORT_COLUMNS) if others else REPORT_COLUMNS
        rows = [{"for": name, **row} for name, r in reports.items() for row in _rows(r, built[name])]
        show(Table(columns, rows), common.format)
        for name, r in reports.items():
            if common.format == "table" and r.graph_text:
                say(f"{name}: " * bool(others) + r.graph_text, quiet=common.is_quiet)


def _rows(report: BuildReport, executable: object) -> list[JsonObject]:
    """A report's rows with the instructions by which the kernels multiply."""
    from autosched.codegen.cpu.instructions import product_instruction
    from autosched.runtime.cpu.kernel import CpuKernel

    found: Mapping[str, object] = getattr(executable, "kernels", {})  # none where it is compiled when it is called
    kernels = {name: kernel for name, kernel in found.items() if isinstance(kernel, CpuKernel)}
    names = {name: product_instruction(kernel.asm) for name, kernel in kernels.items()}
    return [{**row, "product": names.get(str(row["kernel"]), "")} for row in report.rows]


def _advice(common: Common, model: Path, kernels: Sequence[Mapping[str, object]], like: str | None, target: str) -> str:
    """The gain that tuning may bring to kernels without a record; "" where all have one."""
    from autosched.driver.settings import resolve_records, resolve_target
    from autosched.records.gains import expected_gain, usual_gains

    ops = [str(row["workload"]).partition(" ")[0] for row in kernels if row["trust"] == "default"]
    if not ops:
        return ""
    reader = resolve_records(list(common.db) or None, like=like)
    gain = expected_gain(kernels, usual_gains(reader, resolve_target(target), ops))
    lead = f"about {percent(gain)} to gain" if gain is not None and gain >= LITTLE else "to tune"
    chosen = "" if target == "cpu" else f" --target {shlex.quote(target)}"
    return f"; {lead}: autosched tune {shlex.quote(str(model))}{chosen}"
