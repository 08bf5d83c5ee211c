"""From a model to a module that trains it."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import PassContext, module_pass
from autosched.relax.expr import Function, Tuple, Var
from autosched.relax.struct_info import StructInfo
from autosched.relax.training.loss import Loss
from autosched.relax.training.optimizer import Optimizer
from autosched.relax.training.utils import AppendLoss
from autosched.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining, Gradient, LegalizeOps
from autosched.relax.verify import well_formed
from autosched.tir.expr import const_int

BACKBONE, LOSS, ADJOINT, OPTIMIZER = "backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"


@module_pass(opt_level=0, name="SetupTrainer")
class SetupTrainer:
    """Add to a module what `Trainer` runs.

    The module has a function `backbone(inputs, parameters, states)`, of one dataflow block, that returns its results
    and the updated states, and the attributes "param_num" and "state_num". Added are `backbone_loss`, with the
    targets behind the other parameters, `backbone_loss_adjoint`, which returns the gradients of the parameters too,
    `optimizer`, and the attributes "input_num" and "optim_state".

    loss_args  what `loss` is called with: annotations of the predictions and of the targets
    legalize   whether operators become loops
    """

    def __init__(
        self, loss: Loss, optimizer: Optimizer, loss_args: Sequence[Var | StructInfo], legalize: bool = True
    ) -> None:
        for what, given, kind in (("loss", loss, Loss), ("optimizer", optimizer, Optimizer)):
            if not isinstance(given, kind):
                raise InvalidTypeError(f"SetupTrainer: {what} is a {type(given).__name__}, expected a {kind.__name__}")
        self._loss, self._optimizer, self._loss_args, self._legalize = loss, optimizer, loss_args, legalize

    @staticmethod
    def _check(mod: IRModule) -> tuple[int, int]:
        """How many parameters and states there are. Raises ValueError for a module of another form."""
        if not well_formed(mod):
            raise InvalidValueError("SetupTrainer: the module is not well-formed")
        backbone = next((f for gv, f in mod.functions.items() if gv.name == BACKBONE), None)
        if not isinstance(backbone, Function):
            raise InvalidValueError(f"SetupTrainer: the module has no function '{BACKBONE}'")
        counts = []
        for key in ("param_num", "state_num"):
            value = const_int(mod.attrs.get(key))
            if value is None:
                raise InvalidValueError(f"SetupTrainer: the module's attribute '{key}' is no number")
            counts.append(value)
        n_params, n_states = counts
        if len(backbone.params) < n_params + n_states:
            raise InvalidValueError(f"SetupTrainer: '{BACKBONE}' has fewer parameters than param_num and state_num say")
        result = backbone.body.body
        if n_states and not (isinstance(result, Tuple) and len(result.fields) > n_states):
            raise InvalidValueError(f"SetupTrainer: '{BACKBONE}' must return its results and {n_states} states")
        return n_params, n_states

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        n_params, n_states = self._check(mod)
        loss = self._loss(*self._loss_args)  # type: ignore[operator]  # Loss itself has no call
        mod = AppendLoss(BACKBONE, loss, self._loss.num_backbone_outputs, LOSS)(mod)
        mod = DecomposeOpsForTraining(LOSS)(DecomposeOpsForInference(BACKBONE)(mod))
        backbone, function = mod[BACKBONE], mod[LOSS]
        assert isinstance(backbone, Function) and isinstance(function, Function), "both are relax functions"
        n_inputs = len(backbone.params) - n_params - n_states
        params = list(function.params[n_inputs : n_inputs + n_params])
        mod = Gradient(LOSS, require_grads=params, target_index=0)(mod)
        self._optimizer.init(params)
        mod[OPTIMIZER] = self._optimizer.get_function().with_attr("global_symbol", OPTIMIZER)
        mod = mod.with_attrs({"input_num": n_inputs, "optim_state": self._optimizer.state})
        return LegalizeOps()(mod) if self._legalize else mod
