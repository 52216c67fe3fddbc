"""Optimisers: the next value of a parameter and of the state that is kept for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eqsat_opt.errors import OptionError, or_nearest
from eqsat_opt.training.tape import TapeValue

__all__ = ["OPTIMISERS", "Optimiser", "OptimiserSettings", "named_optimiser"]


@dataclass(frozen=True)
class OptimiserSettings:
    """The numbers that an update depends on; each optimiser reads those that it knows.

    Attributes:
        momentum: the share of the last velocity that is kept (momentum).
        beta1, beta2: the shares of the last moments that are kept (adam, adamw).
        epsilon: number that is added to the root of the second moment (adam, adamw).
        weight_decay: the share of the parameter that is added to its gradient; adamw subtracts it
            from the parameter instead (Loshchilov & Hutter 2019, Algorithm 2).
    """

    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Check that the numbers are in range.

        Raises:
            OptionError: one is not.
        """
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name):g}; choose it from 0 to below 1")
        if not self.epsilon > 0:
            raise OptionError(f"epsilon is {self.epsilon:g}; choose a positive number")
        if not self.weight_decay >= 0:
            raise OptionError(f"a weight decay of {self.weight_decay:g} is none; choose 0 or more")


@dataclass(frozen=True)
class Update:
    """The numbers of a step, which updates of all parameters read.

    Attributes:
        rate: the learning rate, a scalar.
        step: the number of the step as a float, a scalar; the first is 1.
        settings: the numbers of the optimiser.
    """

    rate: TapeValue
    step: TapeValue
    settings: OptimiserSettings


Rule = Callable[
    [TapeValue, TapeValue, Mapping[str, TapeValue], Update], tuple[TapeValue, dict[str, TapeValue]]
]
"""A function of parameter, gradient, state and update to the next parameter and state."""


@dataclass(frozen=True)
class Optimiser:
    """A rule by which parameters are updated.

    Attributes:
        update: the rule.
        state: names of the tensors that it keeps for each parameter, which begin with zeros.
        counts: whether it reads the number of the step.
    """

    update: Rule
    state: tuple[str, ...] = ()
    counts: bool = field(default=False)


def _decayed(parameter: TapeValue, gradient: TapeValue, settings: OptimiserSettings) -> TapeValue:
    if not settings.weight_decay:
        return gradient
    return gradient + parameter * settings.weight_decay


def _sgd(
    parameter: TapeValue, gradient: TapeValue, _state: Mapping[str, TapeValue], update: Update
) -> tuple[TapeValue, dict[str, TapeValue]]:
    gradient = _decayed(parameter, gradient, update.settings)
    return parameter - gradient * update.rate, {}


def _momentum(
    parameter: TapeValue, gradient: TapeValue, state: Mapping[str, TapeValue], update: Update
) -> tuple[TapeValue, dict[str, TapeValue]]:
    gradient = _decayed(parameter, gradient, update.settings)
    velocity = state["velocity"] * update.settings.momentum + gradient
    return parameter - velocity * update.rate, {"velocity": velocity}


def _adam_step(
    gradient: TapeValue, state: Mapping[str, TapeValue], update: Update
) -> tuple[TapeValue, dict[str, TapeValue]]:
    """Return what adam subtracts, and its moments (Kingma & Ba 2015, Algorithm 1)."""
    beta1, beta2 = update.settings.beta1, update.settings.beta2
    first = state["moment1"] * beta1 + gradient * (1 - beta1)
    second = state["moment2"] * beta2 + gradient * gradient * (1 - beta2)
    # Corrections are scalars: both moments times them would be two more passes over each tensor.
    root = _correction(beta2, update.step).apply("Sqrt")
    rate = update.rate * root / _correction(beta1, update.step)
    denominator = second.apply("Sqrt") + root * update.settings.epsilon
    return first * rate / denominator, {"moment1": first, "moment2": second}


def _correction(beta: float, step: TapeValue) -> TapeValue:
    """Return 1 - beta^step, by which a moment that began with 0 is too small."""
    return 1.0 - step.number(beta).apply("Pow", step)


def _adam(
    parameter: TapeValue, gradient: TapeValue, state: Mapping[str, TapeValue], update: Update
) -> tuple[TapeValue, dict[str, TapeValue]]:
    step, moments = _adam_step(_decayed(parameter, gradient, update.settings), state, update)
    return parameter - step, moments


def _adamw(
    parameter: TapeValue, gradient: TapeValue, state: Mapping[str, TapeValue], update: Update
) -> tuple[TapeValue, dict[str, TapeValue]]:
    step, moments = _adam_step(gradient, state, update)
    decay = update.settings.weight_decay
    if decay:
        parameter = parameter - parameter * (update.rate * decay)
    return parameter - step, moments


OPTIMISERS: dict[str, Optimiser] = {
    "sgd": Optimiser(_sgd),
    "momentum": Optimiser(_momentum, ("velocity",)),
    "adam": Optimiser(_adam, ("moment1", "moment2"), counts=True),
    "adamw": Optimiser(_adamw, ("moment1", "moment2"), counts=True),
}
"""Optimisers by name."""


def named_optimiser(name: str) -> Optimiser:
    """Return the optimiser of a name.

    Raises:
        OptionError: there is no such optimiser.
    """
    if name not in OPTIMISERS:
        raise OptionError(f"there is no optimiser {name!r}; {or_nearest(name, OPTIMISERS)}")
    return OPTIMISERS[name]
