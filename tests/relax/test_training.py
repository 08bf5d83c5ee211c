"""Training: the functions of optimizers against NumPy, a trainer against the numbers that TVM gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax.training import AppendLoss, SetupTrainer, Trainer
from autosched.relax.training.loss import CategoricalCrossEntropyLoss, CrossEntropyLoss, L1Loss, Loss, MSELoss
from autosched.relax.training.optimizer import SGD, Adam, MomentumSGD, Optimizer
from autosched.script import ir as I
from autosched.script import relax as R

TensorType = relax.TensorType


@I.ir_module
class Normalised:
    I.module_attrs({"param_num": 2, "state_num": 2})

    @R.function
    def backbone(
        x: R.Tensor((4, 3, 2), "float32"),
        g: R.Tensor((3,), "float32"),
        b: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        var: R.Tensor((3,), "float32"),
    ):
        with R.dataflow():
            bn = R.nn.batch_norm(x, g, b, mean, var, axis=1, epsilon=1e-5, momentum=0.2)
            y = bn[0]
            new_mean = bn[1]
            new_var = bn[2]
            R.output(y, new_mean, new_var)
        return y, new_mean, new_var


def test_trainer() -> None:
    like = TensorType((4, 3, 2), "float32")
    made = SetupTrainer(MSELoss("sum"), SGD(0.01), [like, like])(Normalised)
    assert {"backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"} <= {
        g.name for g in made.get_global_vars()
    }
    vm = relax.VirtualMachine(autosched.compile(made, "llvm"), autosched.cpu())
    trainer = Trainer(made, vm, autosched.cpu(), zero_init_param_state=False)
    x = np.cos(np.arange(24, dtype="float32")).reshape(4, 3, 2)
    with pytest.raises(RuntimeError, match="parameter 'g' has no value"):
        trainer.predict(x)
    trainer.load_params({"g": np.ones(3, "float32"), "b": np.zeros(3, "float32")})
    trainer.load_states([np.zeros(3, "float32"), np.ones(3, "float32")])
    np.testing.assert_allclose(trainer.predict(x).numpy(), x / np.sqrt(1 + 1e-5), rtol=1e-6)  # by the moving statistics

    gamma, beta, mean, var = np.ones(3), np.zeros(3), np.zeros(3), np.ones(3)
    own_mean, own_var = x.mean((0, 2)), x.var((0, 2))
    hat = (x - own_mean[None, :, None]) / np.sqrt(own_var + 1e-5)[None, :, None]
    target = np.sin(x)
    for _ in range(2):
        distance = hat * gamma[None, :, None] + beta[None, :, None] - target
        np.testing.assert_allclose(trainer.update(x, target).numpy(), (distance**2).sum(), rtol=1e-5)
        gamma = gamma - 0.01 * (2 * distance * hat).sum((0, 2))
        beta = beta - 0.01 * (2 * distance).sum((0, 2))
        mean, var = 0.8 * mean + 0.2 * own_mean, 0.8 * var + 0.2 * own_var
    for found, want in ((trainer.export_params(), {"g": gamma, "b": beta}),
                        (trainer.export_states(), {"mean": mean, "var": var})):  # fmt: skip
        for name, value in want.items():
            np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-5, atol=1e-6)
    trainer.zero_init_params()
    assert not trainer.export_params()["g"].numpy().any()
    with pytest.raises(ValueError, match="no parameter 'w'"):
        trainer.load_params({"w": np.zeros(3)})
    with pytest.raises(ValueError, match="1 parameters, the model has 2"):
        trainer.load_params([np.zeros(3)])
    with pytest.raises(ValueError, match="0 inputs"):
        trainer.predict()


def _momentum(nesterov: bool) -> Any:
    def step(p: Any, g: Any, s: list[Any]) -> Any:
        g = g + 0.1 * p
        s[1] = 0.9 * s[1] + 0.7 * g
        return p - 0.5 * (g + 0.9 * s[1] if nesterov else s[1])

    return step


def _adam(p: Any, g: Any, s: list[Any]) -> Any:
    g = g + 0.1 * p
    s[1], s[2] = s[1] * 0.8, s[2] * 0.9
    s[3], s[4] = 0.8 * s[3] + 0.2 * g, 0.9 * s[4] + 0.1 * g * g
    return p - 0.5 * (s[3] / (1 - s[1])) / (np.sqrt(s[4] / (1 - s[2])) + 1e-3)


OPTIMIZERS: dict[str, tuple[Optimizer, Any, list[Any]]] = {
    "sgd": (SGD(0.5, 0.1), lambda p, g, s: p - 0.5 * (g + 0.1 * p), [0]),
    "momentum": (MomentumSGD(0.5, 0.9, 0.3, 0.1), _momentum(False), [0, 0]),
    "nesterov": (MomentumSGD(0.5, 0.9, 0.3, 0.1, nesterov=True), _momentum(True), [0, 0]),
    "adam": (Adam(0.5, (0.8, 0.9), 1e-3, 0.1), _adam, [0, 1, 1, 0, 0]),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name: str) -> None:
    optimizer, step, want = OPTIMIZERS[name]
    p, g = np.float32([1, -2]), np.float32([0.5, 0.25])
    function = optimizer.init(relax.Var("p", TensorType((2,), "float32"))).get_function()
    mod = autosched.IRModule({"main": function})
    assert optimizer.state is not None
    params, state = (p,), tuple(s.numpy() for s in optimizer.state)
    for i in range(2):
        expected = step(params[0].astype("float64"), g, want)
        params, state = relax.evaluate(mod, [params, (g,), state])
        np.testing.assert_allclose(params[0], expected, rtol=1e-5, atol=1e-6)
        assert state[0] == i + 1
        for found, value in zip(state[1:], want[1:], strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5)


LOGITS, CLASSES = np.float32([[1, 2, 0.5], [0, -1, 3]]), np.array([1, 0])
LOG_P = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
ONE_HOT = np.eye(3, dtype="int64")[CLASSES]
LOSSES: dict[str, tuple[Loss, Any, Any]] = {
    "l1": (L1Loss(), np.ones((2, 3), "float32"), np.abs(LOGITS - 1).mean()),
    "none": (MSELoss("none"), np.ones((2, 3), "float32"), (LOGITS - 1) ** 2),
    "entropy": (CrossEntropyLoss(), CLASSES, -(LOG_P[0, 1] + LOG_P[1, 0]) / 2),
    "ignored": (CrossEntropyLoss("sum", ignore_index=0), CLASSES, -LOG_P[0, 1]),
    "one_hot": (CategoricalCrossEntropyLoss(), ONE_HOT, -(LOG_P[0, 1] + LOG_P[1, 0]) / 6),
    "one_hot_ignored": (CategoricalCrossEntropyLoss(ignore_index=0), ONE_HOT, -LOG_P[0, 1]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str) -> None:
    loss, targets, want = LOSSES[name]
    function = loss(TensorType((2, 3), "float32"), TensorType(targets.shape, str(targets.dtype)))
    found = relax.evaluate(autosched.IRModule({"main": function}), [LOGITS, targets])
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_refused() -> None:
    like, other = TensorType((4, 3, 2), "float32"), TensorType((4, 3), "float32")
    with pytest.raises(ValueError, match="reduction 'max'"):
        MSELoss("max")
    with pytest.raises(TypeError, match="expected integers"):
        CategoricalCrossEntropyLoss()(other, other)
    with pytest.raises(ValueError, match="the loss takes"):
        AppendLoss("backbone", MSELoss()(other, other))(Normalised)
    with pytest.raises(ValueError, match="num_backbone_outputs is 4"):
        AppendLoss("backbone", MSELoss()(like, like), 4)(Normalised)
    with pytest.raises(ValueError, match="param_num"):
        SetupTrainer(MSELoss(), SGD(0.1), [like, like])(Normalised.without_attr("param_num"))
    with pytest.raises(TypeError, match="optimizer is a float"):
        SetupTrainer(MSELoss(), 0.1, [like, like])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="call init"):
        SGD(0.1).get_function()
    with pytest.raises(ValueError, match="no parameter of floats"):
        SGD(0.1).init(relax.Var("n", TensorType((2,), "int32")))
    with pytest.raises(ValueError, match="SetupTrainer makes it"):
        Trainer(Normalised, None, autosched.cpu())
