"""Model files and objects by name, as IRModules with a graph function `main`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from autosched.driver.example_shapes import fitting
from autosched.driver.models import as_module
from autosched.errors import AutoschedError, ImportModelError, ScriptError, ShapeError, UsageError, WrongInputError
from autosched.frontend.model_name import is_object_name, object_name
from autosched.ir import IRModule, preorder
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Function, Var
from autosched.relax.op.call import call_tir
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.bind_symbolic import bind_function, symbolic_dims
from autosched.runtime.size_expr import format_shapes
from autosched.tir import BufferStore, PrimFunc
from autosched.tir.expr import Var as TirVar
from autosched.tir.expr import const_int

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram

    from autosched.ir.function import BaseFunc
    from autosched.te import Tensor

SIZE_BOUNDS = "size_bounds"  # attribute of main: by symbol the least and the most that an importer knows it to be
SCRIPT_SUFFIXES = (".py", ".tvm", ".tvmscript")
KNOWN = "models are .onnx and .pt2 files, files of TVMScript text (.py, .tvm), and package.module:object"
EXPORT = "torch.export.save(torch.export.export(model, (x,)), 'model.pt2') writes a file with the graph"
CONVERT = "write it as ONNX first: the framework that it comes from, or a converter of it, does that"
HINTS = {  # by the ends of files that are no models here
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".safetensors"), EXPORT),
    **dict.fromkeys(
        (".h5", ".hdf5", ".keras", ".tflite", ".pb", ".xml", ".pdmodel", ".mlmodel", ".caffemodel"), CONVERT
    ),
    **dict.fromkeys((".gz", ".zip", ".xz", ".zst", ".tar", ".tgz"), "unpack it first"),
}
Shapes = Mapping[str, tuple[int, ...]]
Ranges = Mapping[str, tuple[int | range, ...]]


def load_model(path: str | Path, shapes: Shapes | None = None, *, symbolic: bool = False) -> IRModule:
    """Import a model: a file, or an object that a Python module holds ("package.module:object").

    shapes    fixes dynamic inputs
    symbolic  sizes that are not fixed may stay symbols; else they are refused
    Raises  UsageError for what is no model, ImportModelError for a file that cannot be imported, ScriptError for a
            script that is not legal
    """
    if is_object_name(str(path)):
        return as_model(load_object(str(path)), shapes, str(path), symbolic=symbolic)
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        from autosched.frontend.onnx import load_model_file

        return load_model_file(path, shapes, symbolic=symbolic)
    if suffix == ".pt2":
        from autosched.frontend.torch import load_program_file

        if shapes:
            return load_program_file(path, shapes=shapes)
        return as_model(load_program_file(path), None, path.name, symbolic=symbolic)
    if suffix in SCRIPT_SUFFIXES:
        return as_model(read_script(path), shapes, path.name, symbolic=symbolic)
    raise UsageError(f"cannot import '{path.name}'", hint=HINTS.get(suffix, KNOWN))


def load_sized(path: str | Path, shapes: Shapes | None = None) -> IRModule:
    """`load_model` of a model whose sizes are all known.

    Raises as `load_model`; where sizes are missing, the error's hint shows some that the model takes, if any are found.
    """
    try:
        return load_model(path, shapes)
    except ImportModelError as error:
        missing = getattr(error, "shapes", None)  # an OpenShapesError of ONNX models
        if missing is None:
            raise
        found = fitting(missing, lambda tried: load_model(path, {**(shapes or {}), **tried}))
        hint = f'give them, such as --shapes "{format_shapes(found)}"' if found else "give them with --shapes"
        raise type(error)(error.message, where=error.where, hint=hint) from None


def open_model(
    what: object, args: Sequence[Tensor] | None = None, name: str | None = None, shapes: Shapes | None = None,
    *, symbolic: bool = False,
) -> IRModule:  # fmt: skip
    """An IRModule from a model's file, "package.module:object", or what `as_module` takes with `args` and `name`.

    shapes    fixes dynamic inputs of a model
    symbolic  sizes of a model that are not fixed may stay symbols; else they are refused in files
    Raises  as `load_model` and `as_module`; UsageError for `shapes` of what is no model.
    """
    if isinstance(what, str) and not Path(what).suffix and not is_object_name(what):
        raise WrongInputError(f"cannot build the str '{what}'", hint=KNOWN)
    if isinstance(what, str | Path):
        return load_model(what, shapes, symbolic=True) if symbolic else load_sized(what, shapes)
    if is_onnx_model(what):
        from autosched.frontend.onnx import from_onnx

        return from_onnx(what, shape_dict=shapes)
    if shapes and is_program(what):
        from autosched.frontend.torch import from_exported_program

        return from_exported_program(what, unwrap_unit_return_tuple=True, shapes=shapes)
    module = as_module(what, args, name)
    return module if shapes is None else as_model(module, shapes, symbolic=symbolic)


def is_program(what: object) -> TypeGuard[ExportedProgram]:
    """Whether an object is torch's ExportedProgram. PyTorch is not imported for it."""
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(what, export.ExportedProgram)


def is_onnx_model(what: object) -> TypeGuard[onnx.ModelProto]:
    """Whether an object is onnx's ModelProto. The package is not imported for it."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(what, onnx.ModelProto)


def read_script(path: Path) -> IRModule | BaseFunc:
    """The module or function that a file of TVMScript text describes. Raises ScriptError showing line and caret."""
    from autosched.script.parser.module import read_checked  # which other models do not need
    from autosched.script.parser.source import Source

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if path.suffix == ".py" and "ir_module" not in text and "prim_func" not in text and "@R.function" not in text:
        hint = f"name an object of it: {path.stem}:name"
        raise UsageError(f"{path} holds no TVMScript, which is all that is read of such a file", hint=hint)
    source = Source.of(text, str(path))
    read: IRModule | BaseFunc = read_checked(source, {})
    return read


def load_object(name: str) -> Any:
    """The object that "package.module:object" or "file.py:object" names; the working folder is searched, too.

    Raises UsageError where there is none, or where importing its module fails.
    """
    module_name, _, path = object_name(name).partition(":")
    with _working_folder():
        try:
            found = importlib.import_module(module_name)
        except ScriptError:
            raise
        except ImportError as error:
            is_missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
            hint = f"run it in the folder that holds {error.name}, or install it" if is_missing else ""
            raise UsageError(f"cannot import '{module_name}': {error}", hint=hint) from error
        except Exception as error:  # the module's own code
            raise UsageError(f"importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            names = ", ".join(n for n in vars(found) if not n.startswith("_"))
            raise UsageError(f"'{module_name}' has no '{path}'", hint=f"it has {names or 'nothing'}"[:300])
        found = getattr(found, part)
    return found


@contextmanager
def _working_folder() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def as_model(
    what: object, shapes: Shapes | None = None, name: str = "the model", *, symbolic: bool = False
) -> IRModule:
    """A module whose `main` is a graph function.

    A single PrimFunc becomes the only call of `main`; a single graph function of another name becomes `main`.
    Raises UsageError where several functions could be meant, ShapeError for `shapes` that do not fit.
    """
    try:
        module = as_module(what)
    except AutoschedError as error:
        raise type(error)(error.message, where=error.where or name, hint=error.hint) from None
    graphs = {gv.name: f for gv, f in module.functions_items() if isinstance(f, Function) and is_public(f)}
    if not graphs:
        return _around_prim_func(module, name)
    if "main" not in graphs:
        if len(graphs) > 1:
            raise UsageError(f"{name} has several functions: {', '.join(graphs)}", hint="call one of them main")
        ((old, function),) = graphs.items()
        functions = {gv: f for gv, f in module.functions.items() if gv.name != old}
        module = module.with_functions(functions)
        module["main"] = function.with_attr("global_symbol", "main")
    return _with_shapes(module, shapes or {}, symbolic)


def is_public(function: Function) -> bool:
    """Whether a graph function can be called from outside."""
    return not function.attrs.get("Primitive") and "global_symbol" in function.attrs


def _around_prim_func(module: IRModule, name: str) -> IRModule:
    functions = {gv.name: f for gv, f in module.functions_items() if isinstance(f, PrimFunc)}
    if len(functions) != 1 and "main" not in functions:
        raise UsageError(f"{name} has several functions: {', '.join(functions)}", hint="call one of them main")
    own = "main" if "main" in functions else next(iter(functions))
    func = functions[own]
    if len(func.buffers) != len(func.params) or any(const_int(d) is None for b in func.buffers for d in b.shape):
        raise UsageError(f"function '{own}' has symbolic sizes", hint="give constant ones")
    written = {x.buffer for x in preorder(func.body) if isinstance(x, BufferStore)}
    inputs = [b for b in func.buffers if b not in written]
    outputs = func.buffers[len(inputs) :]
    if any(b not in written for b in outputs) or not outputs:
        raise UsageError(f"function '{own}' does not take its inputs first and its outputs last")
    infos = [TensorStructInfo([const_int(d) for d in b.shape], b.dtype) for b in func.buffers]
    params = [Var(b.name, info) for b, info in zip(inputs, infos, strict=False)]
    builder = BlockBuilder()
    with builder.function("main", params):
        gvar = builder.add_func(func.without_attr("global_symbol"), own if own != "main" else "kernel")
        with builder.dataflow():
            out = infos[len(inputs) :]
            result = builder.emit_output(call_tir(gvar, params, out if len(out) > 1 else out[0]))
        builder.emit_func_output(result)
    return builder.get()


def split_ranges(shapes: Ranges | None) -> tuple[dict[str, tuple[int, ...]] | None, Ranges]:
    """(the shapes that are fixed, None where none are given; those with ranges). Raises ShapeError for what is none."""
    if shapes is not None and not isinstance(shapes, Mapping):
        raise UsageError(f"shapes are {shapes!r:.60}", hint='give them by the inputs\' names: {"x": (1, 64)}')
    for name, shape in (shapes or {}).items():
        if bad := next((d for d in shape if isinstance(d, range) and (len(d) == 0 or d.step != 1 or d[0] < 0)), None):
            raise ShapeError(f"input '{name}': {bad} is no range of sizes")
        if any(isinstance(d, range) and len(d) == 0 for d in shape):
            raise ShapeError(f"input '{name}': an empty range of sizes")
    ranged = {n: shape for n, shape in (shapes or {}).items() if any(isinstance(d, range) for d in shape)}
    fixed = {
        n: tuple(int(d) for d in s if not isinstance(d, range)) for n, s in (shapes or {}).items() if n not in ranged
    }
    return fixed or None, ranged


def with_bounds(module: IRModule, ranged: Ranges) -> tuple[IRModule, dict[str, tuple[int, int | None]]]:
    """(the module with the sizes that stand beside ranges bound, the least and largest value of other symbols by name).

    What the model itself says of them, its attribute SIZE_BOUNDS, holds too, and is left out.

    Raises UsageError for an unknown input, ShapeError for a range where the model has no symbol of its own.
    """
    bounds: dict[str, tuple[int, int | None]] = {}
    values: dict[TirVar, int] = {}
    main = module["main"]
    for name, shape in ranged.items():
        info = next((p.struct_info for p in main.params if p.name == name), None)
        if info is None:
            raise UsageError(f"main has no input '{name}'", hint=f"there are {', '.join(p.name for p in main.params)}")
        if not isinstance(info, TensorStructInfo) or info.shape is None or info.ndim != len(shape):
            raise ShapeError(f"input '{name}' is {info}, and not of {len(shape)} dimensions")
        for d, size in zip(info.shape, shape, strict=True):
            if not isinstance(size, range):
                known = values.setdefault(d, int(size)) if isinstance(d, TirVar) else const_int(d)
                if known != size:
                    raise ShapeError(f"input '{name}' is {info}, and not {size} where that is {known or d}")
            elif not isinstance(d, TirVar):
                raise ShapeError(
                    f"input '{name}' is {info}: its dimension {d} is no size that a range can be given for"
                )
            elif bounds.setdefault(d.name, (size[0], size[-1])) != (size[0], size[-1]):
                raise ShapeError(f"input '{name}' bounds '{d.name}' otherwise than another input does")
    for symbol, (low, high) in main.attrs.get(SIZE_BOUNDS, {}).items():
        own = bounds.get(symbol, (1, None))
        bounds[symbol] = (max(own[0], low), high if own[1] is None else own[1] if high is None else min(own[1], high))
    bound = bind_function(main, values) if values else main
    if SIZE_BOUNDS in bound.attrs:
        bound = bound.without_attr(SIZE_BOUNDS)
    if bound is main:
        return module, bounds
    return module.with_functions({**module.functions, module.get_global_var("main"): bound}), bounds


def _with_shapes(module: IRModule, shapes: Shapes, symbolic: bool) -> IRModule:
    """The module with the symbols of `main` bound as `shapes` says."""
    main = module["main"]
    params = {p.name: p for p in main.params}
    if unknown := [n for n in shapes if n not in params]:
        raise UsageError(f"main has no input '{unknown[0]}'", hint=f"there are {', '.join(params)}")
    values: dict[TirVar, int] = {}
    for name, shape in shapes.items():
        info = params[name].struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None or info.ndim != len(shape):
            raise ShapeError(f"input '{name}' is {info}, and not of shape {shape}")
        for d, size in zip(info.shape, shape, strict=True):
            known = const_int(d)
            if isinstance(d, TirVar):
                known = values.setdefault(d, size)
            if known != size:
                raise ShapeError(f"input '{name}' is {info}, and not of shape {shape}")
    if not symbolic and (missing := [v.name for v in symbolic_dims(main) if v not in values]):
        raise UsageError(f"the size of '{missing[0]}' is not known", hint="give the shapes of the inputs")
    if not values:
        return module
    return module.with_functions({**module.functions, module.get_global_var("main"): bind_function(main, values)})
