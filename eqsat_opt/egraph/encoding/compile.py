"""Compilation of rules to egglog text.

Sizes and attributes are computed in the rule's body. The head builds the right side, records the
rule that made each e-node and requests the union (table ``want``), which ruleset ``commit``
performs once both types are known and equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.egraph.encoding.expressions import Expressions, vector_of
from eqsat_opt.egraph.encoding.schema import Schema, key_of, want_table
from eqsat_opt.egraph.encoding.typing import is_typed, on_integers
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.onnx.folding import rounds_alike
from eqsat_opt.ir.ops import OPS
from eqsat_opt.rules.rule import Phase, Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Expr, Term, Var, applied, parts

__all__ = ["BY_SCALE", "compile_rule"]

BY_SCALE = 4096
"""Provenance values are ``BY_SCALE * iteration + rule number``; smaller is earlier."""
_NOW = '(unstable-app (unstable-fn "now"))'
"""The iteration, called as a function value.

A table of it in a rule's body would, at every change, make each rule match the whole e-graph again
instead of only the new part; the engine refuses to read a table in an action.
"""


def _kinds(rule: Rule) -> dict[str, str]:
    """Return the kind of each attribute variable: that of the attribute that binds it."""
    kinds: dict[str, str] = {}
    for term in applied(rule.lhs):
        for name, value in term.attrs.items():
            if isinstance(value, tuple):
                kinds |= {part.args[0]: "int" for part in value if part.kind == "attr"}
            elif value.kind == "attr":
                kind = "str" if term.op == MAP else OPS[term.op].attrs[name]
                kind = "int" if kind == "size" else kind
                if kinds.setdefault(value.args[0], kind) != kind:
                    raise RuleError(
                        f"{rule.name}: {value} is both {kind} and {kinds[value.args[0]]}; "
                        "use two variables"
                    )
    return kinds


_LITERAL_LISTS = frozenset({"perm", "axes"})
"""List attributes that name axes; all other lists may contain symbolic sizes."""


def _literal(rule: Rule) -> set[str]:
    """Return attribute variables that cannot be symbolic: only sizes and list elements can."""
    found: set[str] = set()
    for term in applied(rule.lhs):
        for name, value in term.attrs.items():
            kind = "str" if term.op == MAP else OPS[term.op].attrs[name]
            if name in _LITERAL_LISTS or kind not in ("ints", "size"):
                found |= {part.args[0] for part in parts(value) if part.kind == "attr"}
    return found


def _moves(rule: Rule) -> bool:
    """Return whether a rule moves elements in memory; a reshape leaves them in their places."""
    return any(term.op not in (MAP, "Reshape") for term in applied(rule.roots))


class _Compiler:
    """Compiler of one directed rule, with its body facts and head actions so far."""

    def __init__(self, rule: Rule, number: int, schema: Schema) -> None:
        self.rule = rule
        self.number = number
        self.schema = schema
        self.body: list[str] = []
        self.head: list[str] = []
        self.facts: list[str] = []
        self.expressions = Expressions(rule.name, _kinds(rule), _literal(rule), self.body)
        self.fresh = self.expressions.fresh
        self.value = self.expressions.value
        self._built: dict[int, str] = {}

    # Left side ------------------------------------------------------------------------------------

    def match(self, term: Term) -> str:
        if isinstance(term, Var):
            return f"v_{term.name}"
        assert isinstance(term, Apply)
        operands = [self.match(arg) for arg in term.args]
        if term.op == MAP:
            function = self.match_attr(term.attrs["f"], "str")
            if self.schema.exact and _moves(self.rule):
                self.body.append(f"(rounds-alike {function})")
            return f"(Map {function} {operands[0]})"
        if self.schema.is_function(term.op):
            return f'(Map "{self.function_key(term)}" {operands[0]})'
        kinds = self.schema.attr_kinds(term.op)
        columns = [self.match_attr(term.attrs[name], kind) for name, kind in kinds]
        return f"({term.op} {' '.join([*operands, *columns])})".replace(" )", ")")

    def match_attr(self, value: AttrPattern, kind: str) -> str:
        if isinstance(value, tuple):
            if all(part.kind == "literal" for part in value):
                return vector_of([self.value(part) for part in value])
            vector = self.fresh("l")
            self.body.append(f"(= {len(value)} (vec-length {vector}))")
            self.body += [
                f"(= {self.match_attr(part, 'int')} (vec-get {vector} {i}))"
                for i, part in enumerate(value)
            ]
            return vector
        if value.kind not in ("literal", "attr", "dtype"):
            raise RuleError(
                f"{self.rule.name}: the left side computes an attribute ({value}); "
                "bind it to a variable"
            )
        return (
            self.expressions.bind(value, kind) if value.kind == "attr" else self.value(value, kind)
        )

    def function_key(self, term: Apply) -> str:
        literals = {}
        for name, value in term.attrs.items():
            if isinstance(value, tuple) or value.kind != "literal":
                raise RuleError(
                    f"{self.rule.name}: attributes of {term.op} must be literals in a rule"
                )
            literals[name] = value.args[0]
        kinds = OPS[term.op].attrs
        attrs: Attrs = tuple(
            (name, float(value) if kinds[name] == "float" else value)
            for name, value in sorted(literals.items())
        )
        key = key_of(term.op, attrs).replace('"', "'")
        if on_integers(term.op):
            self.facts.append(f'(on-integers "{key}")')
        if self.schema.exact and rounds_alike(term.op):
            self.facts.append(f'(rounds-alike "{key}")')
        return key

    # Right side -----------------------------------------------------------------------------------

    def build(self, term: Term) -> str:
        if isinstance(term, Var):
            return f"v_{term.name}"
        if id(term) in self._built:
            return self._built[id(term)]
        assert isinstance(term, Apply)
        operands = [self.build(arg) for arg in term.args]
        if term.op == MAP:
            function = term.attrs["f"]
            assert isinstance(function, Expr)
            name, columns = "Map", [self.value(function, "str"), *operands]
        elif self.schema.is_function(term.op):
            name, columns = "Map", [f'"{self.function_key(term)}"', *operands]
        else:
            if not is_typed(term.op):
                raise RuleError(
                    f"{self.rule.name}: {term.op} has no typing rule in the e-graph, "
                    "so it cannot stand on a right side"
                )
            attrs = [
                self.build_attr(term.attrs[key], kind)
                for key, kind in self.schema.attr_kinds(term.op)
            ]
            name, columns = term.op, [*operands, *attrs]
        text, node = " ".join(columns), self.fresh("n")
        self.head.append(f"(let {node} ({name} {text}))")
        self.head.append(f"(set ({name}_by {text}) by_)")
        self._built[id(term)] = node
        return node

    def build_attr(self, value: AttrPattern, kind: str) -> str:
        if isinstance(value, Expr):
            return self.expressions.attribute(value, kind)
        return self.expressions.vector(value)

    def text(self, ruleset: str) -> str:
        patterns = [self.match(root) for root in self.rule.lhs]
        roots = [f"(= r{i}_ {pattern})" for i, pattern in enumerate(patterns)]
        for variable in dict.fromkeys(
            t.name for root in self.rule.lhs for t in root.walk() if isinstance(t, Var) and t.const
        ):
            self.body.append(f"(const v_{variable})")
        for condition in self.rule.when:
            self.expressions.condition(condition)
        self.head.append(f"(let by_ (+ (* {BY_SCALE} {_NOW}) {self.number}))")
        pairs = [f"r{i}_ {self.build(root)}" for i, root in enumerate(self.rule.rhs)]
        self.head.append(f"({want_table(len(pairs))} {' '.join(pairs)} {self.number})")
        if self.rule.subsumes:
            for pattern, left, right in zip(patterns, self.rule.lhs, self.rule.rhs, strict=True):
                if left is not right:
                    self.head.append(f"(subsume {pattern})")
        body, head = " ".join([*roots, *self.body]), " ".join(self.head)
        text = f'(rule ({body}) ({head}) :ruleset {ruleset} :name "{self.rule.name}")'
        return "\n".join([*dict.fromkeys(self.facts), text])


def compile_rule(rule: Rule, number: int, schema: Schema, ruleset: str | None = None) -> str:
    """Return the egglog commands of one directed rule, in its phase's ruleset by default.

    Raises:
        RuleError: an operator of the right side cannot be typed in the e-graph, or a computed
            attribute is of the wrong kind.
    """
    return _Compiler(rule, number, schema).text(ruleset or rule.phase)


def rule_numbers(rules: Sequence[Rule]) -> dict[str, int]:
    """Return stable numbers of rules by name, in the order of a round; 0 is the model itself."""
    phases = list(Phase)
    ordered = sorted(rules, key=lambda rule: phases.index(rule.phase))
    return {rule.name: i for i, rule in enumerate(ordered, start=1)}
