"""Losses: the mean over a batch of how far the output of a model is from a target."""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.errors import ModelError, OptionError, or_nearest
from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.values.types import FLOATS, TensorType, ValueType
from eqsat_opt.training.tape import Tape, TapeValue

__all__ = ["LOSSES", "TARGET", "Loss", "named_loss"]

TARGET = "target"
"""Name of the input that the output of the model is compared with."""

Loss = Callable[[Tape, TapeValue, int], tuple[TapeValue, TapeValue]]
"""A function of a tape, the output of the model and the axis of classes to the loss, a scalar, and
the target, a new input.
"""


def _mse(tape: Tape, output: TapeValue, _axis: int) -> tuple[TapeValue, TapeValue]:
    """Return the mean squared difference from a target of the output's type."""
    target = tape.input(TARGET, output.type)
    difference = output - target
    return _mean(difference * difference), target


def _cross_entropy(tape: Tape, output: TapeValue, axis: int) -> tuple[TapeValue, TapeValue]:
    """Return the mean negative logarithm of the probability of the right class.

    The output holds logits, or what a Softmax or LogSoftmax along the axis of classes makes of
    logits. The target holds numbers of classes, ``int64``, in the shape without that axis.
    """
    if not -output.rank <= axis < output.rank:
        raise OptionError(
            f"the output {output.name!r} is {output.type}, which has no axis {axis}; "
            "choose the axis of classes with --class-axis"
        )
    axis %= output.rank
    rest = (*output.shape[:axis], *output.shape[axis + 1 :])
    target = tape.input(TARGET, TensorType("int64", rest))
    places = target.reshape(*rest[:axis], 1, *rest[axis:])
    logarithms = _log_probabilities(tape, output, axis)
    return -_mean(logarithms.apply("GatherElements", places, axis=axis)), target


def _log_probabilities(tape: Tape, output: TapeValue, axis: int) -> TapeValue:
    node = tape.producer(output)
    if node is not None and node.op in _NORMALISED and node.attr("axis") == axis:
        # The logarithm of a Softmax loses digits where probabilities are small.
        if node.op == "LogSoftmax":
            return output
        return tape.value(node.inputs[0]).apply("LogSoftmax", axis=axis)
    return output.apply("LogSoftmax", axis=axis)


_NORMALISED = ("Softmax", "LogSoftmax")


def _mean(values: TapeValue) -> TapeValue:
    if not values.rank:
        return values
    return values.mean(range(values.rank), keepdims=False)


LOSSES: dict[str, Loss] = {"cross_entropy": _cross_entropy, "mse": _mse}
"""Losses by name."""


def named_loss(name: str) -> Loss:
    """Return the loss of a name.

    Raises:
        OptionError: there is no such loss.
    """
    if name not in LOSSES:
        raise OptionError(f"there is no loss {name!r}; {or_nearest(name, LOSSES)}")
    return LOSSES[name]


def require_float(output: str, type_: ValueType, node: Node | None) -> None:
    """Raise an error unless an output, made by a node, holds floats.

    Raises:
        ModelError: it does not.
    """
    if not isinstance(type_, TensorType) or type_.dtype not in FLOATS:
        made = f", made by {node.op}" if node is not None else ""
        raise ModelError(
            f"the output {output!r} is {type_}{made}, which no loss is defined on; "
            "name the logits with --of"
        )
