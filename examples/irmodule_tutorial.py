"""IRModules from beginning to end, as TVM's tutorial goes through them: make, look at, transform and run one.

Run it with `python -m examples.irmodule_tutorial`; it needs PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.export import export

import autosched
from autosched import dlight, relax
from autosched.relax.frontend import nn as relax_nn
from autosched.relax.frontend.torch import from_exported_program, from_fx
from autosched.script import ir as I
from autosched.script import relax as R
from autosched.target import Target


class TorchModel(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, 784] -> [1, 10]"""
        return self.fc2(self.relu1(self.fc1(x)))  # type: ignore[no-any-return]


class RelaxModel(relax_nn.Module):
    """The same model, written with the model API."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = relax_nn.Linear(784, 256)
        self.relu1 = relax_nn.ReLU()
        self.fc2 = relax_nn.Linear(256, 10)

    def forward(self, x: Any) -> Any:
        """[1, 784] -> [1, 10]"""
        return self.fc2(self.relu1(self.fc1(x)))


@I.ir_module
class TVMScriptModule:
    """The same model as text."""

    @R.function
    def main(
        x: R.Tensor((1, 784), dtype="float32"),
        fc1_weight: R.Tensor((256, 784), dtype="float32"),
        fc1_bias: R.Tensor((256,), dtype="float32"),
        fc2_weight: R.Tensor((10, 256), dtype="float32"),
        fc2_bias: R.Tensor((10,), dtype="float32"),
    ) -> R.Tensor((1, 10), dtype="float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            permute_dims = R.permute_dims(fc1_weight, axes=None)
            matmul = R.matmul(x, permute_dims, out_dtype="void")
            add = R.add(matmul, fc1_bias)
            relu = R.nn.relu(add)
            permute_dims1 = R.permute_dims(fc2_weight, axes=None)
            matmul1 = R.matmul(relu, permute_dims1, out_dtype="void")
            add1 = R.add(matmul1, fc2_bias)
            gv = add1
            R.output(gv)
        return gv


def title(text: str) -> None:
    """Print a headline."""
    print(f"\n=== {text} ===\n")


def create(model: nn.Module) -> tuple[Any, Any]:
    """Four ways to an IRModule; gives that of torch.fx, and its parameters."""
    title("imported from torch.fx")
    with torch.no_grad():
        module = from_fx(fx.symbolic_trace(model), [((1, 784), "float32")], keep_params_as_input=True)
    module, params = relax.frontend.detach_params(module)
    module.show()

    title("imported from torch.export")
    program = export(model, (torch.randn(1, 784),))
    exported = from_exported_program(program, keep_params_as_input=True, unwrap_unit_return_tuple=True)
    relax.frontend.detach_params(exported)[0].show()

    title("written with the model API")
    spec = {"forward": {"x": relax_nn.spec.Tensor((1, 784), "float32")}}
    from_api, named = RelaxModel().export_tvm(spec)
    from_api.show()
    print([name for name, _ in named])

    title("written as text")
    TVMScriptModule.show()
    again = autosched.script.from_source(TVMScriptModule.script())
    autosched.ir.assert_structural_equal(again, TVMScriptModule)
    return module, params


def transform(module: Any) -> Any:
    """Look inside, and run passes: one, then a pipeline."""
    title("its functions")
    print(module.get_global_vars())
    (main,) = module.get_global_vars()
    assert module[main] is module["main"]

    title("operators as loops")
    legal = relax.transform.LegalizeOps()(module)
    print(legal.get_global_vars())
    legal["matmul"].show()

    title("the pipeline 'zero': fused")
    fused = relax.get_pipeline("zero")(module)
    steps = autosched.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )
    autosched.ir.assert_structural_equal(steps(module), fused)
    fused.show()
    return fused


def run(module: Any, params: Any, model: nn.Module) -> float:
    """Build for this machine and compare with PyTorch; gives the largest error."""
    title("on the CPU")
    executable = relax.build(module, target="llvm")
    device = autosched.cpu()
    vm = relax.VirtualMachine(executable, device)
    data = np.random.default_rng(0).random((1, 784), dtype=np.float32)
    result = vm["main"](autosched.nd.array(data, device), *params["main"]).numpy()
    with torch.no_grad():
        expected = model(torch.from_numpy(data)).numpy()
    print(result)
    error = float(np.abs(result - expected).max())
    print(f"largest difference from PyTorch: {error:.1e}")
    return error


def schedule_for_gpu(module: Any) -> None:
    """DLight's rules bind loops to a GPU's threads; that is built without a GPU, and saved for a machine with one."""
    title("scheduled for CUDA")
    with Target("cuda"):
        scheduled = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(module)
    scheduled.show()
    try:
        executable = relax.build(scheduled, target="cuda")
        print(f"built for CUDA: {executable}")
    except autosched.TVMError as error:
        print(f"not built for CUDA: {error}")


def main() -> None:
    """All of it."""
    torch.manual_seed(0)
    model = TorchModel().eval()
    module, params = create(model)
    fused = transform(module)
    assert run(fused, params, model) < 1e-4
    schedule_for_gpu(fused)


if __name__ == "__main__":
    main()
