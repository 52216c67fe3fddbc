"""The representation of operators in the e-graph.

* An operator that some rule mentions has a constructor of its own, with its attributes as columns.
* Any elementwise unary function is ``(Map "name|attributes" x)``, so that one rule covers all of
  them, unless a rule leaves its attributes open, which makes them columns. ``on-integers`` lists
  the functions that are not only for floats.
* All other operators, opaque nodes included, are ``(Node_k "key" x1 … xk)``: equal keys and
  operands are equal nodes, and an opaque node's key is unique, so two of them never merge.
* ``(Leaf i)`` is a graph input or a constant, ``(Out i t)`` an output of an opaque node, ``(Orig
  i)`` names the class of the i-th loaded term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.values.types import FLOATS, WHOLE_RANGES
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, Expr, applied

__all__ = ["SORTS", "Schema", "key_of", "want_table"]

SORTS = {"int": "i64", "size": "i64", "float": "f64", "str": "String", "ints": "Ints"}

_TYPED_IN_MODELS = frozenset({
    "Add", "Sub", "Mul", "Div", "MatMul", "Conv", "Concat", "Slice", "Transpose", "Reshape", "Pad",
    "Scalar", "IdentityKernel",
})  # fmt: skip
"""Operators that have a constructor if the model has them, even if no rule names them.

Their results on constants are therefore known to be constant.
"""


def _node(operands: int) -> str:
    return f"Node_{operands}"


_ARITY = {"Conv": 2, "Concat": 2}
"""Number of operands in the e-graph of operators for which the registry allows several counts."""


def _has_columns(term: Apply) -> bool:
    """Return whether the attributes of a term are columns.

    Those of an elementwise function are columns only if a rule leaves them open.
    """
    if term.op == MAP or term.op not in FUNCTIONS:
        return term.op != MAP
    return any(not isinstance(v, Expr) or v.kind != "literal" for v in term.attrs.values())


def key_of(op: str, attrs: Attrs) -> str:
    """Return the text that identifies an operator and its attributes."""
    return "|".join([op, *(f"{k}={v!r}" for k, v in attrs)])


def want_table(roots: int) -> str:
    """Return the name of the table of requested unions for rules with that many roots.

    Its columns are the pairs to be united, then the rule's number.
    """
    return "want" if roots == 1 else f"want_{roots}"


@dataclass(frozen=True)
class Schema:
    """The constructors of an e-graph, few because the engine pays for each at every step.

    Attributes:
        typed: operators with a constructor of their own, in order.
        generic: numbers of operands that generic nodes have, in order.
        roots: numbers of roots that rules have, in order.
        exact: whether results must be equal bit for bit. If so, rules that move elements and match
            an arbitrary function match only those in ``rounds-alike``.
    """

    typed: tuple[str, ...]
    generic: tuple[int, ...]
    roots: tuple[int, ...] = (1,)
    exact: bool = False

    @classmethod
    def of(
        cls, rules: Iterable[Rule], held: Iterable[tuple[str, int]], *, exact: bool = False
    ) -> Schema:
        """Return the schema for ``rules`` and for the operators with operand counts in ``held``."""
        held, rules = set(held), tuple(rules)
        mentioned = {
            term.op for rule in rules for term in applied(rule.roots) if _has_columns(term)
        }
        typed = mentioned | {op for op, _ in held if op in _TYPED_IN_MODELS}
        roots = tuple(sorted({1, *(len(rule.lhs) for rule in rules)}))
        schema = cls(tuple(sorted(typed)), (), roots, exact)
        generic = {count for op, count in held if schema.constructor(op, count) == _node(count)}
        return replace(schema, generic=tuple(sorted(generic)))

    def constructor(self, op: str, operands: int) -> str:
        """Return the constructor of a term, given its operator and number of operands."""
        if op in (LEAF, OUT):
            return op
        if self.is_function(op):
            return "Map"
        if op in self.typed and operands == self.arity(op):
            return op
        return _node(operands)

    def is_function(self, op: str) -> bool:
        """Return whether ``op`` is represented as ``(Map "name|attributes" x)``."""
        return op in FUNCTIONS and op not in self.typed

    def arity(self, op: str) -> int:
        """Return the number of operands of a typed operator."""
        return _ARITY.get(op, OPS[op].arity[1])

    def attr_kinds(self, op: str) -> list[tuple[str, str]]:
        """Return attribute names and kinds of a typed operator, in column order."""
        return sorted(OPS[op].attrs.items())

    def columns(self, op: str) -> list[str]:
        """Return sorts of a typed constructor's columns: operands, then attributes."""
        return ["T"] * self.arity(op) + [SORTS[kind] for _, kind in self.attr_kinds(op)]

    def constructors(self) -> dict[str, list[str]]:
        """Return every constructor of e-nodes with its columns."""
        table = {op: self.columns(op) for op in self.typed}
        table["Map"] = ["String", "T"]
        for arity in self.generic:
            table[_node(arity)] = ["String"] + ["T"] * arity
        table[LEAF] = ["i64"]
        table[OUT] = ["i64", "T"]
        return table

    def enodes(self, sizes: Mapping[str, int]) -> int:
        """Return the number of e-nodes, given the number of rows of every table."""
        return sum(sizes.get(name, 0) for name in self._names)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.constructors())

    def declarations(self) -> list[str]:
        """Return the commands that declare sorts, tables and rulesets."""
        commands = [
            "(sort T)",
            "(sort Ints (Vec i64))",
            "(constructor Orig (i64) T :unextractable)",
            # Without a merge function it is an error to unite tensors of different types, which
            # checks every rule at no cost.
            "(function shape (T) Ints :no-merge)",
            "(function dtype (T) String :no-merge)",
            "(relation is-float (String))",
            *(f'(is-float "{dtype}")' for dtype in sorted(FLOATS)),
            "(relation whole-range (String f64 f64))",
            *(
                f'(whole-range "{dtype}" {low!r} {end!r})'
                for dtype, (low, end) in WHOLE_RANGES.items()
            ),
            "(relation on-integers (String))",
            *(["(relation rounds-alike (String))"] if self.exact else []),
            "(relation const (T))",
            *(f"(relation {want_table(n)} ({'T T ' * n}i64))" for n in self.roots),
            "(function now () i64 :merge (max old new))",
            "(sort Clock (UnstableFn () i64))",  # the sort of ``now`` when rules call it
            "(relation broadcast-demand (Ints Ints))",
            "(function broadcast (Ints Ints) Ints :no-merge)",
            # Sizes that the model broadcasts although nothing shows that they fit.
            "(relation joins (i64 i64 i64))",
            "(relation batched (T String Ints Ints i64 i64))",
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
    "algebra",
)
