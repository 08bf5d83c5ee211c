"""Relay's passes by name: relax's where there is one; those that relax does not need leave the module as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.ir import IRModule
from autosched.ir.transform import Pass, PassInfo, Sequential, module_pass
from autosched.relax import transform as graph
from autosched.relax.transform.infer_types import infer_types


def _nothing(name: str, why: str) -> Callable[..., Pass]:
    def make(*args: Any, **kwargs: Any) -> Pass:
        del args, kwargs
        return Pass(_same, PassInfo(0, name))

    make.__name__ = name
    make.__doc__ = f"Leaves the module as it is: {why}."
    return make


def _same(mod: IRModule) -> IRModule:
    return mod


def InferType() -> Pass:  # noqa: N802
    """Say of every call of a module's function what it returns; all other types are known as they are written."""
    return infer_types


InferTypeLocal = InferType
ToGraphNormalForm = _nothing("ToGraphNormalForm", "functions are bound value by value")
ToANormalForm = _nothing("ToANormalForm", "functions are bound value by value already")
ToBasicBlockNormalForm = _nothing("ToBasicBlockNormalForm", "functions are bound value by value already")
DynamicToStatic = _nothing("DynamicToStatic", "shapes are static")
CanonicalizeOps = _nothing("CanonicalizeOps", "operators have one form")
AlterOpLayout = _nothing("AlterOpLayout", "the build chooses layouts")
CanonicalizeCast = _nothing("CanonicalizeCast", "casts have one form")
CombineParallelConv2D = _nothing("CombineParallelConv2D", "the build decides what runs together")
CombineParallelDense = _nothing("CombineParallelDense", "the build decides what runs together")
FastMath = _nothing("FastMath", "the build's functions are its own")
Legalize = _nothing("Legalize", "operators have one form")
PartialEvaluate = _nothing("PartialEvaluate", "functions are inlined where they are called")
ToMixedLayout = _nothing("ToMixedLayout", "the build chooses layouts")
Inline = _nothing("Inline", "functions are inlined where they are called")
SimplifyExpr = _nothing("SimplifyExpr", "the build simplifies by itself")
RemoveUnusedFunctions = _nothing("RemoveUnusedFunctions", "the build leaves out what nothing calls")
DefuseOps = _nothing("DefuseOps", "the build decides what runs together")
EtaExpand = _nothing("EtaExpand", "functions have parameters")
BackwardFoldScaleAxis = _nothing("BackwardFoldScaleAxis", "the build folds scales")
ForwardFoldScaleAxis = _nothing("ForwardFoldScaleAxis", "the build folds scales")
PlanDevices = _nothing("PlanDevices", "there is one device")


def FoldConstant(fold_qnn: bool = False) -> Pass:  # noqa: N802
    """Compute what depends on constants alone."""
    del fold_qnn
    return graph.FoldConstant()


def SimplifyInference() -> Pass:  # noqa: N802
    """Make simple operators of batch normalisation and dropout."""
    return graph.DecomposeOpsForInference()


def EliminateCommonSubexpr(fskip: Any = None) -> Pass:  # noqa: N802
    """Compute equal values once."""
    del fskip
    return graph.EliminateCommonSubexpr()


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:  # noqa: N802
    """Leave out what nothing reads."""
    del inline_once, ignore_impurity
    return graph.DeadCodeElimination()


def FuseOps(fuse_opt_level: int = -1) -> Pass:  # noqa: N802
    """Group operators that one kernel computes: legalise, annotate, fuse."""
    del fuse_opt_level
    return Sequential([graph.LegalizeOps(), graph.AnnotateTIROpPattern(), graph.FuseOps()], name="FuseOps")


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:  # noqa: N802
    """Give products and convolutions float16 operands."""
    del missing_op_mode
    return graph.ToMixedPrecision("float32" if mixed_precision_type == "float32" else "float16")


FoldScaleAxis = graph.FoldBatchnormToConv2D


def ConvertLayout(desired_layouts: Any) -> Pass:  # noqa: N802
    """Leaves the module as it is: the build chooses layouts."""
    del desired_layouts
    return Pass(_same, PassInfo(0, "ConvertLayout"))


def function_pass(pass_func: Any = None, opt_level: int | None = None, name: str | None = None) -> Any:
    """TVM's decorator: `(func, mod, ctx) -> func`, or a class with `transform_function`, becomes a pass."""

    def decorate(subject: Any) -> Any:
        if isinstance(subject, type):

            def make(*args: Any, **kwargs: Any) -> Pass:
                instance: Any = subject(*args, **kwargs)
                return wrap(instance.transform_function, subject.__name__)

            make.__name__, make.__doc__ = subject.__name__, subject.__doc__
            return make
        return wrap(subject, subject.__name__)

    def wrap(function: Callable[..., Any], own_name: str) -> Pass:
        def run(mod: IRModule, ctx: Any) -> IRModule:
            from autosched.relax import Function

            new = {gv: function(f, mod, ctx) if isinstance(f, Function) else f for gv, f in mod.functions.items()}
            return mod.with_functions(new)

        return Pass(run, PassInfo(opt_level or 0, name or own_name))

    return decorate if pass_func is None else decorate(pass_func)


__all__ = [name for name in dir() if name[:1].isupper()] + ["function_pass", "module_pass"]
