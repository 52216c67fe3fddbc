"""The rule sets of published systems, as far as they are correct.

The substitutions that MetaFlow names in its paper, and those that TASO and OCGGS have in their
code, are rules of the book here. Those that TASO generated are equations beside its reader; four of
them are wrong, and others hold for ordinary convolutions only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from eqsat_opt.proving.taso.convert import Groups, to_rule
from eqsat_opt.proving.taso.equations import published_rules
from eqsat_opt.proving.taso.handwritten import HAND_WRITTEN
from eqsat_opt.rules.rule import Rule

__all__ = ["COSTS_ONLY", "METAFLOW", "RULE_SETS", "book_rules_of", "file_rules_of"]

RULE_SETS = ("metaflow", "taso", "taso-published", "ocggs")
"""Names of rule sets that a selection may contain."""

COSTS_ONLY = frozenset({"taso-published"})
"""Sets with wrong rules, which serve to reproduce published costs and nothing else."""

_WRONG = frozenset({99, 100, 130, 131})
"""Rules of TASO's file that are refuted; all others are derived from the book (`conformance`)."""

_FUSIONS = frozenset({63, 64, 65, 66})
"""Rules of TASO's file that fuse an activation or split it off; here it is its own operator."""

METAFLOW: Mapping[str, tuple[str, ...]] = {
    "enlarge convolution kernel": ("conv/enlarge-kernel", "conv/enlarge-crossed-kernels"),
    "fuse two convolutions": ("conv/merge-siblings",),
    "fuse convolution and add": (
        "conv/absorb-addend", "conv/absorb-addend-after-bias", "conv/residual-identity",
    ),
    "fuse convolution and batch normalisation": ("conv/fold-scale",),
    "fuse two matrix products": ("matmul/merge-weights",),
    "distribute, reorder and factor out": ("elementwise/gate", "elementwise/factor-difference"),
    "biases of fused operators": ("matmul/merge-operands",),
    "activation of fused operators": ("concat/map-slice",),
    "split of split": ("concat/slice-of-slice",),
    "concatenation of a split": (
        "concat/whole-slice", "concat/adjacent-slices", "concat/adjacent-slices-nested",
    ),
    "split of a concatenation": ("concat/slice-left", "concat/slice-right"),
}  # fmt: skip
"""Substitution to rules of the book.

The paper counts 14: those that it shows (§3, Figures 1, 4 and 7) and those of TensorFlow XLA, which
it does not list. A kernel with its bias, activation or chain of elementwise operators is not a rule
here but a kernel of the device, at level ``kernels``. MetaFlow's operators include bias and
activation. Here these are operators of their own, which move through a split by rules of their own.
"""

_TASO = ("conv/fold-scale", "conv/enlarge-kernel")
"""The correct rules in TASO's code; its fusions of activations are kernels here."""

_OCGGS = (*_TASO, "conv/enlarge-crossed-kernels", "conv/merge-siblings")

_OF_BOOK: Mapping[str, tuple[str, ...]] = {
    "metaflow": tuple(chain.from_iterable(METAFLOW.values())),
    "taso": _TASO,
    "taso-published": _TASO,
    "ocggs": _OCGGS,
}


def book_rules_of(name: str) -> tuple[str, ...]:
    """Return the names of the rules of a set that are in the book."""
    return _OF_BOOK[name]


def file_rules_of(name: str) -> list[Rule]:
    """Return the rules of a set that are not in the book, each of them once.

    These are TASO's. Wrong rules are left out, except in the published set.
    """
    if name == "metaflow":
        return []
    rules = [one for one in published_rules() if one.number not in _FUSIONS]
    if name in COSTS_ONLY:
        return [*_distinct([to_rule(one, Groups.ANY) for one in rules]), *HAND_WRITTEN[:2]]
    return _distinct([to_rule(one) for one in rules if one.number not in _WRONG])


def _distinct(rules: Sequence[Rule]) -> list[Rule]:
    """Return the first of the rules that read alike; variables are named in reading order.

    Where activations are operators of their own, some rules are the same with and without one.
    """
    found: dict[str, Rule] = {}
    for one in rules:
        found.setdefault(str(one), one)
    return list(found.values())
