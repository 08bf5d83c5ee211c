"""What can be built: files and objects, as IRModules."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from autosched import te
from autosched.errors import CodegenError, InvalidTypeError, InvalidValueError, UsageError, WrongInputError
from autosched.ir import IRModule, preorder
from autosched.relax.expr import Function
from autosched.relax.transform.bind_params import BindParams
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.tir import For, LoopKind, PrimFunc, Schedule


def as_module(what: object, args: Sequence[Tensor] | None = None, name: str | None = None) -> IRModule:
    """An IRModule from what can be built.

    what    an IRModule, a schedule, a PrimFunc, a graph function, tensors (whose order in the call `args` gives), a
            function without parameters that gives one of these, a model of `frontend.nn` with its spec as a tuple (or
            as its attribute `spec`), a program of torch.export
    name    of the one function; None: "default_function" for a te schedule, a PrimFunc's own, else "main"
    Raises  TypeError for anything else, ValueError for a te schedule without args.
    """
    if isinstance(what, IRModule):
        return what
    if isinstance(what, Schedule):
        return what.mod
    if isinstance(what, te.Schedule):
        if args is None:
            raise InvalidValueError(
                "lower, build: a te schedule needs args: the tensors in the order of the function's arguments"
            )
        name = name or "default_function"
        return IRModule({name: te.to_prim_func(what, args, name)})
    if isinstance(what, PrimFunc):
        name = name or str(what.attrs.get("global_symbol") or "main")
        return IRModule({name: what.with_attr("global_symbol", name)})
    if isinstance(what, Tensor):
        what = [what]
    if isinstance(what, Function):
        return IRModule({name or str(what.attrs.get("global_symbol") or "main"): what})
    if (model := _from_frontend(what)) is not None:
        return model
    if inspect.isfunction(what):
        return as_module(_called(what), args, name or what.__name__)
    if isinstance(what, Sequence) and what and all(isinstance(t, Tensor) for t in what):
        return as_module(create_prim_func(list(args or what)), name=name)
    raise WrongInputError(f"cannot build a {type(what).__name__}", hint=_hint(what))


def _hint(what: object) -> str:
    """What to do with something that is not built."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(what, torch.nn.Module):
        return "give torch.export.export(model.eval(), (x,)), or call torch.compile(model, backend='autosched')"
    if type(what).__module__.startswith("numba."):
        return "put @autosched.autotune(…) above the function"
    return "give an IRModule, a schedule, a PrimFunc or the tensors of an expression"


def _called(function: FunctionType) -> object:
    """What a te function gives. Raises TypeError where it takes arguments."""
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if needed:
        raise InvalidTypeError(
            f"function {function.__name__} takes {', '.join(needed)}",
            hint="give the tensors that it returns; a Numba function of your own takes @autosched.autotune(…)",
        )
    result = function()
    return list(result) if isinstance(result, tuple) else result


def _from_frontend(what: object) -> IRModule | None:
    """The module of a model of `frontend.nn` with its spec, or of an exported program; None for other things.

    Neither package is imported for it: whoever has such an object has imported its module.
    """
    nn, torch = sys.modules.get("autosched.frontend.nn"), sys.modules.get("torch.export")
    if torch is not None and isinstance(what, torch.ExportedProgram):
        from autosched.frontend.torch import from_exported_program

        exported: IRModule = from_exported_program(what, unwrap_unit_return_tuple=True)
        return exported
    if nn is None:
        return None
    model, spec = what if isinstance(what, tuple) and len(what) == 2 else (what, getattr(what, "spec", None))
    if not isinstance(model, nn.Module):
        return None
    if not isinstance(spec, Mapping):
        raise InvalidTypeError(
            "an nn.Module needs its spec", hint='give (model, {"forward": {"x": nn.spec.Tensor(…)}})'
        )
    module: IRModule
    module, parameters = model.export_tvm(spec)
    known = {name: p.data.numpy() for name, p in parameters if p.data is not None}
    for method in spec if known else ():
        module = BindParams(method, known)(module)
    return module


def join_targets(modules: Mapping[str | Target, object], target: Any) -> tuple[IRModule, Target]:
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
        for node in preorder(function.body) if isinstance(function, PrimFunc) else ():
            if isinstance(node, For) and node.kind is LoopKind.THREAD_BINDING:
                raise CodegenError(
                    f"the loop '{node.loop_var.name}' is bound to {node.thread}, which a CPU lacks",
                    where=f"function {gv.name}",
                    hint="use parallel and vectorize for a CPU",
                )
