"""Relay's passes by name, as those of relax; `ABSENT` says which are not here, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import InvalidTypeError, UsageError
from autosched.ir import IRModule
from autosched.ir.transform import Pass, PassInfo, Sequential, absent, graph_pass, module_pass
from autosched.relax import transform as graph
from autosched.relax.rewrite import map_functions
from autosched.relax.transform.dead_code import remove_unused_bindings, remove_unused_functions
from autosched.relax.transform.infer_types import infer_types
from autosched.relax.transform.inline_calls import inline_calls

if TYPE_CHECKING:
    from autosched.ir.transform import PassContext, PassDecorator

_BUILD = "relay.build does it by itself: leave it out"
_BOUND = "functions bind each value to a variable: leave it out"

ABSENT: Mapping[str, str] = {
    **dict.fromkeys(("AlterOpLayout", "FastMath", "CombineParallelConv2D", "CombineParallelDense"), _BUILD),
    **dict.fromkeys(("ToGraphNormalForm", "ToBasicBlockNormalForm", "EtaExpand", "ToCPS", "LazyGradientInit"), _BOUND),
    **dict.fromkeys(
        ("AutoSchedulerLayoutRewrite", "FoldExplicitPadding", "ManifestLifetimes", "SimplifyFCTranspose"), _BUILD
    ),
    **dict.fromkeys(("Conv2dToSparse", "Conv2dToSparse2", "DenseToSparse"), "there are no sparse operators"),
    **dict.fromkeys(
        ("RemoveStandaloneReshapes", "SimplifyExprPostAlterOp"), "SimplifyExpr takes away calls that compute nothing"
    ),
    "AnnotateSpans": "messages name the model's nodes: leave it out",
    "FakeQuantizationToInteger": "relax.transform.IntegerProducts computes quantised products in integers",
    "FlattenAtrousConv": "convolutions take their dilation: leave it out",
    "LambdaLift": "functions inside of functions are not well-formed: make them functions of the module",
    "OutlineCompilerFunctionsWithExistingGlobalSymbols": "relax.transform.RunCodegen calls the library's functions",
    "SplitArgs": "relax.transform.SplitConcats cuts long concatenations",
    "DynamicToStatic": "autosched.build takes sizes that are open, or fixes them with shapes=",
    "CanonicalizeOps": "operators have one form: leave it out",
    "CanonicalizeCast": "SimplifyExpr takes needless casts away",
    "CombineParallelBatchMatmul": "relax.transform.CombineParallelMatmul joins products",
    "Legalize": "relax.transform.LegalizeOps writes operators as loops",
    "PartialEvaluate": "FoldConstant computes what is known",
    "ForwardFoldScaleAxis": "FoldScaleAxis moves scales behind a convolution into its weight",
    "ToMixedLayout": "ConvertLayout takes the layouts that are wanted",
    "PlanDevices": "there is one device: leave it out",
    "AnnotateTarget": "relax.transform.FuseOpsByPattern marks what is for a library",
    "MergeCompilerRegions": "relax.transform.MergeCompositeFunctions joins what is for one library",
    "PartitionGraph": "relax.transform.FuseOpsByPattern makes functions of what is for a library",
    "MergeComposite": "relax.transform.FuseOpsByPattern makes functions of forms",
    "FirstOrderGradient": "relax.transform.Gradient differentiates",
    "Defunctionalization": "functions are called by name: leave it out",
}  # fmt: skip


def InferType() -> Pass:  # noqa: N802
    """Say of every call of a module's function what it returns; all other types are known as they are written."""
    return infer_types


InferTypeLocal = InferType


def ToANormalForm() -> Pass:  # noqa: N802
    """Every nested call gets a variable of its own."""
    return graph.Normalize()


def FoldConstant(fold_qnn: bool = False) -> Pass:  # noqa: N802
    """Compute what depends on constants alone. Raises UsageError for fold_qnn."""
    _refuse("FoldConstant", fold_qnn=fold_qnn)
    return graph.FoldConstant()


def SimplifyInference() -> Pass:  # noqa: N802
    """Make simple operators of batch normalisation and dropout."""
    return graph.DecomposeOpsForInference()


def SimplifyExpr() -> Pass:  # noqa: N802
    """Take away calls that compute nothing, and make one of two moves or casts."""

    def simplify(module: IRModule) -> IRModule:
        return map_functions(graph.remove_identity(module), remove_unused_bindings)

    return graph_pass("SimplifyExpr")(simplify)


def EliminateCommonSubexpr(fskip: Callable[[object], bool] | None = None) -> Pass:  # noqa: N802
    """Compute equal values once, but not the calls that `fskip` holds for."""
    return graph.EliminateCommonSubexpr(skip=fskip)


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:  # noqa: N802
    """Leave out what nothing reads. Raises UsageError for both options."""
    _refuse("DeadCodeElimination", inline_once=inline_once, ignore_impurity=ignore_impurity)
    return graph.DeadCodeElimination()


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Pass:  # noqa: N802
    """Leave out the functions that the entries ("main") do not call."""
    entries = list(entry_functions) if entry_functions is not None else ["main"]
    return graph_pass("RemoveUnusedFunctions")(lambda module: remove_unused_functions(module, entries))


def FuseOps(fuse_opt_level: int = -1) -> Pass:  # noqa: N802
    """Group operators that one kernel computes: legalize, annotate, fuse; at level 0 each keeps its own kernel."""
    steps = [graph.LegalizeOps(), graph.AnnotateTIROpPattern()]
    return Sequential(steps if fuse_opt_level == 0 else [*steps, graph.FuseOps()], name="FuseOps")


def DefuseOps() -> Pass:  # noqa: N802
    """Put what FuseOps has grouped back into the functions around."""
    return graph_pass("DefuseOps")(lambda module: inline_calls(module, lambda f: bool(f.attrs.get("Primitive"))))


def Inline() -> Pass:  # noqa: N802
    """Put functions with the attribute `Inline` in the place of their calls."""
    return graph_pass("Inline")(lambda module: inline_calls(module, lambda f: bool(f.attrs.get("Inline"))))


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:  # noqa: N802
    """Give products and convolutions float16 operands. Raises UsageError for another type and for missing_op_mode."""
    _refuse("ToMixedPrecision", missing_op_mode=missing_op_mode != 1)
    if mixed_precision_type != "float16":
        raise UsageError(f"ToMixedPrecision: type '{mixed_precision_type}'", hint="float16 is known")
    return graph.ToMixedPrecision("float16")


FoldScaleAxis = BackwardFoldScaleAxis = graph.FoldBatchnormToConv2D

_KERNELS = {"NHWC": "HWIO", "NCHW": "OIHW"}


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:  # noqa: N802
    """Let convolutions run in other layouts: `{"nn.conv2d": ["NHWC", "default"]}`, of data and weight."""
    if not isinstance(desired_layouts, Mapping):
        raise InvalidTypeError("ConvertLayout takes {operator: [layout of the data, layout of the weight]}")
    layouts = {}
    for name, (data, *rest) in desired_layouts.items():
        kernel = rest[0] if rest and rest[0] != "default" else _KERNELS.get(data, "default")
        layouts[name if name.startswith("relax.") else f"relax.{name}"] = [data, kernel]
    return graph.ConvertLayout(layouts)


def _refuse(name: str, **given: object) -> None:
    """Raises UsageError naming an option that is set and not available."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{name}: {option} is not available", hint="leave it out")


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent("relay.transform", name, ABSENT)


def function_pass(pass_func: object = None, opt_level: int | None = None, name: str | None = None) -> PassDecorator:
    """TVM's decorator: `(func, mod, ctx) -> func`, or a class with `transform_function`, becomes a pass."""

    def decorate(subject: Any) -> Pass | Callable[..., Pass]:
        if isinstance(subject, type):

            def make(*args: object, **kwargs: object) -> Pass:
                instance = subject(*args, **kwargs)
                return wrap(instance.transform_function, subject.__name__)

            make.__name__, make.__doc__ = subject.__name__, subject.__doc__
            return make
        return wrap(subject, subject.__name__)

    def wrap(function: Callable[..., object], own_name: str) -> Pass:
        def run(mod: IRModule, ctx: PassContext) -> IRModule:
            from autosched.relax import Function

            new = {gv: function(f, mod, ctx) if isinstance(f, Function) else f for gv, f in mod.functions.items()}
            return mod.with_functions(new)

        return Pass(run, PassInfo(opt_level or 0, name or own_name))

    return decorate if pass_func is None else decorate(pass_func)


NAMES = sorted(name for name, made in globals().items() if name[:1].isupper() and callable(made) and name not in (
    "Any", "Callable", "InvalidTypeError", "IRModule", "Mapping", "Pass", "PassInfo", "Sequence", "Sequential",
    "UsageError",
))  # fmt: skip
__all__ = [*NAMES, "Pass", "PassInfo", "Sequential", "function_pass", "module_pass"]
