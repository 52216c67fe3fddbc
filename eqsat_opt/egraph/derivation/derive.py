"""Derivation of a rule from others: both sides in one e-graph, until they meet.

The sides are ground terms over inputs of a generic instance
(:mod:`eqsat_opt.egraph.derivation.generic`), so a step that needs two extents to be equal is
possible only where the rule's own typing makes them equal. Every term that a step adds is typed,
and a union waits until both types are known and equal, as in any saturation. Hence each
intermediate term of the derivation is well-typed.

The instance is a witness for all typings of its frame (ranks, axes, groups, strides), unless its
random extents agree by chance; other frames are derived one by one, each with its own instance.
Where an axiom compares extents (bounds of slices), their order is that of the instances.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from eqsat_opt.egraph.derivation.generic import generic_instances
from eqsat_opt.egraph.encoding.compile import compile_rule
from eqsat_opt.egraph.encoding.extents import ExtentCodes
from eqsat_opt.egraph.encoding.schema import Schema
from eqsat_opt.egraph.encoding.typing import SETTLED, typing_rules
from eqsat_opt.egraph.engine.driver import Engine, compiled_engine
from eqsat_opt.egraph.loading.siblings import Seeds
from eqsat_opt.egraph.loading.tables import load
from eqsat_opt.egraph.terms import LEAF, Lowered, TermNode
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Constant, attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.values.types import TensorType, require_static
from eqsat_opt.rules.bindings import Bindings, Undefined, operator, type_of
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["Derivation", "GroundTerms", "Prover", "derive", "readable"]

_ALL = "axioms_"
_SETTLE = f"(run-schedule {SETTLED})"
_GOALS = (
    "(relation goal_ (i64 i64))",
    "(relation met_ (i64 i64))",
    "(ruleset meet_)",
    "(rule ((goal_ a b) (= c (Orig a)) (= c (Orig b))) ((met_ a b)) :ruleset meet_)",
)
_HELD = tuple((OPAQUE, operands) for operands in range(5))
"""Placeholders for terms of goals whose operator is in no axiom, with up to four operands."""


@dataclass(frozen=True)
class Derivation:
    """The derivation of a rule from others.

    Attributes:
        rule: its name.
        axioms: names of the rules that it was derived from; without any one of these it is not
            derived within as many iterations.
        iterations: rounds of all axioms until both sides met, in the instance that took longest.
        instances: the typings, each as text, at which it was derived.
        enodes: size of the largest e-graph.
        time_s: total time, s.
    """

    rule: str
    axioms: tuple[str, ...]
    iterations: int
    instances: tuple[str, ...]
    enodes: int
    time_s: float

    def __str__(self) -> str:
        rounds = "1 iteration" if self.iterations == 1 else f"{self.iterations} iterations"
        source = ", ".join(self.axioms) or "nothing but the equality of both sides"
        return f"{self.rule}: derived in {rounds} from {source}"


@dataclass(frozen=True)
class _Proof:
    """The derivation at one instance."""

    axioms: frozenset[str]
    iterations: int
    enodes: int


def _no_bytes() -> NoReturn:
    raise AssertionError("a derivation asked for a weight")


class GroundTerms:
    """The sides of a rule over the inputs of one instance, as terms of the e-graph, each once."""

    def __init__(self, goal: Rule, bindings: Bindings) -> None:
        self.kinds = dict(goal.kinds)
        self.bindings = bindings
        self.nodes: list[TermNode] = []
        self.index: dict[tuple[Any, ...], int] = {}
        self.leaves: list[str] = []

    def add(self, term: Term) -> int:
        """Add a term and return its number.

        Raises:
            RuleError: it is ill-typed in the instance.
        """
        try:
            type_ = type_of(term, self.bindings)
        except (IllTyped, Undefined) as error:
            raise RuleError(f"{term} has no type in a derivation: {error}") from error
        if isinstance(term, Var):
            if term.name not in self.leaves:
                self.leaves.append(term.name)
            return self.node(LEAF, attributes(index=self.leaves.index(term.name)), (), type_)
        assert isinstance(term, Apply)
        children = [self.add(arg) for arg in term.args]
        op, values = operator(term, self.bindings)
        attrs = attributes(**values)
        if op != "Concat":
            return self.node(op, attrs, tuple(children), type_)
        # The e-graph has binary concatenations, nested to the left.
        number = children[0]
        for i, child in enumerate(children[1:], start=2):
            nested = type_of(Apply("Concat", term.args[:i], term.attrs), self.bindings)
            number = self.node(op, attrs, (number, child), nested)
        return number

    def node(self, op: str, attrs: Attrs, children: tuple[int, ...], type_: TensorType) -> int:
        key = (op, attrs, children)
        if key not in self.index:
            self.index[key] = len(self.nodes)
            self.nodes.append(TermNode(op, attrs, children, type_))
        return self.index[key]

    def lowered(self) -> Lowered:
        constants = {
            name: Constant(require_static(self.bindings.types[name]), f"variable {name}", _no_bytes)
            for name in self.leaves
            if self.kinds.get(name) == "Weight"
        }
        return Lowered.of_terms(self.nodes, self.leaves, constants)


class Prover:
    """A prover of many rules from the same axioms, which are compiled once."""

    def __init__(
        self, axioms: Sequence[Rule], *, iterations: int = 5, nodes: int = 4_000, most: int = 4
    ) -> None:
        """Compile ``axioms``.

        Args:
            axioms: rules, read both ways if they are bidirectional; no goal is used for itself.
                Those that are not :func:`readable` are left out.
            iterations: rounds of all axioms before a derivation is given up.
            nodes: number of e-nodes above which it is given up.
            most: greatest number of instances at which a rule is derived.

        Raises:
            RuleError: two axioms have one name.
        """
        self.axioms = readable(_distinct(axioms))
        self.iterations = iterations
        self.nodes = nodes
        self.most = most
        one_way = directed(self.axioms)
        self._ruleset = {rule.name: f"axiom{i}_" for i, rule in enumerate(one_way)}
        self._schema = Schema.of(one_way, _HELD)
        self._program = (
            *self._schema.declarations(),
            *typing_rules(self._schema),
            *(f"(ruleset {name})" for name in self._ruleset.values()),
            *(
                compile_rule(rule, number, self._schema, self._ruleset[rule.name])
                for number, rule in enumerate(one_way, start=1)
            ),
            f"(unstable-combined-ruleset {_ALL} {' '.join(self._ruleset.values())})",
            *_GOALS,
            "(set (now) 0)",
        )

    def derive(
        self,
        goal: Rule,
        *,
        without: Sequence[str] = (),
        seed: int = 0,
        minimise: bool = True,
    ) -> Derivation | None:
        """Derive ``goal``, read left to right, at up to ``most`` generic instances.

        Args:
            goal: the rule to derive; its conditions hold in the instances, and both sides are
                typed.
            without: names of axioms that must not be used.
            seed: random seed of the instances.
            minimise: whether to find the axioms that are needed; otherwise all that fired are
                reported.

        Returns:
            The derivation, or ``None`` if no instance was found or the rule was not derived at one.
        """
        start = time.perf_counter()
        instances = generic_instances(goal, seed=seed, most=self.most)
        left_out = {goal.name.removesuffix("-reversed"), *without}
        proofs = []
        for bindings in instances:
            proof = self._instance(goal, bindings, left_out, minimise=minimise)
            if proof is None:
                return None
            proofs.append(proof)
        if not proofs:
            return None
        return Derivation(
            rule=goal.name,
            axioms=tuple(sorted(frozenset[str]().union(*(proof.axioms for proof in proofs)))),
            iterations=max(proof.iterations for proof in proofs),
            instances=tuple(map(_described, instances)),
            enodes=max(proof.enodes for proof in proofs),
            time_s=time.perf_counter() - start,
        )

    def _instance(
        self, goal: Rule, bindings: Bindings, left_out: set[str], *, minimise: bool
    ) -> _Proof | None:
        allowed = [axiom.name for axiom in self.axioms if axiom.name not in left_out]
        everything = len(allowed) == len(self.axioms)
        terms = GroundTerms(goal, bindings)
        pairs = [(terms.add(a), terms.add(b)) for a, b in zip(goal.lhs, goal.rhs, strict=True)]
        with compiled_engine(self._program) as engine:
            lowered = terms.lowered()
            codes = ExtentCodes.of(lowered.terms)
            load(engine, self._schema, lowered, seeds=Seeds((), ()), seeded_by=(), codes=codes)
            engine.run([*(f"(goal_ {a} {b})" for a, b in pairs), _SETTLE])
            attempt = _Attempt(engine, len(set(pairs)), self._schema, self.nodes)
            with _undone(engine) if minimise else nullcontext():
                ruleset = _ALL if everything else self._combined(engine, allowed)
                fired = attempt.run(ruleset, self.iterations)
            if fired is None:
                return None
            enodes, iterations = attempt.enodes, attempt.iterations
            names = {_base(name) for name, count in fired.items() if count} & set(allowed)
            if minimise:
                names = self._needed(engine, attempt, names, iterations)
        return _Proof(frozenset(names), iterations, enodes)

    def _needed(
        self, engine: Engine, attempt: _Attempt, names: set[str], iterations: int
    ) -> set[str]:
        """Return a subset of the axioms from which none can be left out."""
        needed = set(names)
        for name in sorted(names) if len(names) > 1 else ():
            with _undone(engine):
                ruleset = self._combined(engine, sorted(needed - {name}))
                if attempt.run(ruleset, iterations) is not None:
                    needed.discard(name)
        return needed

    def _combined(self, engine: Engine, names: Sequence[str]) -> str:
        chosen = [ruleset for rule, ruleset in self._ruleset.items() if _base(rule) in set(names)]
        engine.run([f"(unstable-combined-ruleset some_ {' '.join(chosen)})"])
        return "some_"


def _distinct(rules: Sequence[Rule]) -> list[Rule]:
    """Return each rule once.

    Raises:
        RuleError: two different rules have one name.
    """
    named = {rule.name: rule for rule in rules}
    for rule in rules:
        if named[rule.name] is not rule:
            raise RuleError(f"two axioms are called {rule.name!r}; rename one")
    return list(named.values())


def readable(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return those ``rules`` that can be axioms, which the e-graph can match and type."""

    def can_be_read(rule: Rule) -> bool:
        one_way = directed([rule])
        try:
            for one in one_way:
                compile_rule(one, 1, Schema.of(one_way, _HELD))
        except RuleError:
            return False
        return True

    return tuple(rule for rule in rules if can_be_read(rule))


def _base(name: str) -> str:
    return name.removesuffix("-reversed")


@contextmanager
def _undone(engine: Engine) -> Iterator[None]:
    engine.push()
    yield
    engine.pop()


class _Attempt:
    """Runs of a loaded goal, with the state of the last one."""

    def __init__(self, engine: Engine, goals: int, schema: Schema, nodes: int) -> None:
        self.engine = engine
        self.goals = goals
        self.schema = schema
        self.nodes = nodes
        self.iterations = 0
        self.enodes = 0
        self.met = False

    def run(self, ruleset: str, iterations: int) -> dict[str, int] | None:
        """Return the matches by rule if all goals were met within ``iterations``, else ``None``."""
        matches: dict[str, int] = {}
        self.iterations = 0
        updated = self.look(())
        while not self.met and updated and self.iterations < iterations and self.has_room:
            self.iterations += 1
            updated = self.look((f"(run-schedule (run {ruleset}))", _SETTLE), matches)
        return matches if self.met else None

    @property
    def has_room(self) -> bool:
        return self.enodes <= self.nodes

    def look(self, commands: Sequence[str], matches: dict[str, int] | None = None) -> bool:
        """Run ``commands``, check the goals, and return whether the first one changed anything."""
        # A single call runs all commands, since each call crosses the border of the engine.
        outputs = self.engine.run([*commands, "(run-schedule (run meet_))", "(print-size)"])
        sizes = dict(outputs[-1].sizes)
        self.met = sizes["met_"] == self.goals
        self.enodes = self.schema.enodes(sizes)
        if matches is None:
            return True
        for name, count in outputs[0].report.num_matches_per_rule.items():
            matches[name] = matches.get(name, 0) + count
        return bool(outputs[0].report.updated)


def _described(bindings: Bindings) -> str:
    values: Mapping[str, object] = {**bindings.types, **bindings.attrs}
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def derive(
    goal: Rule,
    axioms: Sequence[Rule],
    *,
    iterations: int = 5,
    nodes: int = 4_000,
    most: int = 4,
    seed: int = 0,
    minimise: bool = True,
) -> Derivation | None:
    """Derive ``goal``, read left to right, from ``axioms``; see :class:`Prover` for the arguments.

    An axiom of the goal's name is not used. A root that is the same on both sides only adds its
    term to the e-graph.

    Returns:
        The derivation, or ``None``: the rule may then be wrong, or need other axioms or more
        rounds.
    """
    prover = Prover(axioms, iterations=iterations, nodes=nodes, most=most)
    return prover.derive(goal, seed=seed, minimise=minimise)
