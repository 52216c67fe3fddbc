"""Mutation test of verification: one edit in the right side of a rule, or one condition less.

A mutant differs from its rule in one operator, the order of two operands, one attribute, one bound
or one condition. Whatever differs in value or type must be refused. What is accepted must be an
equation all the same: the prover is an independent witness, and instances that verification did not
see are the reference for what the prover leaves open.

``python tests/unit/proving/test_rule_mutants.py FAMILY/NAME...`` prints what becomes of the mutants
of some rules, as JSON; the test of all rules runs several of these at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops import get_op
from eqsat_opt.proving import check_rule
from eqsat_opt.proving.checks.exact import MAX_POINTS
from eqsat_opt.proving.gate import THOROUGH_POINTS
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.term import MAP, Apply, Expr, Term, Var

POINTS = 40
"""Instances at first; whoever passes is looked at as the gate looks at a rule."""
SOME = frozenset({
    "elementwise/factor", "matmul/slice-columns", "pool/max-concat", "activation/clip-of-scale",
    "attention/grouped",
})  # fmt: skip
"""Rules of optimisation and of recognition, of every kind of attribute and condition."""
FURTHER = 400
OTHER = {
    "Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "MatMul": "Add", "Relu": "Abs",
    "MaxPool": "Relu", "Sqrt": "Relu", "Pow": "Mul",
}  # fmt: skip


def one(value: float) -> Expr:
    return Expr("literal", (value,))


def replaced(term: Term, path: tuple[int, ...], new: Term) -> Term:
    if not path:
        return new
    assert isinstance(term, Apply)
    args = list(term.args)
    args[path[0]] = replaced(args[path[0]], path[1:], new)
    return Apply(term.op, tuple(args), term.attrs)


def positions(term: Term, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Term]]:
    yield path, term
    if isinstance(term, Apply):
        for index, arg in enumerate(term.args):
            yield from positions(arg, (*path, index))


def shifted(value: Any) -> Iterator[Any]:
    """An attribute one more; of a list each element."""
    if isinstance(value, tuple):
        for index, part in enumerate(value):
            for other in shifted(part):
                yield (*value[:index], other, *value[index + 1 :])
    elif value.kind != "literal":
        yield value + 1
    elif isinstance(value.args[0], int | float):
        yield one(value.args[0] + 1)


def edits(term: Term, variables: dict[str, Var]) -> Iterator[tuple[str, Term]]:
    """What may stand for ``term`` after one edit."""
    if isinstance(term, Var):
        for name, other in variables.items():
            if name != term.name:
                yield f"{term.name} for {name}", other
        return
    assert isinstance(term, Apply)
    if len(term.args) == 2 and not (term.op != MAP and get_op(term.op).commutative):
        yield "operands exchanged", Apply(term.op, term.args[::-1], term.attrs)
    if term.op == MAP:
        yield "function dropped", term.args[0]
        return
    if term.op in OTHER and set(get_op(OTHER[term.op]).attrs) <= set(term.attrs):
        yield f"{OTHER[term.op]} for {term.op}", Apply(OTHER[term.op], term.args, {})
    if term.args and get_op(term.op).kind != "contraction":
        yield f"{term.op} dropped", term.args[0]
    for key, value in term.attrs.items():
        kind = get_op(term.op).attrs[key]
        if kind == "str" or (kind == "ints" and not isinstance(value, tuple)):
            continue
        for other in shifted(value):
            yield f"{term.op}.{key} + 1", Apply(term.op, term.args, {**term.attrs, key: other})


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Rules with one edit, those that cannot be written left out."""
    variables = {t.name: t for root in rule.lhs for t in root.walk() if isinstance(t, Var)}
    for root, term in enumerate(rule.rhs):
        for path, part in positions(term):
            for what, new in edits(part, variables):
                rhs = list(rule.rhs)
                rhs[root] = replaced(term, path, new)
                yield f"{rule.name}: {what}", replace(rule, rhs=tuple(rhs))
    for index, condition in enumerate(rule.when):
        when = rule.when[:index] + rule.when[index + 1 :]
        yield f"{rule.name}: without {condition}", replace(rule, when=when)


def witness(mutant: Rule) -> str:
    """What the prover says of a mutant that was accepted."""
    from eqsat_opt.proving.proof import prove

    try:
        return prove(mutant, time_limit_s=5.0).status
    except RuleError:
        return "missing"


def agrees_everywhere(mutant: Rule) -> bool:
    """The reference for what the prover leaves open: instances that verification did not see."""
    return all(
        check_rule(mutant, seed=seed, max_points=FURTHER, minimise=False).refutation is None
        for seed in (101, 102)
    )


def refuted(mutant: Rule, points: int, counts: Counter[str]) -> bool:
    report = check_rule(mutant, max_points=points, minimise=False)
    if report.refutation is not None:
        counts["types" if report.refutation.method == "types" else "values"] += 1
    elif not report.passed and (points > POINTS or not report.points):
        counts["never types"] += 1
    else:
        return False
    return True


def judge(rules: list[Rule], counts: Counter[str], missed: list[str]) -> None:
    """As the gate does it: what is not proven is evaluated at many more instances."""
    for rule in rules:
        for what, mutant in mutants(rule):
            if refuted(mutant, POINTS, counts) or refuted(mutant, MAX_POINTS, counts):
                continue
            if witness(mutant) == "proven":
                counts["proven to be an equation all the same"] += 1
            elif refuted(mutant, THOROUGH_POINTS, counts):
                continue
            elif agrees_everywhere(mutant):
                counts["without a difference at many further instances"] += 1
            else:
                missed.append(what)


def book() -> dict[str, Rule]:
    """The rules by name, read left to right."""
    return {r.name: replace(r, bidirectional=False) for rules in families().values() for r in rules}


def check(counts: Counter[str], missed: Sequence[str], rules: int) -> None:
    refused = counts["types"] + counts["values"] + counts["never types"]
    print(f"{refused} of {counts.total()} mutants refused: {dict(counts)}", *missed, sep="\n")
    assert refused >= 5 * rules
    assert not missed


def needs_prover() -> None:
    pytest.importorskip("z3", reason="accepted mutants are judged by the prover, which needs z3")


def test_mutants_of_some_rules_are_refused() -> None:
    needs_prover()
    rules = book()
    assert set(rules) >= SOME
    counts: Counter[str] = Counter()
    missed: list[str] = []
    judge([rules[name] for name in sorted(SOME)], counts, missed)
    check(counts, missed, len(SOME))


def apart(names: Sequence[str]) -> dict[str, Any]:
    """What becomes of the mutants of some rules, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_mutants_of_all_rules_are_refused() -> None:
    needs_prover()
    names = sorted(book())
    jobs = os.cpu_count() or 1
    parts = 8 * jobs  # small enough that no process is left over with much to do
    counts: Counter[str] = Counter()
    missed: list[str] = []
    with ThreadPoolExecutor(jobs) as executor:
        for part in executor.map(apart, [names[start::parts] for start in range(parts)]):
            counts.update(part["counts"])
            missed += part["missed"]
    check(counts, missed, len(names))


def main(names: Sequence[str]) -> None:
    counts: Counter[str] = Counter()
    missed: list[str] = []
    start = time.process_time()
    judge([rule for name, rule in book().items() if name in names], counts, missed)
    seconds = round(time.process_time() - start, 1)
    json.dump({"counts": counts, "missed": missed, "cpu_s": seconds}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
