"""The choice among implementations as an extraction problem, which is solved with a bound.

A class is a value in one of its forms: floats, integers in the range of the run, integers in a
range that calibration fixed. Kernels and conversions are the nodes. The objective is time; the
squared error of each output is a metric with a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from eqsat_opt.extract import Objective, extract
from eqsat_opt.extract.problem import ProblemBuilder

__all__ = ["EXACT", "HeldForm", "KernelOption", "Option", "Selection", "floats_us", "select_within"]

_TIME = "time"

EXACT = ""
"""Name of the option of a kernel that computes in floats, or converts."""


class HeldForm(Enum):
    """The form in which a value is held."""

    FLOATS = "floats"
    RUN_RANGE = "integers in the range of the run"
    STATIC_RANGE = "integers in a range fixed by calibration"


Held = tuple[str, HeldForm]
"""A value by name, and its form."""


@dataclass(frozen=True)
class Option:
    """One implementation of a kernel.

    Attributes:
        name: name of the implementation; ``EXACT`` for floats and conversions.
        time_us: its time.
        squares: mean squared error that it causes at each output, as a share of the squared
            maximum; empty where there is none.
    """

    name: str
    time_us: float
    squares: tuple[float, ...] = ()

    def square(self, output: int) -> float:
        """Return the squared error at an output."""
        return self.squares[output] if self.squares else 0.0


@dataclass(frozen=True)
class KernelOption:
    """A way from some values to another one.

    Attributes:
        makes: the value that it makes.
        reads: the values that it reads.
        options: its implementations, one at least.
    """

    makes: Held
    reads: tuple[Held, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Selection:
    """The optimum.

    Attributes:
        chosen: name of a value to the implementation that makes it; the others are made in floats.
        time_us: predicted time of all kernels.
        bound_us: proven lower bound on that time.
        squares: predicted squared error of each output, before any correction.
    """

    chosen: Mapping[str, str]
    time_us: float
    bound_us: float
    squares: tuple[float, ...]


def floats_us(kernels: Iterable[KernelOption]) -> float:
    """Return the time of all kernels in floats."""
    return sum(
        one.time_us
        for kernel in kernels
        if kernel.makes[1] is HeldForm.FLOATS
        and all(form is HeldForm.FLOATS for _, form in kernel.reads)
        for one in kernel.options
        if one.name == EXACT
    )


def _is_in_floats(kernel: KernelOption) -> bool:
    return all(form is HeldForm.FLOATS for _, form in (kernel.makes, *kernel.reads))


def select_within(
    kernels: Sequence[KernelOption],
    needed: Iterable[str],
    limits: Sequence[float],
    *,
    time_limit_s: float,
    seed: int = 0,
) -> Selection:
    """Choose the implementations of least time that keep all limits.

    Args:
        kernels: the kernels; a value that none of them makes is there in floats.
        needed: names of values that are needed in floats, one at least.
        limits: largest squared error of each output; an output whose limit is infinite has none.
        time_limit_s: seconds for the proof.
        seed: seed of the search.

    Raises:
        ExtractionError: no solution was found in time.
    """
    # Shares of a limit keep the numbers of the solver near 1, however small the errors are.
    bounded = [number for number, limit in enumerate(limits) if 0 < limit < float("inf")]
    barred = [number for number, limit in enumerate(limits) if limit <= 0]
    names = [f"error{number}" for number in bounded]
    builder = ProblemBuilder((_TIME, *names))
    nothing = (0.0,) * len(names)
    classes: dict[Held, int] = {}
    options: dict[tuple[int, int], tuple[KernelOption, Option]] = {}
    incumbent: dict[int, tuple[int, int]] = {}

    def class_of(held: Held) -> int:
        if held not in classes:
            classes[held] = builder.add_class()
            if held[1] is HeldForm.FLOATS and held not in made:
                incumbent[classes[held]] = (
                    builder.add_node(classes[held], (), [(0.0, *nothing)]),
                    0,
                )
        return classes[held]

    made = {kernel.makes for kernel in kernels}
    for kernel in kernels:
        rows = [
            one
            for one in kernel.options
            if not any(one.square(number) > 0 for number in barred)
            and all(one.square(number) <= limits[number] for number in bounded)
        ]
        if not rows:
            continue
        costs = [
            (one.time_us, *(one.square(number) / limits[number] for number in bounded))
            for one in rows
        ]
        own, children = class_of(kernel.makes), [class_of(one) for one in kernel.reads]
        node = builder.add_node(own, children, costs)
        options |= {(node, i): (kernel, one) for i, one in enumerate(rows)}
        if rows[0].name == EXACT and all(
            f is HeldForm.FLOATS for _, f in (kernel.makes, *kernel.reads)
        ):
            incumbent[own] = (node, 0)
    roots = [class_of((name, HeldForm.FLOATS)) for name in needed]
    found = extract(
        builder.build(roots),
        Objective({_TIME: 1.0}, limits=dict.fromkeys(names, 1.0)),
        incumbent=incumbent,
        time_limit_s=time_limit_s,
        seed=seed,
    )
    taken = [options[pick] for pick in found.choice.values() if pick in options]
    return Selection(
        {kernel.makes[0]: one.name for kernel, one in taken if one.name != EXACT},
        found.cost,
        found.lower_bound,
        tuple(sum(one.square(number) for _, one in taken) for number in range(len(limits))),
    )
