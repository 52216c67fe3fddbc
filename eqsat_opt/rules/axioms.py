"""The 23 equations from which the sound rules of TASO and the guarded grouped merge are derived.

They are read both ways and hold for any tensors. Each is one rule of the book or a few, except R17,
which is a definition here: a convolution with a fused activation is spelled as the activation of a
convolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.library import book
from eqsat_opt.rules.rule import Rule

__all__ = ["EQUATIONS", "axioms"]

EQUATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "R1 add commutes": ("elementwise/add-commute",),
    "R2 add associates": ("elementwise/add-assoc",),
    "R3 mul commutes": ("elementwise/mul-commute",),
    "R4 mul associates": ("elementwise/mul-assoc",),
    "R5 mul distributes": ("elementwise/factor",),
    "R6 matmul associates": ("matmul/assoc",),
    "R7 matmul is linear on the right": ("matmul/distribute-right",),
    "R8 matmul is linear on the left": ("matmul/distribute-left",),
    "R9 matmul of columns": ("equations/matmul-columns",),
    "R10 matmul of rows": ("equations/matmul-rows",),
    "R11 matmul of blocks": ("equations/matmul-blocks",),
    "R12 conv is linear in the weight": ("equations/conv-add-weights",),
    "R13 conv is linear in the data": ("conv/linear-in-data",),
    "R14 conv of filters": ("equations/conv-filters",),
    "R15 conv of samples": ("equations/conv-batch",),
    "R16 conv of blocks": ("equations/conv-blocks",),
    "R17 fused activation": (),
    "R18 map over concat": ("concat/map",),
    "R19 concat of sums": ("equations/concat-add",),
    "R20 concat of products": ("equations/concat-mul",),
    "R21 concat exchange": ("equations/concat-exchange",),
    "R22 first part": ("concat/slice-left", "concat/whole-slice"),
    "R23 second part": ("concat/slice-right", "concat/whole-slice"),
})  # fmt: skip
"""The rules of the book that state each equation, by its name."""


def axioms(equations: Sequence[str] | None = None) -> tuple[Rule, ...]:
    """Return the rules that state the given equations (all 23 if ``None``), each once.

    The name of a rule may be given in place of an equation.

    Raises:
        RuleError: a name is neither that of an equation nor that of a rule.
    """
    known = book()
    chosen: dict[str, Rule] = {}
    for equation in EQUATIONS if equations is None else equations:
        for name in EQUATIONS.get(equation, (equation,)):
            if name not in known:
                raise RuleError(f"no equation or rule {name!r}; see `eqsat-opt rules list`")
            chosen[name] = known[name]
    return tuple(chosen.values())
