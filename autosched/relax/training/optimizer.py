"""Optimizers: each makes a relax function (parameters, gradients, state) -> (parameters, state)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np

from autosched.errors import InvalidValueError, UsageError
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var, const
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from autosched.runtime.ndarray import NDArray, array

Emit = Callable[[Expr, str], Var]


def _one_minus(x: float) -> float:
    """1 - x in decimals: of 0.9 this is 0.1."""
    return float(1 - Decimal(str(x)))


class Optimizer:
    """What optimizers share. `init(params)` comes first; `state` is then the state that the function starts with.

    A subclass says what its state begins with, beside the number of steps, and how a parameter is updated.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[Var] | None = None
        self.state: tuple[NDArray, ...] | None = None
        self.dtype: str | None = None

    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Set the parameters, which are different tensors of one float type, and the state.

        Raises ValueError for others.
        """
        given = [params] if isinstance(params, Var) else list(params)
        dtypes = set()
        for p in given:
            info = p.struct_info if isinstance(p, Var) else None
            if not isinstance(info, TensorStructInfo) or not info.dtype.startswith(("float", "bfloat")):
                raise InvalidValueError(f"{self.name}: {p} is no parameter of floats", hint="it updates Vars of floats")
            dtypes.add(info.dtype)
        if len(dtypes) != 1:
            raise InvalidValueError(f"{self.name}: parameters of {sorted(dtypes)}; they have one dtype")
        if len(set(map(id, given))) < len(given):
            raise InvalidValueError(f"{self.name}: a parameter appears more than once")
        self.param_list, self.dtype = given, dtypes.pop()
        self.state = (array(np.zeros((), "int64")), *self._start())
        return self

    def _start(self) -> list[NDArray]:
        """The state behind the number of steps."""
        return []

    def _zeros(self) -> list[NDArray]:
        assert self.param_list is not None, "init came first"
        return [array(np.zeros(_info(p).static_shape, _info(p).dtype)) for p in self.param_list]

    def _update(self, p: Var, gradient: Var, state: dict[str, Expr], emit: Emit) -> Expr:
        """The parameter after a step. `state` has what `_state_names` says of it, and takes the new values."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a parameter is updated")

    # names of one value for all parameters, and of those that each has, in the order of the state
    _shared: tuple[str, ...] = ()
    _own: tuple[str, ...] = ()

    def _step(self, shared: dict[str, Expr], emit: Emit) -> None:
        """Update what is one value for all parameters."""

    def _const(self, value: float) -> Constant:
        return const(value, self.dtype)

    def _decayed(self, decay: float, p: Var, gradient: Var, emit: Emit) -> Var:
        if not decay:
            return gradient
        return emit(op.add(op.multiply(self._const(decay), p), gradient), f"{p.name}_grad_new")

    def get_function(self) -> Function:
        """The function, named as the optimizer. Raises RuntimeError before `init`."""
        if self.param_list is None or self.state is None or self.dtype is None:
            raise UsageError(f"{self.name}: call init() with the parameters before get_function()")
        infos: list[StructInfo] = [_info(p) for p in self.param_list]
        one = TensorStructInfo((), self.dtype)
        states = [TensorStructInfo((), "int64"), *[one] * len(self._shared), *infos * len(self._own)]
        params, gradients, before = (
            Var(name, TupleStructInfo(tuple(fields)))
            for name, fields in (("params", infos), ("gradients", infos), ("optim_states", states))
        )
        builder = BlockBuilder()
        with builder.function(self.name, [params, gradients, before]):
            with builder.dataflow():
                emit = builder.emit
                steps = emit(TupleGetItem(before, 0), "num_steps")
                steps = emit(op.add(steps, const(1, "int64")), "num_steps_new")
                shared: dict[str, Expr] = {n: TupleGetItem(before, 1 + i) for i, n in enumerate(self._shared)}
                self._step(shared, emit)
                updated: list[Expr] = []
                own: dict[str, list[Expr]] = {n: [] for n in self._own}
                for i, known in enumerate(self.param_list):
                    p = emit(TupleGetItem(params, i), known.name)
                    g = emit(TupleGetItem(gradients, i), f"{known.name}_grad")
                    state = dict(shared)
                    for j, n in enumerate(self._own):
                        at = 1 + len(self._shared) + j * len(infos) + i
                        state[n] = emit(TupleGetItem(before, at), f"{known.name}_{n}")
                    updated.append(emit(self._update(p, g, state, emit), f"{known.name}_new"))
                    for n in self._own:
                        own[n].append(state[n])
                after = (steps, *shared.values(), *(v for n in self._own for v in own[n]))
                new = builder.emit_output(Tuple(tuple(updated)), "params_new")
                new_state = builder.emit_output(Tuple(after), "optim_states_new")
            builder.emit_func_output((new, new_state))
        made = builder.get()[self.name]
        assert isinstance(made, Function), "the builder made a function"
        return made


def _info(p: Var) -> TensorStructInfo:
    assert isinstance(p.struct_info, TensorStructInfo), "init takes tensors only"
    return p.struct_info


class SGD(Optimizer):
    """Gradient descent. State: (number of steps,)."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr, self.weight_decay = float(lr), float(weight_decay)

    def _update(self, p: Var, gradient: Var, state: dict[str, Expr], emit: Emit) -> Expr:
        g = self._decayed(self.weight_decay, p, gradient, emit)
        return op.subtract(p, op.multiply(self._const(self.lr), g))


class MomentumSGD(Optimizer):
    """Gradient descent with momentum, or Nesterov's. State: (number of steps, a velocity for each parameter)."""

    _own = ("v",)

    def __init__(
        self, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr, self.momentum = float(lr), float(momentum)
        self.dampening, self.weight_decay, self.nesterov = float(dampening), float(weight_decay), nesterov

    def _start(self) -> list[NDArray]:
        return self._zeros()

    def _update(self, p: Var, gradient: Var, state: dict[str, Expr], emit: Emit) -> Expr:
        g = self._decayed(self.weight_decay, p, gradient, emit)
        momentum = self._const(self.momentum)
        added: Expr = op.multiply(self._const(_one_minus(self.dampening)), g) if self.dampening else g
        v = emit(op.add(op.multiply(momentum, state["v"]), added), f"{p.name}_v_new")
        state["v"] = v
        step = emit(op.add(g, op.multiply(momentum, v)), f"{p.name}_g_nest") if self.nesterov else v
        return op.subtract(p, op.multiply(self._const(self.lr), step))


class Adam(Optimizer):
    """Kingma and Ba, 2015. State: (number of steps, powers of both betas, all first moments, all second moments)."""

    _shared, _own = ("beta1_prod", "beta2_prod"), ("m", "v")

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0
    ) -> None:
        super().__init__("Adam")
        self.lr, self.eps, self.weight_decay = float(lr), float(eps), float(weight_decay)
        self.beta1, self.beta2 = map(float, betas)

    def _start(self) -> list[NDArray]:
        return [*(array(np.ones((), self.dtype)) for _ in self._shared), *self._zeros(), *self._zeros()]

    def _step(self, shared: dict[str, Expr], emit: Emit) -> None:
        for name, beta in zip(self._shared, (self.beta1, self.beta2), strict=True):
            shared[name] = emit(op.multiply(shared[name], self._const(beta)), name)

    def _update(self, p: Var, gradient: Var, state: dict[str, Expr], emit: Emit) -> Expr:
        g = self._decayed(self.weight_decay, p, gradient, emit)
        estimates = []
        for n, beta, value in (("m", self.beta1, g), ("v", self.beta2, op.multiply(g, g))):
            old = op.multiply(self._const(beta), state[n])
            state[n] = emit(op.add(old, op.multiply(self._const(_one_minus(beta)), value)), f"{p.name}_{n}_new")
            power = state[self._shared[n == "v"]]
            estimates.append(emit(op.divide(state[n], op.subtract(self._const(1), power)), f"{p.name}_{n}_hat"))
        root = op.add(op.sqrt(estimates[1]), self._const(self.eps))
        return op.subtract(p, op.multiply(self._const(self.lr), op.divide(estimates[0], root)))
