"""A parameter is a promise: each one of a public function is used, or stands below with the reason why not."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "autosched"
Function = ast.FunctionDef | ast.AsyncFunctionDef

# parameters that mean nothing wherever they stand
EVERYWHERE = {
    "span": "a place in TVM's source, which messages do not show",
    "ctx": "click's context, which it passes to all methods",
    "inplace": "PyTorch's; values of a graph are never changed",
    "cudnn_enable": "PyTorch's choice of a library", "cudnn_enabled": "PyTorch's choice of a library",
}  # fmt: skip
TORCH = "the signature of PyTorch's operator; in inference it chooses nothing"
FILES = "there is one file format"
TVM_CHOICE = "chooses how, and not what"
ALLOWED = {
    "autotvm/measure/local.py:LocalBuilder.__init__(do_fork)": TVM_CHOICE,
    "autotvm/task/entities.py:OtherOptionSpace.__init__(axes)": "all spaces of entities are made so",
    "autotvm/task/entities.py:OtherOptionSpace.__init__(policy)": "all spaces of entities are made so",
    "autotvm/tuner/callback.py:Monitor.__call__(tuner)": "all callbacks are called so",
    "codegen/cuda/tile.py:DeviceEmitter.row_bytes(place)": "called with where an address points, like its neighbours",
    "codegen/cuda/nvvm_builder.py:NvvmBuilder.fneg(flags)": "llvmlite's signature",
    "ir/instrument.py:PassInstrument.should_run(info)": "a base class to override",
    "ir/instrument.py:PassInstrument.should_run(mod)": "a base class to override",
    "topi/compat.py:strided_slice(assume_inbound)": "positions are cut to the dimension either way",
    "relax/block_builder.py:BlockBuilder.testing_scope(def_vars)": "every symbol is known",
    "relax/op/data_sizes.py:unique(sorted)": "sorted is one of the orders that unsorted allows",
    "relax/op/conv2d.py:reference(kernel_layout)": "its weight is in the plain layout already",
    "rpc/server.py:Server.__init__(no_fork)": "sessions are processes that are started, never forked",
    "cli/completion.py:kernels(option)": "click's signature",
    "contrib/cblas.py:batch_matmul(iterative)": TVM_CHOICE,
    "contrib/cc.py:cross_compiler(compile_func)": "export_library compiles nothing",
    "contrib/cc.py:cross_compiler(options)": "export_library compiles nothing",
    "contrib/cc.py:cross_compiler(output_format)": FILES,
    "frontend/torch/converters/index.py:gather(sparse_grad)": TORCH,
    "frontend/torch/converters/norm.py:batch_norm(momentum)": TORCH,
    "frontend/torch/converters/norm.py:native_batch_norm(momentum)": TORCH,
    "frontend/torch/converters/logic.py:copy(non_blocking)": TORCH,
    "frontend/torch/converters/reduce.py:cdist(compute_mode)": TVM_CHOICE,
    "frontend/torch/converters/scatter.py:embedding_bag(scale_grad_by_freq)": TORCH,
    "frontend/torch/converters/scatter.py:embedding_bag(sparse)": TORCH,
    "frontend/torch/converters/scatter.py:index_put(unsafe)": TORCH,
    "frontend/torch/converters/shape.py:storage_offset(input)": "values have memory of their own, which begins at 0",
    "frontend/torch/converters/sort.py:argsort(stable)": "equals always keep their order",
    "frontend/torch/converters/sort.py:sort(stable)": "equals always keep their order",
    "frontend/torch/converters/sort.py:topk(sorted)": "results are always in order",
    "frontend/torch/converters/shape.py:expand(implicit)": TORCH,
    "ir/printing.py:show(black_format)": "the text has one form",
    "ir/structural.py:structural_hash(map_free_vars)": "free variables are hashed by their order either way",
    "meta_schedule/context.py:TuneContext.__init__(logger)": "nothing is logged",
    "meta_schedule/context.py:TuneContext.pre_tuning(design_spaces)": "the search draws from the context's own space",
    "meta_schedule/database.py:TuningRecord.as_json(path)": "TVM's signature: the place of an object in a document",
    "meta_schedule/relax_integration.py:extracted_tasks_to_tune_contexts(work_dir)": "contexts write no files",
    "meta_schedule/tasks.py:tune_tasks(builder)": TVM_CHOICE,
    "meta_schedule/tasks.py:tune_tasks(num_trials_per_iter)": TVM_CHOICE,
    "meta_schedule/tir_integration.py:tune_tir(num_tuning_cores)": TVM_CHOICE,
    "own/space.py:expected_gain(task)": "one of two rules that are called alike",
    "relax/instrument.py:WellFormedInstrument.__init__(check_struct_info)": "types are always checked",
    "relax/pipeline.py:get_default_pipeline(target)": "there is one for all",
    "relax/transform/user_passes.py:dataflowblock_pass(traceable)": "TVM's note for its own tuner of passes",
    "relax/transform/user_passes.py:function_pass(traceable)": "TVM's note for its own tuner of passes",
    "tir/transform.py:prim_func_pass(traceable)": "TVM's note for its own tuner of passes",
    "relay/parser.py:parse(source_name)": "messages show the line itself",
    "runtime/executable.py:Executable.export_library(fcompile)": "it compiles nothing",
    "runtime/module.py:Module.export_library(fcompile)": "it compiles nothing",
    "runtime/module.py:Module.export_library(workspace_dir)": "it compiles nothing",
    "runtime/relax_vm.py:VMExecutable.export_library(fcompile)": "it compiles nothing",
    "runtime/module.py:Module.jit(fcompile)": "it is compiled already",
    "runtime/module.py:Module.jit(force_recompile)": "it is compiled already",
    "runtime/relax_vm.py:VMExecutable.jit(fcompile)": "it is compiled already",
    "runtime/relax_vm.py:VMExecutable.jit(force_recompile)": "it is compiled already",
    "runtime/library.py:load_module(fmt)": FILES,
    "runtime/module.py:Module.save(fmt)": FILES,
    "runtime/library.py:system_lib(symbol_prefix)": "no library is linked in",
    "runtime/relax_vm.py:VirtualMachine.__init__(profile)": "every machine can profile",
    "script/relax.py:function(pure)": "the function's text is read, with its decorator",
    "script/relax.py:function(private)": "the function's text is read, with its decorator",
    "script/tir.py:prim_func(private)": "the function's text is read, with its decorator",
    "script/tir.py:prim_func(s_tir)": "the function's text is read, with its decorator",
    "te/scan.py:scan(tag)": "a note for TVM's own passes",
    "tir/analysis.py:get_block_access_region(buffer_var_map)": "accesses name their buffers",
    "tir/arith/analyzer.py:Analyzer.can_prove(strength)": TVM_CHOICE,
    "tir/index_map.py:IndexMap.from_func_with_separators(inverse_index_map)": "the inverse is computed",
    "tir/schedule/base.py:ScheduleBase.__init__(enable_check)": "primitives are always checked",
    "topi/generic.py:default_schedule(auto_inline)": "the build fuses and inlines by itself",
    "topi/testing.py:get_injective_schedule(target)": "there is one for all",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A function: its file, its name with those of the classes around it, and what of its parameters its body uses."""

    file: str
    name: str
    node: Function
    parameters: tuple[str, ...]
    used: frozenset[str]

    @property
    def method(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def implements(self) -> bool:
        """Whether it may be one of several that are called alike: a method, or a function of a back end.

        A constructor is called by its class: that another one uses a parameter of that name says nothing.
        """
        if self.method == "__init__":
            return False
        return "." in self.name or self.file.endswith(("/cpu/__init__.py", "/cuda/__init__.py"))


def functions() -> Iterator[Found]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from _below(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(PACKAGE)), ())


def _below(node: ast.AST, file: str, owner: tuple[str, ...]) -> Iterator[Found]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _below(child, file, (*owner, child.name))
        elif isinstance(child, Function):
            spec = child.args
            named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
            used = {
                x.id for line in child.body for x in ast.walk(line)
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)
            }  # fmt: skip
            yield Found(file, ".".join((*owner, child.name)), child, tuple(a.arg for a in named), frozenset(used))


def _only_refuses(node: Function) -> bool:
    """Whether a function has no body but its docstring, or only raises."""
    lines = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return not lines or all(isinstance(s, ast.Raise | ast.Pass) for s in lines)


def _is_public(found: Found) -> bool:
    parts = found.name.split(".")
    return not any(p.startswith("_") and not p.startswith("__") for p in parts)


@functools.cache
def unused() -> dict[str, str]:
    """The parameters that public functions do not use, by place; the value is the parameter."""
    everything = list(functions())
    used_somewhere = {
        (f.method, p) for f in everything if f.implements for p in f.parameters if p in f.used or _only_refuses(f.node)
    }  # what the interface declares, or another implementation of the same method uses
    left: dict[str, str] = {}
    for f in everything:
        protocol = f.method.startswith("__") and f.method not in ("__init__", "__call__")  # Python says what it takes
        if not _is_public(f) or _only_refuses(f.node) or _is_intrinsic(f.node) or protocol:
            continue
        for p in f.parameters:
            if p in ("self", "cls") or p.startswith("_") or p in f.used or p in EVERYWHERE:
                continue
            if f.implements and (f.method, p) in used_somewhere:
                continue
            if f.file.startswith("frontend/torch/converters/") and p == "t":
                continue  # the emitter, which every converter is given
            if f.file.startswith("frontend/onnx/converters/") and p == "node":
                continue
            if f.file == "frontend/onnx/numpy_functions.py" and p == "call":
                continue
            left[f"{f.file}:{f.name}({p})"] = p
    return left


def _is_intrinsic(node: Function) -> bool:
    """Whether Numba gives the arguments a meaning: only their types are looked at."""
    return any(isinstance(d, ast.Name) and d.id == "intrinsic" for d in node.decorator_list)


def test_every_parameter_is_used_or_has_a_reason() -> None:
    found = unused()
    assert sorted(found.keys() - ALLOWED.keys()) == [], "use them, refuse them by name (errors.refuse), or say why not"


def test_no_reason_is_left_over() -> None:
    assert sorted(ALLOWED.keys() - unused().keys()) == []


def test_the_walk_sees_what_it_is_for() -> None:
    tree = ast.parse("def f(used, dropped):\n    del dropped\n    return used\n")
    (found,) = _below(tree, "x.py", ())
    assert set(found.parameters) - found.used == {"dropped"}
