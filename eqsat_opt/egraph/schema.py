"""How operators stand in the e-graph.

* An operator that some rule mentions has a constructor of its own, with its attributes as columns.
* Any elementwise unary function is ``(Map "name|attributes" x)``, so one rule serves them all;
  unless a rule leaves its attributes open, which makes them columns.
* Everything else, opaque nodes included, is ``(Node_k "key" x1 … xk)``: equal keys and operands are
  equal nodes, and an opaque node's key is unique, so two of them never merge.
* ``(Leaf i)`` is a graph input or a constant, ``(Out i t)`` an output of an opaque node, ``(Orig
  i)`` names the class of the i-th loaded term.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat_opt.ir.graph import Attrs
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.ops.pointwise import UNARY_FUNCTIONS
from eqsat_opt.ir.types import FLOATS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, Expr

__all__ = ["ALWAYS_TYPED", "SORTS", "Schema", "key_of"]

SORTS = {"int": "i64", "float": "f64", "str": "String", "ints": "Ints"}

ALWAYS_TYPED = (
    "Add", "Sub", "Mul", "Div", "MatMul", "Conv", "Concat", "Slice", "Transpose", "Reshape", "Pad",
    "Scalar", "IdentityKernel",
)  # fmt: skip
"""Operators with a constructor even if no rule names them: lowering and merging make them."""

_ARITY = {"Conv": 2, "Concat": 2}
"""Operands in the e-graph where the registry allows several counts."""


def _has_columns(term: Apply) -> bool:
    """An elementwise function has columns only where a rule leaves its attributes open."""
    if term.op == MAP or term.op not in UNARY_FUNCTIONS:
        return term.op != MAP
    return any(not isinstance(v, Expr) or v.kind != "literal" for v in term.attrs.values())


def key_of(op: str, attrs: Attrs) -> str:
    """The text that identifies an operator and its attributes."""
    return "|".join([op, *(f"{k}={v!r}" for k, v in attrs)])


@dataclass(frozen=True)
class Schema:
    """Which operators have constructors, and how many operands a generic node may have."""

    typed: tuple[str, ...]
    max_arity: int

    @classmethod
    def of(
        cls, rules: Iterable[Rule], max_arity: int, always: Sequence[str] = ALWAYS_TYPED
    ) -> Schema:
        """The schema that ``rules`` need, with constructors for ``always`` as well."""
        mentioned = {
            term.op
            for rule in rules
            for root in (*rule.lhs, *rule.rhs)
            for term in root.walk()
            if isinstance(term, Apply) and _has_columns(term)
        }
        return cls(tuple(sorted(mentioned | set(always))), max_arity)

    def is_function(self, op: str) -> bool:
        """Whether ``op`` stands as ``(Map "name|attributes" x)``."""
        return op in UNARY_FUNCTIONS and op not in self.typed

    def arity(self, op: str) -> int:
        """Number of operands of a typed operator."""
        return _ARITY.get(op, OPS[op].arity[1])

    def attr_kinds(self, op: str) -> list[tuple[str, str]]:
        """Attribute names and kinds of a typed operator, in column order."""
        return sorted(OPS[op].attrs.items())

    def columns(self, op: str) -> list[str]:
        """Sorts of a typed constructor's columns: operands, then attributes."""
        return ["T"] * self.arity(op) + [SORTS[kind] for _, kind in self.attr_kinds(op)]

    def constructors(self) -> dict[str, list[str]]:
        """Every constructor of e-nodes with its columns."""
        table = {op: self.columns(op) for op in self.typed}
        table["Map"] = ["String", "T"]
        for arity in range(self.max_arity + 1):
            table[f"Node_{arity}"] = ["String"] + ["T"] * arity
        table["Leaf"] = ["i64"]
        table["Out"] = ["i64", "T"]
        return table

    def declarations(self) -> list[str]:
        """The commands that declare sorts, tables and rulesets."""
        commands = [
            "(sort T)",
            "(sort Ints (Vec i64))",
            "(constructor Orig (i64) T :unextractable)",
            # No merge function: uniting tensors of different type is an error, which checks every
            # rule for free.
            "(function shape (T) Ints :no-merge)",
            "(function dtype (T) String :no-merge)",
            "(relation is-float (String))",
            *(f'(is-float "{dtype}")' for dtype in sorted(FLOATS)),
            "(relation const (T))",
            "(relation want (T T i64))",
            "(function now () i64 :merge (max old new))",
            "(relation broadcast-demand (Ints Ints))",
            "(function broadcast (Ints Ints) Ints :no-merge)",
            "(relation product-demand (Ints))",
            "(function product (Ints) i64 :no-merge)",
            *(f"(ruleset {name})" for name in _RULESETS),
        ]
        for name, columns in self.constructors().items():
            commands.append(f"(constructor {name} ({' '.join(columns)}) T)")
            commands.append(f"(function {name}_by ({' '.join(columns)}) i64 :merge (min old new))")
        return commands


_RULESETS: Sequence[str] = (
    "load",
    "typing",
    "commit",
    "recognise",
    "simplify",
    "explore",
    "siblings",
    "algebra",
)
