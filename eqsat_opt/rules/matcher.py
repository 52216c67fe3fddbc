"""Where a rule applies in a graph: the plain reader, one graph at a time.

A rule is read left to right; give :func:`~eqsat_opt.rules.rule.directed` rules to have both ways.
Binary patterns meet binary nodes only: a convolution with a bias or a concatenation of three is
another shape of node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.ir.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.handles import uniform_value
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings, Undefined, bind_attr, holds, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Term, Var

__all__ = [
    "Deferred",
    "Match",
    "Matcher",
    "Refusal",
    "bind_or_defer",
    "is_renamable",
]

Deferred = list[tuple[AttrPattern, Any]]
"""Attribute patterns that are computed from variables, with the values that they must have."""


def bind_or_defer(pattern: AttrPattern, value: Any, bindings: Bindings, deferred: Deferred) -> bool:
    """Match an attribute value; what is computed from variables waits until these are bound."""
    if isinstance(pattern, tuple):
        fits = isinstance(value, tuple) and len(value) == len(pattern)
        pairs = zip(pattern, value, strict=True) if fits else ()
        return fits and all(bind_or_defer(p, v, bindings, deferred) for p, v in pairs)
    if pattern.kind in ("literal", "attr"):
        return bind_attr(pattern, value, bindings)
    deferred.append((pattern, value))
    return True


@dataclass(frozen=True)
class Match:
    """One place where a rule applies.

    Attributes:
        rule: read left to right.
        roots: values that the left sides define.
        nodes: the nodes of the left sides, roots included.
        values: tensor variable to value.
        attrs: attribute variable to value; a function variable to operator and attributes.
    """

    rule: Rule
    roots: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, str]
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class Refusal:
    """Why a match of all left sides does not apply.

    Attributes:
        number: how many conditions hold before this one; all of them where it is none.
        condition: that does not hold; ``None`` where the right side is to blame.
        text: what is wrong with the right side.
    """

    number: int
    condition: Condition | None
    text: str = ""


@dataclass
class _Trial:
    """A partial match; attributes that are computed from others wait for those."""

    values: dict[str, str] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=Bindings)
    nodes: list[Node] = field(default_factory=list)
    deferred: Deferred = field(default_factory=list)

    def copy(self) -> _Trial:
        return _Trial(
            dict(self.values), self.bindings.copy(), list(self.nodes), list(self.deferred)
        )

    def bind(self, pattern: AttrPattern, value: Any) -> bool:
        return bind_or_defer(pattern, value, self.bindings, self.deferred)


class Matcher:
    """Finds matches of many rules in one graph; the indices are built once."""

    def __init__(self, graph: Graph) -> None:
        """Index the nodes of ``graph``."""
        self.graph = graph
        self._by_op: dict[str, list[Node]] = defaultdict(list)
        self._readers: dict[str, list[Node]] = defaultdict(list)
        self._position = {name: i for i, name in enumerate((*graph.inputs, *graph.constants))}
        self._constant = set(graph.constants)
        for node in graph.nodes:
            self._by_op[node.op].append(node)
            for name in dict.fromkeys(node.reads):
                self._readers[name].append(node)
            if node.op != OPAQUE and all(name in self._constant for name in node.reads):
                self._constant.update(node.outputs)
            for name in node.outputs:
                self._position[name] = len(self._position)
        self._captured = {name for node in graph.nodes for name in node.captures}
        self._scalars: dict[str, float | None] = {}

    def matches(self, rule: Rule) -> Iterator[Match]:
        """Every place where ``rule`` applies, in order of its first root."""
        for trial, roots in self._found(rule):
            if self._refusal(rule, trial, roots) is None:
                yield Match(
                    rule=rule,
                    roots=roots,
                    nodes=tuple(trial.nodes),
                    values=trial.values,
                    attrs=trial.bindings.attrs,
                )

    def tries(self, rule: Rule) -> Iterator[tuple[tuple[str, ...], Bindings, Refusal | None]]:
        """Every match of the left sides: its roots, what it binds, and why it does not apply."""
        for trial, roots in self._found(rule):
            yield roots, trial.bindings, self._refusal(rule, trial, roots)

    def _found(self, rule: Rule) -> Iterator[tuple[_Trial, tuple[str, ...]]]:
        for trial, roots in self._join(rule, 0, _Trial(), ()):
            if all(bind_attr(p, value, trial.bindings) for p, value in trial.deferred):
                yield trial, roots

    # The left side -------------------------------------------------------------------------------

    def _join(
        self, rule: Rule, index: int, trial: _Trial, roots: tuple[str, ...]
    ) -> Iterator[tuple[_Trial, tuple[str, ...]]]:
        if index == len(rule.lhs):
            yield trial, roots
            return
        term = rule.lhs[index]
        assert isinstance(term, Apply)
        anchored = self._candidates(term, trial)
        for node in self._of_kind(term) if anchored is None else anchored:
            if node.outputs[0] in roots:
                continue
            attempt = trial.copy()
            if self._match(term, node.outputs[0], attempt):
                yield from self._join(rule, index + 1, attempt, (*roots, node.outputs[0]))

    def _of_kind(self, term: Apply) -> list[Node]:
        if term.op == MAP:
            return [node for node in self.graph.nodes if node.op in FUNCTIONS]
        return self._by_op[term.op]

    def _candidates(self, term: Apply, trial: _Trial) -> list[Node] | None:
        """Nodes that may match because they read what is bound already; ``None`` if nothing is."""
        for arg in term.args:
            below: list[str] | None = None
            if isinstance(arg, Var):
                below = [trial.values[arg.name]] if arg.name in trial.values else None
            elif isinstance(arg, Apply):
                nodes = self._candidates(arg, trial)
                below = None if nodes is None else [node.outputs[0] for node in nodes]
            if below is not None:
                above = {node.outputs[0]: node for name in below for node in self._readers[name]}
                return [node for node in above.values() if self._same_operator(term, node)]
        return None

    @staticmethod
    def _same_operator(term: Apply, node: Node) -> bool:
        if term.op == MAP:
            return node.op in FUNCTIONS
        return node.op == term.op and len(node.inputs) == len(term.args)

    def _match(self, term: Term, value: str, trial: _Trial) -> bool:
        if isinstance(term, Var):
            return self._bind(term, value, trial)
        assert isinstance(term, Apply)
        node = self.graph.producers.get(value)
        if node is None or not self._same_operator(term, node):
            return False
        if term.op == MAP:
            bound = trial.bind(term.attrs["f"], (node.op, node.attrs))
        else:
            bound = all(trial.bind(p, node.attr(k)) for k, p in term.attrs.items())
        trial.nodes.append(node)
        return bound and all(
            self._match_scalar(arg, i, node, trial)
            if isinstance(arg, Apply) and arg.op == "Scalar"
            else self._match(arg, node.inputs[i], trial)
            for i, arg in enumerate(term.args)
        )

    def _bind(self, variable: Var, value: str, trial: _Trial) -> bool:
        type_ = self.graph.tensor_type(value)
        if type_ is None or (variable.const and value not in self._constant):
            return False
        trial.bindings.types.setdefault(variable.name, type_)
        return trial.values.setdefault(variable.name, value) == value

    def _match_scalar(self, term: Apply, index: int, reader: Node, trial: _Trial) -> bool:
        """A scalar literal meets a uniform constant, if its reader has the same type with it."""
        value = reader.inputs[index]
        type_ = self.graph.tensor_type(value)
        scalar = self._scalar(value)
        if scalar is None or type_ is None:
            return self._match(term, value, trial)
        operands = [self.graph.tensor_type(name) for name in reader.inputs]
        operands[index] = TensorType(type_.dtype, ())
        known = [operand for operand in operands if operand is not None]
        try:
            result = get_op(reader.op).type_fn(known, dict(reader.attrs))
        except IllTyped:
            return False
        return (
            result == self.graph.tensor_type(reader.output)
            and trial.bind(term.attrs["value"], scalar)
            and trial.bind(term.attrs["dtype"], type_.dtype)
        )

    def _scalar(self, value: str) -> float | None:
        if value not in self._scalars:
            handle = self.graph.constants.get(value)
            self._scalars[value] = None if handle is None else uniform_value(handle)
        return self._scalars[value]

    # Conditions ----------------------------------------------------------------------------------

    def _refusal(self, rule: Rule, trial: _Trial, roots: tuple[str, ...]) -> Refusal | None:
        """The first reason why a match of all left sides does not apply; ``None`` if it does."""

        def related(kind: str, first: str, second: str) -> bool:
            a, b = trial.values[first], trial.values[second]
            return a != b if kind == "distinct" else self._position[a] < self._position[b]

        for number, condition in enumerate(rule.when):
            if not holds(condition, trial.bindings, related):
                return Refusal(number, condition)
        past = len(rule.when)
        for root, term in zip(roots, rule.rhs, strict=True):
            try:
                made, known = type_of(term, trial.bindings), self.graph.tensor_type(root)
            except (IllTyped, Undefined) as error:
                return Refusal(past, None, f"the right side has no type: {error}")
            if made != known:
                return Refusal(past, None, f"the right side is {made}, the left side {known}")
            if isinstance(term, Var) and not self._may_vanish(root, trial.values[term.name]):
                return Refusal(past, None, "a graph inside this one reads the result by its name")
        if len(roots) > 1 and self._depends(trial.values.values(), roots):
            return Refusal(past, None, "an operand is computed from a result")
        return None

    def _may_vanish(self, root: str, value: str) -> bool:
        """A captured value keeps its name, so something must define it."""
        return root not in self._captured or is_renamable(self.graph, value)

    def _depends(self, values: Any, roots: tuple[str, ...]) -> bool:
        """Whether some operand is computed from a root: replacing them all would be a cycle."""
        first = min(self._position[root] for root in roots)
        stack, seen = [v for v in values if self._position[v] >= first], set()
        while stack:
            name = stack.pop()
            if name in roots:
                return True
            if name in seen or self._position[name] < first:
                continue
            seen.add(name)
            node = self.graph.producers.get(name)
            stack += node.reads if node is not None else ()
        return False


def is_renamable(graph: Graph, value: str) -> bool:
    """Whether a value may take another name: nothing but the graph knows it by its own."""
    producer = graph.producers.get(value)
    return producer is not None and producer.op != OPAQUE and value not in graph.pinned
