"""What a user may choose."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from eqsat_opt.errors import OptionError

__all__ = ["Effort", "Options"]

_NUMERICS = ("bitexact", "reassociate", "refactor", "relaxed")

Effort = Literal["quick", "normal", "max"]


@dataclass(frozen=True)
class _Defaults:
    """What an effort stands for; the fields are explained in :class:`Options`."""

    budget_s: float
    measure: bool
    check: int
    race: bool
    alternatives: int
    gap: float


_EFFORTS: Mapping[str, _Defaults] = {
    "quick": _Defaults(2.0, measure=False, check=1, race=True, alternatives=0, gap=1e-2),
    "normal": _Defaults(30.0, measure=True, check=3, race=True, alternatives=2, gap=1e-2),
    "max": _Defaults(300.0, measure=True, check=3, race=True, alternatives=2, gap=0.0),
}
_BY_EFFORT: Any = None
"""Default of the fields that the effort decides; gone once the options are made."""


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
        effort: how much time to spend, as defaults of ``budget_s``, ``measure``, ``check``,
            ``race``, ``alternatives`` and ``gap``, which may each be given as well. ``quick`` (2 s)
            never measures a kernel; ``normal`` (30 s) measures, and searches no further than a race
            could tell; ``max`` (300 s) spends what is left on proofs.
        budget_s: seconds for everything from loading to writing. What cannot be stopped (loading,
            one run of the model, writing) may exceed it.
        shapes: input name to shape, or symbolic dimension to size, for models with symbolic shapes.
        threads: threads per session; 0 means all usable cores.
        nodes: limit on e-nodes.
        measure: whether kernels may be measured; otherwise the analytic bound prices them.
        check: number of random inputs on which original and result are compared; 0 trusts the
            rules.
        strict: whether a candidate that fails the check is an error; otherwise it is dropped with a
            warning, and the next one is tried.
        race: whether original and candidates run against each other at the end.
        alternatives: further candidates that join the race.
        gap: where the best graph is known to this share of its cost, the clock of the proof stops:
            prices are good to some percent, and a race cannot tell less than 3 %.
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
    effort: Effort = "normal"
    budget_s: float = _BY_EFFORT
    shapes: Mapping[str, tuple[int, ...] | int] = field(default_factory=dict)
    threads: int = 0
    nodes: int = 20_000
    measure: bool = _BY_EFFORT
    check: int = _BY_EFFORT
    strict: bool = False
    race: bool = _BY_EFFORT
    alternatives: int = _BY_EFFORT
    gap: float = _BY_EFFORT
    deadline_s: float = 0.0
    seed: int = 0
    store: str | None = None

    def __post_init__(self) -> None:
        shapes = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in (self.shapes or {}).items()
        }
        object.__setattr__(self, "shapes", shapes)
        if self.effort not in _EFFORTS:
            raise OptionError(f"unknown effort {self.effort!r}; choose from {', '.join(_EFFORTS)}")
        for each in fields(_Defaults):
            if getattr(self, each.name) is None:
                value = getattr(_EFFORTS[self.effort], each.name)
                object.__setattr__(self, each.name, value)
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
        if not 0 <= self.gap < 1:
            raise OptionError(f"the gap is {self.gap:g}; give a share from 0 to below 1")
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
