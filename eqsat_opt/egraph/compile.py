"""Rules as egglog text: the e-graph's reader of the rule DSL.

Sizes and attributes are computed in the rule's body; the head builds the right side, records who
made each e-node and *wants* the union, which ruleset ``commit`` grants once both types are known
and equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.egraph.schema import Schema, key_of
from eqsat_opt.egraph.typing import TYPED_OPS
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph import attributes
from eqsat_opt.rules.rule import Phase, Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = ["BY_SCALE", "compile_rule"]

BY_SCALE = 4096
"""Provenance values are ``BY_SCALE * iteration + rule number``; smaller is earlier."""
_NOW = '(unstable-app (unstable-fn "now"))'
"""The iteration, called as a function. Matched as a table it would, at every change, make each rule
match the whole e-graph again instead of what is new; read plainly in an action it is refused."""

_LITERAL = 1 << 38


class _Compiler:
    """Collects the body facts and head actions of one directed rule."""

    def __init__(self, rule: Rule, number: int, schema: Schema) -> None:
        self.rule = rule
        self.number = number
        self.schema = schema
        self.kinds = dict(rule.kinds)
        self.body: list[str] = []
        self.head: list[str] = []
        self._shapes: set[str] = set()
        self._fresh = 0
        self._built: dict[int, str] = {}

    def fresh(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}_"

    # Left side ------------------------------------------------------------------------------------

    def match(self, term: Term) -> str:
        if isinstance(term, Var):
            return f"v_{term.name}"
        assert isinstance(term, Apply)
        operands = [self.match(arg) for arg in term.args]
        if term.op == MAP:
            return f"(Map {self.match_attr(term.attrs['f'], 'str')} {operands[0]})"
        if self.schema.is_function(term.op):
            return f'(Map "{self.function_key(term)}" {operands[0]})'
        kinds = self.schema.attr_kinds(term.op)
        columns = [self.match_attr(term.attrs[name], kind) for name, kind in kinds]
        return f"({term.op} {' '.join([*operands, *columns])})".replace(" )", ")")

    def match_attr(self, value: AttrPattern, kind: str) -> str:
        if isinstance(value, tuple):
            if all(part.kind == "literal" for part in value):
                return f"(vec-of {' '.join(str(part.args[0]) for part in value)})"
            vector = self.fresh("l")
            self.body.append(f"(= {len(value)} (vec-length {vector}))")
            self.body += [
                f"(= {self.match_attr(part, 'int')} (vec-get {vector} {i}))"
                for i, part in enumerate(value)
            ]
            return vector
        if value.kind not in ("literal", "attr"):
            raise RuleError(
                f"{self.rule.name}: the left side computes an attribute ({value}); "
                "bind it to a variable"
            )
        return self.value(value, kind)

    def function_key(self, term: Apply) -> str:
        literals = {}
        for name, value in term.attrs.items():
            if isinstance(value, tuple) or value.kind != "literal":
                raise RuleError(
                    f"{self.rule.name}: attributes of {term.op} must be literals in a rule"
                )
            literals[name] = value.args[0]
        return key_of(term.op, attributes(**literals)).replace('"', "'")

    # Sizes ----------------------------------------------------------------------------------------

    def shape(self, name: str) -> str:
        if name not in self._shapes:
            self._shapes.add(name)
            self.body.append(f"(= s_{name} (shape v_{name}))")
        return f"s_{name}"

    def value(self, expression: Expr, kind: str = "int") -> str:
        """An expression as text; shapes that it needs are joined in the body."""
        match expression.kind:
            case "literal":
                (literal,) = expression.args
                if kind == "float":
                    return repr(float(literal))
                return f'"{literal}"' if isinstance(literal, str) else str(literal)
            case "attr":
                return f"v_{expression.args[0]}"
            case "dim":
                return (
                    f"(vec-get {self.shape(expression.args[0])} {self.value(expression.args[1])})"
                )
            case "rank":
                return f"(vec-length {self.shape(expression.args[0])})"
            case "item":
                base, index = expression.args
                position = self.value(index) if isinstance(index, Expr) else index
                return f"(vec-get {self.value(base)} {position})"
            case "sqrt":
                return f"(^ {self.value(expression.args[0], 'float')} 0.5)"
            case "real":
                self.literal_extents(expression)
                return f"(to-f64 {self.value(expression.args[0])})"
            case operator:
                inner = "float" if self.is_real(expression) else "int"
                left, right = (self.value(arg, inner) for arg in expression.args)
                return f"({operator.removeprefix('/') or '/'} {left} {right})"

    def is_real(self, expression: Expr) -> bool:
        """Whether an expression is a float."""
        match expression.kind:
            case "literal":
                return isinstance(expression.args[0], float)
            case "attr":
                return self.kinds.get(expression.args[0]) == "Float"
            case "dim" | "rank" | "item" | "//":
                return False
            case "/" | "sqrt" | "real":
                return True
            case _:
                return any(self.is_real(arg) for arg in expression.args)

    def literal_extents(self, expression: Expr) -> None:
        """Demand that the extents below an expression are no symbols."""
        for leaf in expression.leaves():
            if leaf.kind == "dim":
                size = self.value(leaf)
                self.body += [f"(<= 0 {size})", f"(< {size} {_LITERAL})"]

    def compared(self, condition: Condition) -> tuple[str, str]:
        """Both sides of a comparison as text."""
        left, right = condition.args[:2]
        kind = "float" if self.is_real(left) or self.is_real(right) else "int"
        return self.value(left, kind), self.value(right, kind)

    def bound(self, expression: Expr, kind: str) -> str:
        """A computed attribute, bound in the body so that a failure is no match."""
        text = self.value(expression, kind)
        if not text.startswith("("):
            return text
        name = self.fresh("e")
        self.body.append(f"(= {name} {text})")
        return name

    def condition(self, condition: Condition) -> None:
        args = condition.args
        match condition.kind:
            case "same-shape":
                self.body.append(f"(= {self.shape(args[0])} {self.shape(args[1])})")
            case "distinct":
                self.body.append(f"(!= v_{args[0]} v_{args[1]})")
            case "is-float":
                self.body.append(f"(is-float (dtype v_{args[0]}))")
            case "follows":
                raise RuleError(
                    f"{self.rule.name}: merges siblings, which the e-graph does by its own seeds"
                )
            case "near" | "far":
                left, right = self.compared(condition)
                relation = "<=" if condition.kind == "near" else ">"
                bound = f"(* {args[2]!r} (abs {right}))"
                self.body.append(f"({relation} (abs (- {left} {right})) {bound})")
            case comparison:
                if comparison in ("<", "<="):
                    for arg in args:
                        self.literal_extents(arg)
                left, right = self.compared(condition)
                sign = "=" if comparison == "==" else comparison
                self.body.append(f"({sign} {left} {right})")

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
            if term.op not in TYPED_OPS:
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
            return self.bound(value, kind)
        name = self.fresh("e")
        self.body.append(f"(= {name} (vec-of {' '.join(self.value(part) for part in value)}))")
        return name

    def text(self, ruleset: str) -> str:
        patterns = [self.match(root) for root in self.rule.lhs]
        roots = [f"(= r{i}_ {pattern})" for i, pattern in enumerate(patterns)]
        for variable in dict.fromkeys(
            t.name for root in self.rule.lhs for t in root.walk() if isinstance(t, Var) and t.const
        ):
            self.body.append(f"(const v_{variable})")
        for condition in self.rule.when:
            self.condition(condition)
        self.head.append(f"(let by_ (+ (* {BY_SCALE} {_NOW}) {self.number}))")
        for i, root in enumerate(self.rule.rhs):
            built = self.build(root)
            self.head.append(f"(want r{i}_ {built} {self.number})")
        if self.rule.subsumes:
            for pattern, left, right in zip(patterns, self.rule.lhs, self.rule.rhs, strict=True):
                if left is not right:
                    self.head.append(f"(subsume {pattern})")
        body, head = " ".join([*roots, *self.body]), " ".join(self.head)
        return f'(rule ({body}) ({head}) :ruleset {ruleset} :name "{self.rule.name}")'


def compile_rule(rule: Rule, number: int, schema: Schema, ruleset: str | None = None) -> str:
    """The egglog command of one directed rule, in the ruleset of its phase if none is given.

    Raises:
        RuleError: if an operator of the right side cannot be typed in the e-graph.
    """
    return _Compiler(rule, number, schema).text(ruleset or rule.phase)


def rule_numbers(rules: Sequence[Rule]) -> dict[str, int]:
    """Stable numbers of rules by name, in the order of a round; 0 is the model itself."""
    phases = list(Phase)
    ordered = sorted(rules, key=lambda rule: phases.index(rule.phase))
    return {rule.name: i for i, rule in enumerate(ordered, start=1)}
