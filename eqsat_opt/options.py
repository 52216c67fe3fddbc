"""What a user may choose."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat_opt.errors import OptionError

__all__ = ["Options"]

_NUMERICS = ("bitexact", "reassociate", "refactor", "relaxed")


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Options:
    """How to optimise; every field has a sensible default.

    Attributes:
        objective: what to minimise: a metric, or a weighted sum such as ``time+1e-6*flops``.
        target: ``cpu``.
        rules: ``default``, ``none``, families or names, ``-name`` to leave out, a rulebook file;
            comma separated.
        numerics: how far results may move: ``bitexact``, ``reassociate``, ``refactor`` or
            ``relaxed``.
        budget_s: seconds for measuring, searching and racing together, as a guide.
        shapes: input name to shape, or symbolic dimension to size, for models with symbolic shapes.
        threads: threads per session; 0 means all usable cores.
        nodes: limit on e-nodes.
        measure: whether kernels may be measured; otherwise the analytic bound prices them.
        check: number of random inputs on which original and result are compared; 0 trusts the
            rules.
        race: whether original and candidates run against each other at the end.
        alternatives: further candidates that join the race.
        deadline_s: hard limit on saturation, kept by a child process; 0 means only the soft limits.
        seed: of random inputs, search and running order. The same seed, options and store give
            the same bytes, unless a time limit strikes or the race decides otherwise. What the
            extraction chooses comes from searches limited by counts; the parallel solver, which the
            clock ends, proves it and replaces it only where it is better by more than 0.05 %.
        store: path of the profile store; ``None`` is the user's, an empty string keeps nothing.
    """

    objective: str | Mapping[str, float] = "time"
    target: str = "cpu"
    rules: str = "default"
    numerics: str = "reassociate"
    budget_s: float = 60.0
    shapes: Mapping[str, tuple[int, ...] | int] = field(default_factory=dict)
    threads: int = 0
    nodes: int = 20_000
    measure: bool = True
    check: int = 3
    race: bool = True
    alternatives: int = 2
    deadline_s: float = 0.0
    seed: int = 0
    store: str | None = None

    def __post_init__(self) -> None:
        shapes = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in (self.shapes or {}).items()
        }
        object.__setattr__(self, "shapes", shapes)
        if self.numerics not in _NUMERICS:
            raise OptionError(
                f"unknown numerics {self.numerics!r}; choose from {', '.join(_NUMERICS)}"
            )
        if self.target != "cpu":
            raise OptionError(
                f"unknown target {self.target!r}; this version runs on cpu (onnxruntime)"
            )
        if not 0 < self.budget_s < math.inf:
            raise OptionError(
                f"the budget is {self.budget_s:g} s; give a positive number of seconds"
            )
        for name in ("threads", "check", "alternatives"):
            if getattr(self, name) < 0:
                raise OptionError(
                    f"{name} must not be negative but is {getattr(self, name)}; give 0 or more"
                )
        if self.seed < 0:
            raise OptionError(f"the seed is {self.seed}; give a number that is not negative")
        if not 0 <= self.deadline_s < math.inf:
            raise OptionError(f"the deadline is {self.deadline_s:g} s; give seconds, or 0 for none")
        if self.nodes < 1:
            raise OptionError(
                f"the limit of {self.nodes} e-nodes leaves no room; give a positive number"
            )
        for name, shape in self.shapes.items():
            sizes = shape if isinstance(shape, tuple) else (shape,)
            if any(size < 0 for size in sizes):
                raise OptionError(f"the size of {name!r} is negative; sizes are counts")
        if self.threads == 0:
            object.__setattr__(self, "threads", _usable_cores())
