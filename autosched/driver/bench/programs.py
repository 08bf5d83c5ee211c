"""Things that run a model, ours and other runtimes', behind one small interface, for `bench`."""

from __future__ import annotations

import dataclasses
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import UsageError
from autosched.rpc.client import RPCSession
from autosched.rpc.models import RemoteModel
from autosched.runtime import Executable, GraphModule
from autosched.runtime.device import CPU
from autosched.runtime.dynamic import DynamicExecutable, DynamicExecutor
from autosched.runtime.graph_executor import Model
from autosched.runtime.relax_vm import VirtualMachine, VMExecutable
from autosched.runtime.size_expr import format_shapes
from autosched.target.threads import choose_threads

if TYPE_CHECKING:
    import onnxruntime

INTEGER_LIMIT = 2  # integer inputs are often indices or masks: 0 and 1 are in range for all of them
Shapes = Mapping[str, tuple[int, ...]]
Ranges = Mapping[str, int]


@dataclass(frozen=True)
class Program:
    """A model made ready: `run()` runs it once on inputs that are set already.

    load_s        from the file to here; building included, where a model had to be built
    first_run_s   the first run, in which some runtimes do things that they do once
    memory_bytes  by how much both made this process's resident memory grow; None where that is not known
    others        runs of further instances, which go on in threads of their own while this one has its turn
    times         of a program elsewhere: runs it so often and gives each run's seconds by the clock there
    sleeps        whether its threads sleep within a millisecond of a run, as ours do
    """

    name: str
    threads: int
    run: Callable[[], object]
    load_s: float | None = None
    first_run_s: float | None = None
    memory_bytes: int | None = None
    others: tuple[Callable[[], object], ...] = ()
    times: Callable[[int], Sequence[float]] | None = None
    sleeps: bool = False

    @property
    def n_instances(self) -> int:
        """How many run at once."""
        return 1 + len(self.others)

    def beside(self, others: Sequence[Callable[[], object]]) -> Program:
        """The program as one of several instances."""
        return dataclasses.replace(self, others=tuple(others))


def start(make: Callable[[], Program], *, memory: bool = True) -> Program:
    """Make a program and run it once; gives it with what that took, memory only where that is asked for."""
    before, begin = resident_bytes() if memory else None, time.perf_counter()
    program = make()
    loaded = time.perf_counter()
    program.run()
    first = time.perf_counter() - loaded
    after = resident_bytes()
    grown = None if before is None or after is None else max(after - before, 0)
    return dataclasses.replace(program, load_s=loaded - begin, first_run_s=first, memory_bytes=grown)


def resident_bytes() -> int | None:
    """The memory of this process that is in RAM now; None where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def random_inputs(
    specs: Mapping[str, tuple[tuple[int, ...], str]], seed: int = 0, ranges: Ranges | None = None
) -> dict[str, np.ndarray]:
    """Seeded inputs by name from (shape, dtype): normal numbers, integers in [0, ranges[name]) or 0 and 1."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, (shape, dtype) in specs.items():
        if np.issubdtype(np.dtype(dtype), np.floating):
            arrays[name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[name] = rng.integers(0, (ranges or {}).get(name, INTEGER_LIMIT), shape).astype(dtype)
    return arrays


def known_ranges(executable: Model | DynamicExecutable | VMExecutable) -> dict[str, int]:
    """The ranges of its integer inputs that the build of an executable found; see `input_ranges`."""
    return {str(k): int(v) for k, v in executable.manifest.get("input_ranges", {}).items()}


def input_specs(executable: Model) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input by name."""
    return {v.name: (v.shape, v.dtype) for v in executable.inputs}


def autosched_program(name: str, executable: Executable, threads: int) -> Program:
    """A built model in the graph executor."""
    module = GraphModule(executable, threads=threads)
    for key, value in random_inputs(input_specs(executable), ranges=known_ranges(executable)).items():
        module.set_input(key, value)
    if module.module.device.device_type == CPU:
        return Program(name, threads, module.run, sleeps=True)

    def run_to_the_end() -> None:
        module.run()
        module.module.device.sync()

    return Program(name, threads, run_to_the_end)


def dynamic_program(name: str, model: DynamicExecutable, shapes: Shapes | None, threads: int) -> Program:
    """A model built for all sizes, called with inputs of some shapes. Raises UsageError where they are not known."""
    if not shapes:
        inputs = ", ".join(f"{name}: {shape}" for name, shape in model.input_shapes.items())
        raise UsageError(
            f"{name} is built for all sizes ({inputs}), and is measured at given ones",
            hint=f'give them, such as --shapes "{format_shapes(model.least_shapes())}"',
        )
    specs = input_specs(model.at(shapes))
    arrays = model.check_inputs((), random_inputs(specs, ranges=known_ranges(model)))
    executor = model.create_executor(threads)
    if isinstance(executor, DynamicExecutor):
        return Program(name, threads, lambda: executor.run(arrays), sleeps=True)

    def run_to_the_end() -> None:
        executor.run(arrays)
        executor.device.sync()

    return Program(name, threads, run_to_the_end)


def branching_program(name: str, model: VMExecutable, shapes: Shapes | None, threads: int) -> Program:
    """A model that branches, loops or learns sizes, in the VM. Raises UsageError for another number of threads."""
    if threads != choose_threads():
        raise UsageError(
            f"{name} branches or loops, and is run on {choose_threads()} threads",
            hint=f"set AUTOSCHED_NUM_THREADS={threads}",
        )
    arrays = random_inputs(model.input_specs(shapes or {}))
    run = VirtualMachine(model)["main"]
    return Program(name, threads, lambda: run(**arrays), sleeps=True)


def remote_program(name: str, model: Executable | Path, threads: int, session: RPCSession) -> Program:
    """A built model, or an artifact, in a graph executor of a session."""
    there = RemoteModel(session, model)
    executor = there.executor(threads)
    module = GraphModule(executor)
    for key, value in random_inputs(there.inputs, ranges=there.ranges).items():
        module.set_input(key, value)

    def times(number: int) -> Sequence[float]:
        return tuple(executor.time_evaluator("run", number=1, repeat=number)().results)

    return Program(name, threads, module.run, times=times)


def fixed_shape(shape: Sequence[object], name: str, shapes: Shapes | None) -> tuple[int, ...]:
    """The shape of an input, as `shapes` gives it or as the file does. Raises UsageError for one that is open."""
    if shapes and name in shapes:
        return tuple(shapes[name])
    known = tuple(d for d in shape if isinstance(d, int) and d > 0)
    if len(known) < len(shape):
        raise UsageError(f"input '{name}' has dynamic dimensions {list(shape)}", hint=f'give --shapes "{name}:1x…"')
    return known


def session_specs(
    session: onnxruntime.InferenceSession, shapes: Shapes | None
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input of a session of ONNX Runtime by name."""
    dtypes = {"tensor(float)": "float32", "tensor(double)": "float64"}
    dtypes |= {f"tensor({name})": name for name in ("int64", "int32", "int8", "uint8", "bool", "float16")}
    return {i.name: (fixed_shape(i.shape, i.name, shapes), dtypes.get(i.type, "float32")) for i in session.get_inputs()}


def onnxruntime_program(path: Path, threads: int, shapes: Shapes | None, ranges: Ranges | None) -> Program:
    """The model in ONNX Runtime, with its inputs bound so that a run does no more than compute."""
    ort = import_peer("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    specs = session_specs(session, shapes)
    binding = session.io_binding()
    kept = random_inputs(specs, ranges=ranges)
    for name, array in kept.items():
        binding.bind_cpu_input(name, array)
    names = [output.name for output in session.get_outputs()]
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    for name, value in zip(names, binding.get_outputs(), strict=True):
        binding.bind_ortvalue_output(name, value)  # the same memory in each run
    try:
        session.run_with_iobinding(binding)
    except RuntimeError:  # the model says outputs of other ranks than it gives: these cannot be bound
        return Program("onnxruntime", threads, lambda: session.run(None, kept))
    return Program("onnxruntime", threads, lambda: (session.run_with_iobinding(binding), kept)[0])


def openvino_program(
    path: Path, threads: int, shapes: Shapes | None, ranges: Ranges | None, precision: str = "f32"
) -> Program:
    """The model in OpenVINO, latency mode; `precision` as its hint says it: "f32", "bf16"."""
    ov = import_peer("openvino")
    core = ov.Core()
    model = core.read_model(str(path))
    if shapes:
        model.reshape({name: list(shape) for name, shape in shapes.items()})
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    specs = {p.get_any_name(): (tuple(p.get_shape()), p.get_element_type().to_dtype().name) for p in compiled.inputs}
    for name, array in random_inputs(specs, ranges=ranges).items():
        request.set_tensor(name, ov.Tensor(array))
    return Program("openvino", threads, request.infer)


def torch_program(path: Path, threads: int, shapes: Shapes | None, ranges: Ranges | None) -> Program:
    """The imported graph, operator by operator, in eager PyTorch."""
    torch = import_peer("torch")
    from autosched.driver.model_files import load_model
    from autosched.frontend.torch.network import TorchNetwork
    from autosched.relax.struct_info import tensor_infos

    module = load_model(path, shapes)
    infos = {p.name: tensor_infos(p.struct_info)[0] for p in module["main"].params}
    specs = {name: (info.static_shape, info.dtype) for name, info in infos.items()}
    inputs = [torch.from_numpy(a) for a in random_inputs(specs, ranges=ranges).values()]
    network = TorchNetwork(module)

    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return network(*inputs)

    return Program("torch", threads, run)


def import_peer(package: str) -> ModuleType:
    """A package of another runtime. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UsageError(f"{package} is not installed", hint=f"pip install {package}") from None
