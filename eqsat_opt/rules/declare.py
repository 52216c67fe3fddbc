"""Rules whose parameters come from a table: schemas, families over ranks, and recognition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from eqsat_opt.rules.rule import Numerics, Phase, Rule, Sides, rule

__all__ = ["declared", "extents", "recognition"]


def declared(
    name: str,
    doc: str,
    kinds: Mapping[str, str],
    sides: Callable[[Mapping[str, Any]], Sides],
    *,
    numerics: Numerics = Numerics.BITEXACT,
    phase: Phase = Phase.EXPLORE,
    bidirectional: bool = False,
    backward: Numerics | None = None,
) -> Rule:
    """Make a rule as ``@rule`` does, where its parameters come from a table.

    Args:
        name: ``family/name``.
        doc: text on the equation and when it pays.
        kinds: variable name to annotation, in the order of the parameters.
        sides: takes the variables by name; returns left side, right side and conditions.
        numerics: class of the floating point change.
        phase: the phase in which the rule runs.
        bidirectional: whether the equation is read both ways.
        backward: numerics class of the reading from right to left, where it differs.

    Raises:
        RuleError: in the cases in which ``@rule`` raises it.
    """

    def stated(*variables: Any) -> Sides:
        return sides(dict(zip(kinds, variables, strict=True)))

    stated.__doc__ = doc
    stated.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
            for n, kind in kinds.items()
        ]
    )
    made = rule(
        name, numerics=numerics, phase=phase, bidirectional=bidirectional, backward=backward
    )
    return made(stated)


def extents(count: int) -> dict[str, str]:
    """Return parameters for the extents of a target shape; a rule of one rank binds each."""
    return dict.fromkeys("abcde"[:count], "Int")


def recognition(family: str) -> Callable[..., Callable[[Callable[..., Sides]], Rule]]:
    """Return a decorator like ``@rule`` for the laws of a family that recognises fused operators.

    It takes the short name of a law, and ``numerics`` and ``subsumes`` as ``@rule`` does.
    """

    def law(
        name: str, *, numerics: Numerics = Numerics.REASSOCIATE, subsumes: bool = False
    ) -> Callable[[Callable[..., Sides]], Rule]:
        return rule(
            f"{family}/{name}",
            numerics=numerics,
            phase=Phase.RECOGNISE,
            subsumes=subsumes,
        )

    return law
