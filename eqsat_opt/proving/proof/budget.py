"""The budget of a proof, counted in work that is the same on every machine.

A limit in seconds would let a busy machine refuse a rule that an idle one proves, and certificates
would depend on it. So the prover counts its work: scenarios, steps of simplification, and questions
to z3 by their length and by the resource units that z3 itself counts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from eqsat_opt.proving.proof.record import Record

__all__ = ["Budget", "OutOfWork"]

_UNITS_PER_S = 20_000
"""Approximate work units per second of an idle core of 2024; they only set the scale of limits."""
_SCENARIOS = 4
"""Limit of all scenarios together, as a multiple of the limit of one."""
_SCENARIO = 10
_STEP = 6
_QUESTION = 10
_CHARACTERS = 100
"""Characters of a question that cost one unit."""
_RESOURCES = 300
"""Resource units of z3 that cost one unit."""


class OutOfWork(Exception):
    """The error raised when the limit of a proof is reached."""


class Budget:
    """The remaining budget of a proof, its z3 context, and its record where one is kept."""

    def __init__(self, nominal_s: float, record: Record | None = None) -> None:
        """Allow each scenario about ``nominal_s`` seconds of work on an idle core, and no more.

        The scenarios of a rule take similar work: a rule that can be proved is proved quickly in
        each, and a rule that cannot is given up at the first scenario without a proof.
        """
        self.record = record
        self._limit = int(nominal_s * _UNITS_PER_S)
        self._left, self._total = self._limit, self._limit * _SCENARIOS

    @cached_property
    def z3(self) -> Any:
        """The z3 context of this proof alone: earlier questions change the steps that z3 takes."""
        import z3

        return z3.Context()

    def scenario(self) -> None:
        """Begin one scenario."""
        self._left = self._limit
        self._spend(_SCENARIO)

    def step(self) -> None:
        """Count one step of simplification."""
        self._spend(_STEP)

    def question(self, characters: int, resources: int) -> None:
        """Count one question to z3."""
        self._spend(_QUESTION + characters // _CHARACTERS + resources // _RESOURCES)

    def _spend(self, units: int) -> None:
        self._left -= units
        self._total -= units
        if min(self._left, self._total) < 0:
            raise OutOfWork
