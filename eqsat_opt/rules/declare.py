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
    """Make a rule as ``@rule`` does, of a function of ``kinds`` that returns ``sides``.

    Raises:
        RuleError: as ``@rule`` does.
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
    """Parameters for the extents of a target shape, which a rule of one rank binds one by one."""
    return dict.fromkeys("abcde"[:count], "Int")


def recognition(family: str) -> Callable[..., Callable[[Callable[..., Sides]], Rule]]:
    """``@rule`` for the laws of a family that recognises fused operators, given their short names.

    It takes ``numerics`` and ``subsumes`` as ``@rule`` does.
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
