"""A pass is a promise: on a small module each one visibly does what its name says, or refuses what it verifies."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax, relay, tir
from autosched.errors import VerifyError
from autosched.ir import IRModule, preorder
from autosched.ir.transform import Pass, Sequential
from autosched.relax import op
from autosched.relax.dpl import is_op, wildcard
from autosched.relax.expr import Call, DataflowBlock, Function, TupleGetItem
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.script import from_source
from autosched.tir import Allocate, Block, Evaluate, SeqStmt, call_intrin, const
from tests.codegen.lower import test_device_passes as device
from tests.codegen.lower.test_tvm_passes import BLOCKS, CASES, COPY, func
from tests.relax.transform.graphs import Weights, calls, graph
from tests.relax.transform.test_fuse_byte_attention import Model

W = Weights()
PACKAGES: dict[str, ModuleType] = {
    "tir": tir.transform, "relax": relax.transform, "relay": relay.transform,
}  # fmt: skip
Shows = Callable[[IRModule, IRModule], object]
REFUSES: Shows = lambda old, new: False  # noqa: E731  (what is verified does not hold)


def passes() -> Iterator[str]:
    """The public passes by package: functions that are named as TVM names its passes."""
    for package, module in PACKAGES.items():
        for name in dir(module):
            if name[0].isupper() and inspect.isfunction(getattr(module, name)):
                yield f"{package}.{name}"


def scripted(body: str, params: str = 'x: R.Tensor((2, 3), "float32")') -> IRModule:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return IRModule({"main": from_source(f"@R.function\ndef main({params}):\n{lines}\n")})


SIX = 'R.Tensor((2, 3), "float32")'


def product(*lines: str) -> str:
    """A dataflow block whose last line binds y, which is returned."""
    return "\n".join(["with R.dataflow():", *(f"    {x}" for x in lines), "    R.output(y)", "return y"])


def three(*shapes: tuple[int, ...]) -> str:
    """Parameters x, a and b."""
    return ", ".join(f'{name}: R.Tensor({shape}, "float32")' for name, shape in zip("xab", shapes, strict=True))


def sizes(module: IRModule) -> list[int]:
    """The numbers of elements that the bindings of `main` compute."""
    return [math.prod(b.var.struct_info.static_shape) for b in module["main"].bindings()]


def calling(call: str, params: str, body: str, result: str) -> IRModule:
    """`main` gives what a call of the private function `f` gives."""
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: {SIX}):
        cls = Module
        r = {call}
        return r
    @R.function(private=True)
    def f({params}) -> {result}:
        {body}
""")


def typed(dtypes: dict[str, tuple[tuple[int, ...], str]], build: Callable[..., Any]) -> IRModule:
    """Like `graph`, of parameters of other types than float32."""
    params = [relax.Var(name, TensorStructInfo(shape, dtype)) for name, (shape, dtype) in dtypes.items()]
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            result = bb.emit_output(build(bb, *params))
        bb.emit_func_output(result)
    return bb.get()


def dequantised(bb: relax.BlockBuilder, q: Any) -> Any:
    whole = bb.emit(op.subtract(bb.emit(op.astype(q, "int32")), relax.const(np.asarray(3, "int32"))))
    return bb.emit(op.multiply(bb.emit(op.astype(whole, "float32")), relax.const(np.asarray(0.1, "float32"))))


def has(*names: str) -> Shows:
    """The new module calls these operators, and the old one did not all of them."""
    return lambda old, new: set(names) <= set(calls(new)) and not set(names) <= set(calls(old))


def lacks(*names: str) -> Shows:
    return lambda old, new: set(names) <= set(calls(old)) and not set(names) & set(calls(new))


def fewer(name: str) -> Shows:
    return lambda old, new: 0 < calls(new).count(name) < calls(old).count(name)


def fewer_calls(old: IRModule, new: IRModule) -> bool:
    return 0 < len(calls(new)) < len(calls(old))


def dtypes_in(module: IRModule) -> set[str]:
    return {i.dtype for b in module["main"].bindings() for i in tensor_infos(b.value.struct_info)}


def blocks(module: IRModule) -> int:
    return sum(isinstance(b, DataflowBlock) for b in module["main"].body.blocks)


def names(module: IRModule) -> set[str]:
    return {gv.name for gv in module.get_global_vars()}


def after(module: IRModule, *steps: Pass) -> IRModule:
    for step in steps:
        module = step(module)
    return module


def attention(bb: Any, q: Any, k: Any, v: Any) -> Any:
    scores = bb.emit(op.multiply(bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, [0, 1, 3, 2])))), relax.const(0.5)))
    return op.matmul(bb.emit(op.nn.softmax(scores, axis=-1)), v)


def prim(body: Any) -> IRModule:
    return IRModule({"main": body})


def with_statement(statement: Any) -> IRModule:
    f = func(COPY)
    return prim(f.with_body(SeqStmt((statement, f.body))))


def twice_introduced() -> IRModule:
    f = func(COPY)
    return prim(f.with_body(SeqStmt((f.body, f.body))))


def undefined_store() -> Any:
    store = next(x for x in preorder(func(COPY).body) if isinstance(x, tir.BufferStore))
    return tir.BufferStore(store.buffer, call_intrin("float32", "undef"), (const(0), const(0)))


def statements(old: IRModule, new: IRModule) -> bool:
    return isinstance(old["main"].body, SeqStmt) and not isinstance(new["main"].body, SeqStmt)


def exp_relu() -> IRModule:
    return scripted("with R.dataflow():\n    a = R.exp(x)\n    b = R.nn.relu(a)\n    R.output(b)\nreturn b")


def conv(**options: Any) -> Callable[[], IRModule]:
    return lambda: graph({"x": (1, 4, 6, 6)}, lambda bb, x: op.nn.conv2d(x, W(4, 4, 3, 3), **options))


def normalised() -> IRModule:
    def build(bb: Any, x: Any) -> Any:
        first = bb.emit(op.nn.conv2d(x, W(4, 4, 3, 3)))
        norm = bb.emit(op.nn.batch_norm(first, W(4), W(4), W(4), W.positive(4), training=False))
        return bb.emit(TupleGetItem(norm, 0))

    return graph({"x": (1, 4, 6, 6)}, build)


def two_convs() -> IRModule:
    return graph(
        {"x": (1, 16, 6, 6)},
        lambda bb, x: op.nn.conv2d(bb.emit(op.nn.conv2d(x, W(16, 16, 3, 3))), W(16, 16, 3, 3)),
    )


def weights_transposed() -> IRModule:
    mod = scripted(
        "with R.dataflow():\n    a = R.permute_dims(w)\n    b = R.matmul(x, a)\n    R.output(b)\nreturn b",
        'x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32")',
    )
    return IRModule({"main": mod["main"].with_attr("num_input", 1)})


def marked() -> IRModule:
    form = is_op("relax.nn.relu")(is_op("relax.exp")(wildcard()))
    return relax.transform.FuseOpsByPattern([("passes.exp_relu", form)], annotate_codegen=True)(exp_relu())


def composites() -> IRModule:
    forms = [("passes.exp", is_op("relax.exp")(wildcard())), ("passes.relu", is_op("relax.nn.relu")(wildcard()))]
    return relax.transform.FuseOpsByPattern(forms)(exp_relu())


def generate(functions: Any, options: Any, constants: Any) -> Any:
    return [{f.attrs["global_symbol"]: lambda x, out: out.copyfrom(x) for f in functions}]


def pair_result() -> IRModule:
    bb = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo((2, 3), "float32"))
    with bb.function("main"):
        with bb.dataflow():
            result = bb.emit_output(relax.Tuple((bb.emit(op.exp(x)), bb.emit(op.tanh(x)))))
        bb.emit_func_output(result, [x])
    return bb.get()


def called(attribute: str) -> IRModule:
    inner = exp_relu()["main"].with_attr(attribute, 1)
    x = relay.var("x", shape=(2, 3))
    return IRModule({"inner": inner, "main": relay.Function([x], relay.exp(relay.Call(relay.GlobalVar("inner"), [x])))})


def quantised(bb: Any, x: Any) -> Any:
    return op.matmul(dequantised(bb, x), dequantised(bb, relax.const(np.arange(12, dtype="int8").reshape(4, 3))))


def legal() -> IRModule:
    return relax.transform.LegalizeOps()(exp_relu())


def kinds(module: IRModule) -> set[str]:
    return {str(f.attrs["op_pattern"]) for _, f in module.functions_items() if "op_pattern" in f.attrs}


WORK = ""  # the test's folder


def tuned() -> IRModule:
    module = legal()
    with autosched.target.Target("llvm -num-cores=2"):
        relax.transform.MetaScheduleTuneIRMod({}, WORK, 2)(module)
    return module


R, Y = relax.transform, relay.transform
RELAX: dict[str, tuple[Callable[[], Pass], Callable[[], IRModule], Shows]] = {
    "AddBytes": (
        R.AddBytes,
        lambda: typed({"x": ((4, 5), "float32"), "q": ((4, 5), "uint8")},
                      lambda bb, x, q: op.add(bb.emit(op.nn.relu(x)), dequantised(bb, q))),
        has("add_dequantised"),
    ),
    "AnnotateTIROpPattern": (R.AnnotateTIROpPattern, legal, lambda old, new: not kinds(old) and kinds(new)),
    "AttachGlobalSymbol": (
        R.AttachGlobalSymbol, lambda: IRModule({"main": exp_relu()["main"].without_attr("global_symbol")}),
        lambda old, new: new["main"].attrs["global_symbol"] == "main",
    ),
    "BindParams": (
        lambda: R.BindParams("main", {"x": np.ones((2, 3), "float32")}), exp_relu,
        lambda old, new: len(old["main"].params) == 1 and not new["main"].params,
    ),
    "BindSymbolicVars": (
        lambda: R.BindSymbolicVars({"n": 4}),
        lambda: scripted("y = R.exp(x)\nreturn y", 'x: R.Tensor(("n", 3), "float32")'),
        lambda old, new: new["main"].params[0].struct_info.static_shape == (4, 3),
    ),
    "BundleModelParams": (
        R.BundleModelParams, weights_transposed,
        lambda old, new: isinstance(new["main"].params[1].struct_info, relax.TupleStructInfo),
    ),
    "CanonicalizeBindings": (
        R.CanonicalizeBindings, lambda: scripted("a = R.exp(x)\nb = a\nc = R.nn.relu(b)\nreturn c"),
        lambda old, new: (len(list(old["main"].bindings())), len(list(new["main"].bindings()))) == (3, 2),
    ),
    "ChooseLayouts": (R.ChooseLayouts, two_convs, has("layout_transform")),
    "AdjustMatmulOrder": (
        R.AdjustMatmulOrder,
        lambda: scripted(product("w = R.matmul(a, b)", "y = R.matmul(x, w)"), three((3,), (3, 1), (1, 9))),
        lambda old, new: (sizes(old), sizes(new)) == ([27, 9], [1, 9]),
    ),
    "ExpandMatmulOfSum": (
        R.ExpandMatmulOfSum,
        lambda: scripted(product("w = R.add(a, b)", "y = R.matmul(x, w)"), three((2, 3), (3, 4), (3, 4))),
        lambda old, new: (sizes(old), sizes(new)) == ([12, 8], [8, 8, 8]),
    ),
    "ReorderPermuteDimsAfterConcat": (
        R.ReorderPermuteDimsAfterConcat,
        lambda: scripted(product("a = R.permute_dims(x)", "b = R.permute_dims(x)", "y = R.concat((a, b), axis=0)")),
        lambda old, new: (sizes(old), sizes(new)) == ([6, 6, 12], [12, 12]),
    ),
    "ReorderTakeAfterMatmul": (
        R.ReorderTakeAfterMatmul, lambda: scripted(product("w = R.take(a, i, axis=1)", "y = R.matmul(x, w)"),
            'x: R.Tensor((2, 3), "float32"), a: R.Tensor((3, 7), "float32"), i: R.Tensor((4,), "int64")'),
        lambda old, new: (sizes(old), sizes(new)) == ([12, 8], [14, 8]),
    ),
    "ExpandTupleArguments": (
        R.ExpandTupleArguments, lambda: calling("cls.f((x, x))", f"t: R.Tuple({SIX}, {SIX})", "return t[0]", SIX),
        lambda old, new: (len(old["f"].params), len(new["f"].params)) == (1, 2),
    ),
    "RemoveUnusedParameters": (
        R.RemoveUnusedParameters, lambda: calling("cls.f(x, x)", f"a: {SIX}, b: {SIX}", "return a", SIX),
        lambda old, new: (len(old["f"].params), len(new["f"].params)) == (2, 1),
    ),
    "RemoveUnusedOutputs": (
        R.RemoveUnusedOutputs,
        lambda: calling("cls.f(x)[0]", f"a: {SIX}", "b = R.exp(a)\n        return (a, b)", f"R.Tuple({SIX}, {SIX})"),
        lambda old, new: not list(new["f"].bindings()) and list(old["f"].bindings()),
    ),
    "UpdateParamStructInfo": (
        lambda: R.UpdateParamStructInfo(lambda v: TensorStructInfo((5, 3), "float32")),
        lambda: scripted(product("y = R.exp(x)")), lambda old, new: (sizes(old), sizes(new)) == ([6], [15]),
    ),
    "CombineParallelMatmul": (
        R.CombineParallelMatmul,
        lambda: graph({"x": (4, 5)}, lambda bb, x: (op.matmul(x, W(5, 3)), op.matmul(x, W(5, 6)))), fewer("matmul"),
    ),
    "ConvertLayout": (
        lambda: R.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}), conv(), has("permute_dims"),
    ),
    "ConvertToDataflow": (
        R.ConvertToDataflow, lambda: scripted("a = R.exp(x)\nb = R.nn.relu(a)\nreturn b"),
        lambda old, new: (blocks(old), blocks(new)) == (0, 1),
    ),
    "CopyOutputs": (
        R.CopyOutputs, lambda: scripted("a = R.exp(x)\nreturn (a, x)"), lambda old, new: len(calls(new)) > 1,
    ),
    "DeadCodeElimination": (
        R.DeadCodeElimination,
        lambda: scripted("with R.dataflow():\n    a = R.exp(x)\n    b = R.tanh(x)\n    R.output(b)\nreturn b"),
        lacks("exp"),
    ),
    "DecomposeOpsForInference": (R.DecomposeOpsForInference, normalised, lacks("nn.batch_norm")),
    "DecomposeOpsForTraining": (R.DecomposeOpsForTraining, normalised, has("variance")),
    "EliminateCommonSubexpr": (
        R.EliminateCommonSubexpr,
        lambda: graph({"x": (2, 3)}, lambda bb, x: op.add(bb.emit(op.exp(x)), bb.emit(op.exp(x)))), fewer("exp"),
    ),
    "FastMathTransform": (R.FastMathTransform, exp_relu, lacks("exp")),
    "FuseTransposeMatmul": (
        R.FuseTransposeMatmul,
        lambda: graph({"x": (4, 5)}, lambda bb, x: op.matmul(x, bb.emit(op.permute_dims(W(3, 5))))), lacks("matmul"),
    ),
    "NormalizeGlobalVar": (
        R.NormalizeGlobalVar, lambda: IRModule({"other": exp_relu()["main"]}),
        lambda old, new: "main" not in old and "main" in new,
    ),
    "RemoveRedundantReshape": (
        R.RemoveRedundantReshape,
        lambda: graph({"x": (2, 3)}, lambda bb, x: op.reshape(bb.emit(op.reshape(x, (6,))), (3, 2))), fewer("reshape"),
    ),
    "RewriteDataflowReshape": (
        R.RewriteDataflowReshape,
        lambda: R.LegalizeOps()(graph({"x": (2, 3)}, lambda bb, x: op.exp(bb.emit(op.reshape(x, (6,)))))),
        lambda old, new: "R.reshape" not in old.script() and "R.reshape" in new.script(),
    ),
    "ConvolvePlanes": (
        R.ConvolvePlanes, lambda: graph({"x": (1, 4, 3, 5, 5)}, lambda bb, x: op.nn.conv3d(x, W(4, 4, 1, 3, 3))),
        lacks("nn.conv3d"),
    ),
    "ConvolveRows": (
        lambda: Sequential([R.ConvolveRows(8), R.DeadCodeElimination()]),
        lambda: graph(
            {"x": (1, 4, 5, 8)},
            lambda bb, x: op.permute_dims(
                op.nn.conv2d(op.permute_dims(x, axes=(0, 3, 1, 2)), W(8, 1, 3, 3), groups=8), axes=(0, 2, 3, 1)
            ),
        ),
        lacks("permute_dims"),
    ),
    "ExpandConvolutions": (
        R.ExpandConvolutions, lambda: graph({"x": (1, 4, 9)}, lambda bb, x: op.nn.conv1d(x, W(4, 4, 3))),
        lacks("nn.conv1d"),
    ),
    "FindGelu": (
        R.FindGelu,
        lambda: graph({"x": (2, 3)}, lambda bb, x: op.multiply(
            bb.emit(op.multiply(x, relax.const(0.5))),
            bb.emit(op.add(bb.emit(op.erf(bb.emit(op.multiply(x, relax.const(0.5**0.5))))), relax.const(1.0))),
        )),
        has("nn.gelu"),
    ),
    "FindNorms": (
        R.FindNorms,
        lambda: graph({"x": (2, 3)}, lambda bb, x: op.divide(x, bb.emit(op.sqrt(bb.emit(op.add(
            bb.emit(op.mean(bb.emit(op.multiply(x, x)), axis=-1, keepdims=True)), relax.const(1e-5),
        )))))),
        has("nn.rms_norm"),
    ),
    "FlattenMeans": (
        R.FlattenMeans, lambda: graph({"x": (2, 6, 5, 7)}, lambda bb, x: op.mean(x, axis=(2, 3))), has("reshape"),
    ),
    "FlattenRows": (
        R.FlattenRows, lambda: graph({"x": (2, 3, 5)}, lambda bb, x: op.matmul(x, W(5, 4))), has("reshape"),
    ),
    "FoldBatchnormToConv2D": (
        lambda: Sequential([R.FoldBatchnormToConv2D(), R.DeadCodeElimination()]),
        lambda: after(normalised(), R.DecomposeOpsForInference()), fewer_calls,
    ),
    "FoldConstant": (
        R.FoldConstant, lambda: graph({"x": (2, 3)}, lambda bb, x: op.add(x, bb.emit(op.exp(W(2, 3))))), lacks("exp"),
    ),
    "FuseAttention": (
        R.FuseAttention, lambda: graph(dict.fromkeys("qkv", (1, 2, 4, 8)), attention), has("nn.attention"),
    ),
    "FuseByteAttention": (
        lambda: R.FuseByteAttention(lambda rows, keys: True), lambda: Model(32, 64).module(), has("nn.attention_bytes"),
    ),
    "FuseOps": (
        R.FuseOps, lambda: after(legal(), R.AnnotateTIROpPattern()), fewer_calls,
    ),
    "FuseOpsByPattern": (
        lambda: R.FuseOpsByPattern([("passes.exp", is_op("relax.exp")(wildcard()))]), exp_relu,
        lambda old, new: len(names(new)) > len(names(old)),
    ),
    "FuseTIR": (
        R.FuseTIR, lambda: after(legal(), R.AnnotateTIROpPattern(), R.FuseOps()),
        lambda old, new: sum(isinstance(f, Function) for _, f in new.functions_items()) == 1,
    ),
    "Gradient": (
        lambda: R.Gradient("main"), lambda: graph({"x": (2, 3)}, lambda bb, x: op.sum(bb.emit(op.exp(x)))),
        lambda old, new: names(new) - names(old) == {"main_adjoint"},
    ),
    "InlinePrivateFunctions": (
        R.InlinePrivateFunctions, lambda: after(legal(), R.AnnotateTIROpPattern(), R.FuseOps()),
        lambda old, new: sum(isinstance(f, Function) for _, f in new.functions_items()) == 1,
    ),
    "IntegerProducts": (
        R.IntegerProducts, lambda: typed({"x": ((2, 4), "uint8")}, quantised),
        lambda old, new: any(b.value.op_name == "relax.matmul" and b.value.args[0].struct_info.dtype == "uint8"
                             for b in new["main"].bindings() if isinstance(b.value, Call)),
    ),
    "KeepBytes": (
        R.KeepBytes,
        lambda: typed({"x": ((1, 2, 4, 4), "uint8")}, lambda bb, x: op.nn.max_pool2d(dequantised(bb, x), pool_size=2)),
        lambda old, new: any(b.value.op_name == "relax.nn.max_pool2d" and b.value.struct_info.dtype == "uint8"
                             for b in new["main"].bindings() if isinstance(b.value, Call)),
    ),
    "LegalizeKernels": (R.LegalizeKernels, exp_relu, lacks("nn.relu")),
    "LegalizeOps": (R.LegalizeOps, exp_relu, lacks("nn.relu")),
    "LiftTransformParams": (R.LiftTransformParams, weights_transposed, lacks("permute_dims")),
    "MergeCompositeFunctions": (
        R.MergeCompositeFunctions, composites,
        lambda old, new: any("Codegen" in f.attrs for _, f in new.functions_items()),
    ),
    "MetaScheduleApplyDatabase": (
        lambda: R.MetaScheduleApplyDatabase(WORK), tuned, lambda old, new: new.script() != old.script(),
    ),
    "MetaScheduleTuneIRMod": (
        lambda: R.MetaScheduleTuneIRMod({}, WORK, 2), legal, lambda old, new: list(records_in(WORK)),
    ),
    "MetaScheduleTuneTIR": (
        lambda: R.MetaScheduleTuneTIR(WORK, 2), legal, lambda old, new: list(records_in(WORK)),
    ),
    "NarrowProducts": (
        lambda: R.NarrowProducts(lambda weight, strides, groups: True), conv(),
        lambda old, new: "bfloat16" in dtypes_in(new) - dtypes_in(old),
    ),
    "Normalize": (
        R.Normalize, lambda: nested(), lambda old, new: len(calls(new)) > len(calls(old)),
    ),
    "OptimizeLayoutTransform": (
        R.OptimizeLayoutTransform,
        lambda: scripted(
            'a = R.layout_transform(x, src_layout="NCHW", dst_layout="NCHW4c")\n'
            'b = R.layout_transform(a, src_layout="NCHW4c", dst_layout="NCHW")\nc = R.add(b, b)\nreturn c',
            'x: R.Tensor((1, 8, 2, 2), "float32")'),
        lacks("layout_transform"),
    ),
    "PackWeights": (
        R.PackWeights, lambda: graph({"x": (2, 64)}, lambda bb, x: op.matmul(x, W(64, 8))), has("nn.matmul_nbits"),
    ),
    "RemoveIdentity": (
        lambda: Sequential([R.RemoveIdentity(), R.DeadCodeElimination()]),
        lambda: graph({"x": (2, 3)}, lambda bb, x: op.exp(bb.emit(op.reshape(bb.emit(op.reshape(x, (6,))), (2, 3))))),
        lacks("reshape"),
    ),
    "RemovePurityChecking": (
        R.RemovePurityChecking, exp_relu, lambda old, new: new["main"].attrs["relax.force_pure"],
    ),
    "RunCodegen": (R.RunCodegen, marked, has("call_dps_packed")),
    "SharePositions": (
        R.SharePositions,
        lambda: graph({"x": (4, 3)}, lambda bb, x: op.gather_elements(
            x, bb.emit(op.broadcast_to(relax.const(np.array([[1], [0]])), relax.ShapeExpr((2, 3)))), axis=0)),
        has("take_along_axis"),
    ),
    "SinkViews": (
        R.SinkViews,
        lambda: graph({"x": (6, 5)},
                      lambda bb, x: op.nn.relu(bb.emit(op.reshape(bb.emit(op.matmul(x, W(5, 4))), (2, 3, 4))))),
        lambda old, new: calls(old)[-1] == "nn.relu" and calls(new)[-1] == "reshape",
    ),
    "SliceInputs": (
        R.SliceInputs,
        lambda: graph({"x": (4, 3)}, lambda bb, x: relax.TupleGetItem(bb.emit(op.split(x, 2)), 1)),
        has("strided_slice"),
    ),
    "SliceSplits": (
        R.SliceSplits,
        lambda: graph({"x": (4, 16)}, lambda bb, x: relax.TupleGetItem(bb.emit(op.split(bb.emit(op.exp(x)), 2)), 1)),
        has("strided_slice"),
    ),
    "SliceTakes": (
        R.SliceTakes,
        lambda: graph({"x": (4, 3)}, lambda bb, x: op.take(x, relax.const(np.array([1, 0, 1, 2])), axis=0)),
        has("strided_slice"),
    ),
    "SplitConcats": (
        R.SplitConcats,
        lambda: graph({"x": (2, 3)}, lambda bb, x: op.concat(relax.Tuple((x,) * 300), axis=0)),
        lambda old, new: len(calls(new)) > len(calls(old)) == 1,
    ),
    "SplitProducts": (
        R.SplitProducts,
        lambda: graph({"x": (2, 5)}, lambda bb, x: op.split(bb.emit(op.permute_dims(
            bb.emit(op.reshape(bb.emit(op.matmul(x, W(5, 192))), (2, 3, 2, 32))), (1, 2, 0, 3),
        )), 3, axis=0)),
        lambda old, new: len(calls(new)) > len(calls(old)),
    ),
    "SumConvolutions": (
        R.SumConvolutions,
        lambda: graph({"x": (1, 2, 3, 3)}, lambda bb, x: op.add(*(op.nn.conv2d(x, W(2, 2, 1, 1)) for _ in range(2)))),
        lambda old, new: calls(new)[-1] == "nn.conv2d" != calls(old)[-1],
    ),
    "ToMixedPrecision": (
        lambda: R.ToMixedPrecision("float16"), conv(), lambda old, new: "float16" in dtypes_in(new) - dtypes_in(old),
    ),
    "ToNonDataflow": (R.ToNonDataflow, exp_relu, lambda old, new: (blocks(old), blocks(new)) == (1, 0)),
    "TopologicalSort": (
        lambda: R.TopologicalSort("breadth-first", "from-inputs"),
        lambda: scripted("with R.dataflow():\n    a = R.exp(x)\n    b = R.exp(a)\n    c = R.tanh(x)\n"
                         "    d = R.add(b, c)\n    R.output(d)\nreturn d"),
        lambda old, new: sorted(calls(old)[:2]) != sorted(calls(new)[:2]),
    ),
    "UnpackResult": (
        R.UnpackResult, pair_result, lambda old, new: isinstance(new["main"].body.body, relax.Tuple),
    ),
    "WidenBytes": (
        R.WidenBytes,
        lambda: typed(
            {"x": ((8, 4), "uint8")},
            lambda bb, x: op.matmul(x, relax.const(np.ones((4, 3), np.int8)), out_dtype="int32"),
        ),
        has("astype"),
    ),
    "WidenHalves": (
        R.WidenHalves,
        lambda: typed({"x": ((2, 3), "float16")}, lambda bb, x: op.exp(bb.emit(op.tanh(x)))), has("astype"),
    ),
}  # fmt: skip


def records_in(folder: str) -> Iterator[Any]:
    yield from autosched.meta_schedule.database.JSONDatabase(work_dir=folder).get_all_tuning_records()


def nested() -> IRModule:
    x = relax.Var("x", TensorStructInfo((2, 3), "float32"))
    return IRModule({"main": Function([x], relax.SeqExpr([], op.exp(op.tanh(x))))})


RELAY: dict[str, tuple[Callable[[], Pass], Callable[[], IRModule], Shows]] = {
    "BackwardFoldScaleAxis": (
        lambda: Sequential([Y.BackwardFoldScaleAxis(), Y.DeadCodeElimination()]), *RELAX["FoldBatchnormToConv2D"][1:],
    ),
    "ConvertLayout": (lambda: Y.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), *RELAX["ConvertLayout"][1:]),
    "DeadCodeElimination": (Y.DeadCodeElimination, *RELAX["DeadCodeElimination"][1:]),
    "DefuseOps": (
        Y.DefuseOps, lambda: Y.FuseOps()(exp_relu()), lambda old, new: len(names(new)) < len(names(old)),
    ),
    "EliminateCommonSubexpr": (Y.EliminateCommonSubexpr, *RELAX["EliminateCommonSubexpr"][1:]),
    "FoldConstant": (Y.FoldConstant, *RELAX["FoldConstant"][1:]),
    "FoldScaleAxis": (
        lambda: Sequential([Y.FoldScaleAxis(), Y.DeadCodeElimination()]), *RELAX["FoldBatchnormToConv2D"][1:],
    ),
    "FuseOps": (Y.FuseOps, exp_relu, lambda old, new: len(calls(new)) == 1 and len(calls(old)) == 2),
    "InferType": (Y.InferType, lambda: untyped(), lambda old, new: type_of(old) != type_of(new)),
    "InferTypeLocal": (Y.InferTypeLocal, lambda: untyped(), lambda old, new: type_of(old) != type_of(new)),
    "Inline": (Y.Inline, lambda: called("Inline"), lambda old, new: names(new) == {"main"}),
    "RemoveUnusedFunctions": (
        Y.RemoveUnusedFunctions, lambda: IRModule({"main": exp_relu()["main"], "other": exp_relu()["main"]}),
        lambda old, new: names(new) == {"main"},
    ),
    "SimplifyExpr": (Y.SimplifyExpr, *RELAX["RemoveIdentity"][1:]),
    "SimplifyInference": (Y.SimplifyInference, *RELAX["DecomposeOpsForInference"][1:]),
    "ToANormalForm": (Y.ToANormalForm, *RELAX["Normalize"][1:]),
    "ToMixedPrecision": (Y.ToMixedPrecision, *RELAX["ToMixedPrecision"][1:]),
}  # fmt: skip


def untyped() -> IRModule:
    x = relay.var("x", shape=(2, 3))
    return IRModule(
        {"inner": exp_relu()["main"], "main": relay.Function([x], relay.Call(relay.GlobalVar("inner"), [x]))}
    )


def type_of(module: IRModule) -> list[object]:
    return [str(b.value.struct_info) for b in module["main"].bindings()]


def opaque(old: IRModule, new: IRModule) -> bool:
    return not any(isinstance(x, Block) and x.iter_vars for x in preorder(new["main"].body))


def ranks(module: IRModule) -> int:
    return max(x.buffer.ndim for x in preorder(module["main"].body) if isinstance(x, Allocate))


def custom_intrinsic() -> IRModule:
    autosched.ir.register_op_attr("tir.passes_twice", "TCallEffectKind", 1)
    autosched.ir.register_intrin_lowering("tir.passes_twice", target="llvm", f=lambda c: c.args[0] * 2, level=99)
    f = func(COPY)
    store = next(x for x in preorder(f.body) if isinstance(x, tir.BufferStore))
    value = call_intrin("float32", "tir.passes_twice", tir.const(1.0, "float32"))
    return prim(f.with_body(tir.BufferStore(store.buffer, value, (const(0), const(0)))))


def on_gpu(made: Pass) -> Callable[[IRModule], IRModule]:
    def run(module: IRModule) -> IRModule:
        with autosched.target.Target("cuda"):
            return made(module)

    return run


def intrinsics(module: IRModule) -> int:
    return sum(isinstance(x, tir.Call) for x in preorder(module["main"].body))


T = tir.transform
TIR: dict[str, tuple[Callable[[], Pass], Callable[[], IRModule], Shows]] = {
    name: (getattr(T, name), lambda f=f: prim(f), lambda old, new, s=shows: s(old["main"], new["main"]))
    for name, (f, shows) in CASES.items()
} | {
    "AnnotateEntryFunc": (
        T.AnnotateEntryFunc, lambda: prim(func(COPY)), lambda old, new: new["main"].attrs["tir.is_entry_func"],
    ),
    "Apply": (
        lambda: T.Apply(lambda f: f.with_attr("seen", 1)), lambda: prim(func(COPY)),
        lambda old, new: new["main"].attrs["seen"],
    ),
    "BindTarget": (
        lambda: T.BindTarget("llvm"), lambda: prim(func(COPY)), lambda old, new: "target" in new["main"].attrs,
    ),
    "ConvertBlocksToOpaque": (
        T.ConvertBlocksToOpaque, lambda: T.LowerInitBlock()(prim(func(BLOCKS))),
        lambda old, new: opaque(old, new) and not opaque(new, old),
    ),
    "Filter": (
        lambda: T.Filter(lambda f: "seen" in f.attrs),
        lambda: IRModule({"main": func(COPY), "other": func(COPY).with_attr("seen", 1)}),
        lambda old, new: names(new) == {"other"},
    ),
    "FlattenBuffer": (
        T.FlattenBuffer, lambda: T.LowerOpaqueBlock()(prim(func(BLOCKS))),
        lambda old, new: (ranks(old), ranks(new)) == (2, 1),
    ),
    "LowerIntrin": (
        T.LowerIntrin, custom_intrinsic, lambda old, new: (intrinsics(old), intrinsics(new)) == (1, 0),
    ),
    "RemoveAssume": (
        T.RemoveAssume, lambda: with_statement(Evaluate(call_intrin("bool", "assume", const(1, "bool")))), statements,
    ),
    "RemoveStoreUndef": (T.RemoveStoreUndef, lambda: with_statement(undefined_store()), statements),
    "VerifyMemory": (
        T.VerifyMemory, lambda: prim(func(COPY).with_attr("target", autosched.target.Target("cuda"))), REFUSES,
    ),
    "VerifySSA": (T.VerifySSA, twice_introduced, REFUSES),
    "DefaultGPUSchedule": (
        lambda: on_gpu(T.DefaultGPUSchedule()), lambda: prim(device.product(32, 32, 32)),
        lambda old, new: device.bound(new["main"]) and not device.bound(old["main"]),
    ),
    "InjectSoftwarePipeline": (
        T.InjectSoftwarePipeline, lambda: T.LowerOpaqueBlock()(prim(device.tiled(pipelined=True))),
        lambda old, new: (ranks(old), ranks(new)) == (2, 3),
    ),
    "InjectVirtualThread": (
        T.InjectVirtualThread, lambda: T.LowerOpaqueBlock()(prim(device.tiled(virtual=True))),
        lambda old, new: len(device.bound(new["main"])) < len(device.bound(old["main"])),
    ),
    "LowerCrossThreadReduction": (
        T.LowerCrossThreadReduction, lambda: prim(device.summed()), lambda old, new: intrinsics(old) < intrinsics(new),
    ),
    "ThreadSync": (
        lambda: T.ThreadSync("shared"),
        lambda: T.LowerOpaqueBlock()(prim(device.tiled())),
        lambda old, new: (intrinsics(old), intrinsics(new)) == (0, 2),
    ),
}  # fmt: skip

TABLE = {f"{package}.{name}": row for package, rows in (("tir", TIR), ("relax", RELAX), ("relay", RELAY))
         for name, row in rows.items()}  # fmt: skip


def test_each_public_pass_is_in_the_table() -> None:
    assert sorted(TABLE) == sorted(set(passes()))


@pytest.mark.parametrize("name", TABLE)
def test_a_pass_does_what_its_name_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.WORK", str(tmp_path))
    make, module, shows = TABLE[name]
    autosched.register_func("relax.ext.passes", generate, override=True)
    old = module()
    if shows is REFUSES:
        with pytest.raises(VerifyError, match=name.partition(".")[2]):
            make()(old)
        return
    text = old.script()
    with autosched.target.Target("llvm -num-cores=2"):
        new = make()(old)
    assert shows(old, new), new.script()
    assert old.script() == text, "the module that came in has changed"
