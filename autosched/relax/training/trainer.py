"""Running a training module, with its parameters, states and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, UsageError
from autosched.ir.module import IRModule
from autosched.relax.expr import Function, Var
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.training.setup_trainer import ADJOINT, BACKBONE, OPTIMIZER
from autosched.runtime.ndarray import Device, NDArray, array


class _Values:
    """Arrays of some parameters of the function, in order, by name."""

    def __init__(self, what: str, params: Sequence[Var], device: Device) -> None:
        self.what, self.device = what, device
        self.infos: dict[str, TensorStructInfo] = {}
        for p in params:
            assert isinstance(p.struct_info, TensorStructInfo), "parameters and states are tensors"
            self.infos[p.name] = p.struct_info
        self.arrays: dict[str, NDArray] = {}

    def load(self, values: object) -> None:
        """Raises ValueError for an unknown name, another number of values or another shape."""
        if isinstance(values, Sequence) and not isinstance(values, str):
            if len(values) != len(self.infos):
                raise InvalidValueError(f"Trainer: {len(values)} {self.what}s, the model has {len(self.infos)}")
            values = dict(zip(self.infos, values, strict=True))
        if not isinstance(values, Mapping):
            raise InvalidTypeError(f"Trainer: {self.what}s are a {type(values).__name__}, expected a list or a dict")
        for name, value in values.items():
            if name not in self.infos:
                raise InvalidValueError(f"Trainer: the model has no {self.what} '{name}'")
            self.arrays[name] = array(value, self.device)

    def zeros(self) -> None:
        self.load([np.zeros(info.static_shape, info.dtype) for info in self.infos.values()])

    def all(self) -> list[NDArray]:
        for name in self.infos:
            if name not in self.arrays:
                raise UsageError(f"Trainer: {self.what} '{name}' has no value", hint="load or initialise it first")
        return [self.arrays[name] for name in self.infos]


def _listed(x: object) -> list[Any]:
    return x if isinstance(x, list) else [x]


class Trainer:
    """A module of `SetupTrainer` with what it was built to.

    vm                     a VirtualMachine over the built module
    zero_init_param_state  whether parameters and states begin as zeros; otherwise they are loaded or drawn
    """

    def __init__(
        self, train_mod: IRModule, vm: Any, device: Device, zero_init_param_state: bool = True
    ) -> None:  # fmt: skip
        attrs = train_mod.attrs
        if "optim_state" not in attrs:
            raise InvalidValueError("Trainer: the module has no 'optim_state'", hint="SetupTrainer makes it")
        function = train_mod[ADJOINT]
        assert isinstance(function, Function), "SetupTrainer made it"
        self.mod, self.vm, self.device = train_mod.without_attr("optim_state"), vm, device
        self._optim_state: list[NDArray] = [array(s, device) for s in attrs["optim_state"]]
        self._n_inputs, n_params, self._n_states = (int(attrs[k]) for k in ("input_num", "param_num", "state_num"))
        end = self._n_inputs + n_params
        self._params = _Values("parameter", function.params[self._n_inputs : end], device)
        self._states = _Values("state", function.params[end : end + self._n_states], device)
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    def xaiver_uniform_init_params(self) -> None:
        """Draw the parameters evenly between -b and b, where b is the root of 6 over the sum of the sizes.

        Source  Glorot, Bengio 2010. (The name is spelled as in TVM.)
        """
        self._params.load([
            (np.sqrt(6.0 / np.sum(i.static_shape)) * np.random.uniform(-1.0, 1.0, i.static_shape)).astype(i.dtype)
            for i in self._params.infos.values()
        ])  # fmt: skip

    def zero_init_params(self) -> None:
        self._params.zeros()

    def zero_init_states(self) -> None:
        self._states.zeros()

    def load_params(self, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Set all parameters by a list in order, or some by name. Raises ValueError for what does not fit."""
        self._params.load(params)

    def load_states(self, states: Sequence[Any] | Mapping[str, Any]) -> None:
        self._states.load(states)

    def export_params(self) -> dict[str, NDArray]:
        return dict(zip(self._params.infos, self._params.all(), strict=True))

    def export_states(self) -> dict[str, NDArray]:
        return dict(zip(self._states.infos, self._states.all(), strict=True))

    def _arguments(self, inputs: Sequence[Any]) -> list[NDArray]:
        known = [*self._params.all(), *self._states.all()]
        if len(inputs) != self._n_inputs:
            raise InvalidValueError(f"Trainer: {len(inputs)} inputs, the model takes {self._n_inputs}")
        return [*(array(i, self.device) for i in inputs), *known]

    def predict(self, *input_instances: Any) -> Any:
        """What `backbone` gives for inputs, without the states."""
        results = self.vm[BACKBONE](*self._arguments(input_instances))
        if not self._n_states:
            return results
        kept = results[: -self._n_states]
        return kept[0] if len(kept) == 1 else kept

    def update(self, input_instances: Any, targets: Any) -> Any:
        """Take a step: parameters, states and the optimizer's state become new. Returns the loss before it."""
        arguments = self._arguments(_listed(input_instances))
        loss, gradients = self.vm[ADJOINT](*arguments, *(array(t, self.device) for t in _listed(targets)))
        if self._n_states:
            loss, *states = loss
            self._states.load(states)
        params, state = self.vm[OPTIMIZER](self._params.all(), gradients, self._optim_state)
        self._params.load(list(params))
        self._optim_state = list(state)
        return loss
