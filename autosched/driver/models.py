"""What can be built: files and objects, as IRModules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autosched import te
from autosched.errors import CodegenError, InvalidTypeError, InvalidValueError, UsageError
from autosched.ir import IRModule, walk
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.tir import For, LoopKind, PrimFunc, Schedule


def load_model(path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> IRModule:
    """Import a model file; `shapes` fixes dynamic inputs.

    Raises  UsageError for an extension that is not known, ImportModelError for a file that cannot be imported.
    """
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise UsageError(f"cannot import '{path.name}'", hint="models are .onnx files")
    from autosched.frontend.onnx import load_model_file

    return load_model_file(path, shapes)


def as_module(what: Any, args: Sequence[Tensor] | None = None, name: str | None = None) -> IRModule:
    """An IRModule from an IRModule, a schedule, a PrimFunc, or tensors (whose order in the call `args` gives).

    name    of the one function; None: "default_function" for a te schedule, a PrimFunc's own, else "main"
    Raises  TypeError for anything else, ValueError for a te schedule without args.
    """
    if isinstance(what, IRModule):
        return what
    if isinstance(what, Schedule):
        return what.mod
    if isinstance(what, te.Schedule):
        if args is None:
            raise InvalidValueError("a te schedule needs args: the tensors in the order of the function's arguments")
        name = name or "default_function"
        return IRModule({name: te.to_prim_func(what, args, name)})
    if isinstance(what, PrimFunc):
        name = name or str(what.attrs.get("global_symbol") or "main")
        return IRModule({name: what.with_attr("global_symbol", name)})
    if isinstance(what, Tensor):
        what = [what]
    if isinstance(what, Sequence) and what and all(isinstance(t, Tensor) for t in what):
        return as_module(create_prim_func(list(args or what)), name=name)
    raise InvalidTypeError(
        f"cannot build a {type(what).__name__}",
        hint="give an IRModule, a schedule, a PrimFunc or the tensors of an expression",
    )


def join_targets(modules: Mapping[Any, Any], target: Any) -> tuple[IRModule, Any]:
    """(one module, its target) of TVM's dictionary from targets to modules.

    Raises  InvalidValueError for an empty dictionary, UsageError for targets of several kinds.
    """
    targets = [Target(key) for key in modules] if target is None else [Target(target)]
    if not targets:
        raise InvalidValueError("build of an empty dictionary", hint="give {target: module}")
    if len({t.kind.name for t in targets}) > 1:
        kinds = ", ".join(str(t.kind.name) for t in targets)
        raise UsageError(f"one build for targets of several kinds ({kinds})", hint="build each by itself")
    joined = IRModule()
    for module in modules.values():
        joined.update(as_module(module))
    return joined, targets[0]


def refuse_thread_bindings(module: IRModule) -> None:
    """See that no loop is bound to a GPU's grid. Raises CodegenError naming the loop."""
    for gv, function in module.functions_items():
        for node in walk(function.body) if isinstance(function, PrimFunc) else ():
            if isinstance(node, For) and node.kind is LoopKind.THREAD_BINDING:
                raise CodegenError(
                    f"the loop '{node.loop_var.name}' is bound to {node.thread}, which a CPU lacks",
                    where=f"function {gv.name}",
                    hint="use parallel and vectorize for a CPU",
                )
