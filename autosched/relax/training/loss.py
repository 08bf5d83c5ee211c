"""Losses as relax functions of (predictions, targets), which `AppendLoss` puts behind a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Expr, Function, ShapeExpr, Var
from autosched.relax.struct_info import StructInfo, TensorStructInfo

REDUCTIONS = ("mean", "sum", "none")


def _parameter(given: Var | StructInfo, name: str) -> Var:
    if isinstance(given, Var):
        return Var(given.name, given.struct_info)
    if not isinstance(given, StructInfo):
        raise InvalidTypeError(f"loss: '{name}' is a {type(given).__name__}, expected a Var or an annotation")
    return Var(name, given)


class Loss:
    """A loss of `num_backbone_outputs` results of a model and its targets.

    reduction  "mean" or "sum" over all elements, or "none"
    """

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise InvalidValueError(f"{loss_name}: reduction '{reduction}'", hint=f"use one of {REDUCTIONS}")
        self._loss_name = loss_name
        self._reduction = reduction
        self._num_backbone_outputs = num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        return self._num_backbone_outputs

    def _with_reduction(self, expr: Expr) -> Expr:
        return expr if self._reduction == "none" else {"mean": op.mean, "sum": op.sum}[self._reduction](expr)

    def _function(self, params: Sequence[Var], result: Callable[[BlockBuilder], Expr]) -> Function:
        """The function, named as the loss, whose one dataflow block ends with what `result` says."""
        builder = BlockBuilder()
        with builder.function(self._loss_name, params):
            with builder.dataflow():
                loss = builder.emit_output(result(builder))
            builder.emit_func_output(loss)
        made = builder.get()[self._loss_name]
        assert isinstance(made, Function), "the builder made a function"
        return made

    def _of_classes(
        self, given: Sequence[Var | StructInfo | None], result: Callable[[BlockBuilder, Var, Var, Var | None], Expr]
    ) -> Function:
        """The function of predictions, targets and, where they are given, weights of classes."""
        names = ("predictions", "targets", "weights")
        p, t, *w = params = [_parameter(x, name) for x, name in zip(given, names, strict=True) if x is not None]
        return self._function(params, lambda builder: result(builder, p, t, w[0] if w else None))


class L1Loss(Loss):
    """The absolute differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: Var | StructInfo, targets: Var | StructInfo) -> Function:
        p, t = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        return self._function([p, t], lambda _: self._with_reduction(op.abs(op.subtract(p, t))))


class MSELoss(Loss):
    """The squared differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: Var | StructInfo, targets: Var | StructInfo) -> Function:
        p, t = _parameter(predictions, "predictions"), _parameter(targets, "targets")

        def squares(builder: BlockBuilder) -> Expr:
            difference = builder.emit(op.subtract(p, t))
            return self._with_reduction(op.multiply(difference, difference))

        return self._function([p, t], squares)


class CrossEntropyLoss(Loss):
    """The negative logarithm of the probability, by softmax over dimension 1, of each target class.

    ignore_index  a target that counts nothing
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(
        self, predictions: Var | StructInfo, targets: Var | StructInfo, weights: Var | StructInfo | None = None
    ) -> Function:
        """weights  a factor for each class"""

        def entropy(builder: BlockBuilder, p: Var, t: Var, w: Var | None) -> Expr:
            return op.nn.nll_loss(_log_probabilities(builder, p), t, w, self._reduction, self.ignore_index)

        return self._of_classes([predictions, targets, weights], entropy)


class CategoricalCrossEntropyLoss(Loss):
    """The same for targets in one-hot form, integers [batch, classes].

    "mean" is over all elements, as in TVM, unless `ignore_index` names a class: then over the targets that count.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("categorical_cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(
        self, predictions: Var | StructInfo, targets: Var | StructInfo, weights: Var | StructInfo | None = None
    ) -> Function:

        def entropy(builder: BlockBuilder, p: Var, t: Var, w: Var | None) -> Expr:
            info = t.struct_info
            if not isinstance(info, TensorStructInfo) or "int" not in info.dtype:
                raise InvalidTypeError(f"{self._loss_name}: targets are {info!r}, expected integers")
            logits = _log_probabilities(builder, p)
            if self.ignore_index >= 0:
                classes = builder.emit(op.reshape(op.argmax(t, axis=1), ShapeExpr(info.dims[:1])))
                return op.nn.nll_loss(logits, classes, w, self._reduction, self.ignore_index)
            dtype = logits.struct_info.dtype  # type: ignore[union-attr]  # of a tensor
            lost = builder.emit(op.multiply(op.negative(logits), op.astype(t, dtype)))
            return self._with_reduction(lost if w is None else op.multiply(lost, w))

        return self._of_classes([predictions, targets, weights], entropy)


def _log_probabilities(builder: BlockBuilder, predictions: Var) -> Expr:
    """log_softmax over the classes: dimension 1, or the only one."""
    info = predictions.struct_info
    axis = 1 if isinstance(info, TensorStructInfo) and info.ndim > 2 else -1
    return builder.emit(op.nn.log_softmax(predictions, axis=axis))
