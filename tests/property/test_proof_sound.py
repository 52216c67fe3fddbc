"""What is proved is true: random pairs of terms, compared with the operators' own ``eval_fn``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.ops import Array, Domain, IllTyped, get_op
from eqsat_opt.ir.ops.domains import FLOAT, FieldDomain
from eqsat_opt.ir.ops.index.evaluation import formula_value, poly_value
from eqsat_opt.ir.ops.index.integers import Atom
from eqsat_opt.ir.values.types import TensorType, require_static
from eqsat_opt.proving.instances.search import find_instances
from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.typing.scenario import HIGHEST_RANK, Scenario, scenarios
from eqsat_opt.rules import families
from eqsat_opt.rules.bindings import Bindings, Undefined, operator, type_of
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import Apply, Condition, Term, Var, concat, ops, slice_

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

PAIRS = 50
SAME = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
ORDERED = frozenset({"Relu", "Max", "Min", "MaxPool", "Softmax"})
"""Operators with properties that a random function of a field does not have."""


class Grammar:
    """Terms over square matrices, or over images of one shape with 3 x 3 kernels."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.images = self.chance(0.45)
        self.group = self.choice(1, 1, 2)
        self.leaves = [Var(n) for n in ("x", "y", "z")]
        self.kernels = [Var("w"), Var("v")]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choice(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def pick(self, *options: Term) -> Term:
        return options[int(self.rng.integers(len(options)))]

    def leaf(self) -> Term:
        return self.pick(*self.leaves)

    def kernel(self) -> Term:
        w, v = self.kernels
        return self.pick(w, v, w + v)

    def term(self, depth: int) -> Term:
        if depth == 0 or self.chance(0.1):
            return self.leaf()
        a = self.term(depth - 1)
        if self.chance(0.35):
            b = self.term(depth - 1)
            return self.pick(a + b, a * b, a - b, ops.Max(a, b))
        if self.chance(0.2):
            return self.pick(ops.Relu(a), ops.Tanh(a))
        return self._image(a, depth) if self.images else self._matrix(a, depth)

    def _matrix(self, a: Term, depth: int) -> Term:
        b = self.term(depth - 1)
        n = self.leaves[0].dim(0)
        axis = self.choice(0, 1)
        lo, hi = self.choice((0, n), (n, n + n), (1, n + 1))
        return self.pick(
            a @ b,
            ops.Transpose(a, perm=(1, 0)),
            a + ops.ReduceSum(b, axes=(axis,), keepdims=1),
            slice_(concat(a, b, axis), axis, lo, hi),
            concat(slice_(a, axis, 0, 1), slice_(b, axis, 1, n), axis),
            ops.Softmax(a, axis=axis),
        )

    def _image(self, a: Term, depth: int) -> Term:
        b = self.term(depth - 1)
        pool = {"kernel": (3, 3), **SAME, "ceil": 0}
        channels = self.leaves[0].dim(1)
        lo, hi = self.choice((0, channels), (channels, channels + channels))
        return self.pick(
            ops.Conv(a, self.kernel(), **SAME, group=self.group),
            ops.Conv(a, self.kernel(), **SAME, group=self.group),
            ops.MaxPool(a, **pool),
            ops.AveragePool(a, **pool, count_include_pad=self.choice(0, 1)),
            slice_(concat(a, b, 1), 1, lo, hi),
        )

    def conditions(self, pair: tuple[Term, Term]) -> tuple[Condition, ...]:
        names = pair[0].variables() | pair[1].variables()
        data = [leaf for leaf in self.leaves if leaf.name in names]
        first = self.leaves[0]
        rank = 4 if self.images else 2
        found = [leaf.rank == rank for leaf in data]
        found += [leaf.shape == first.shape for leaf in data[1:]]
        if not self.images:
            return (*found, first.dim(0) == first.dim(1))
        for kernel in self.kernels:
            if kernel.name in names:
                found += [kernel.rank == 4, kernel.dim(0) == first.dim(1)]
                found += [kernel.dim(2) == 3, kernel.dim(3) == 3]
        return tuple(found)

    # True and false neighbours -------------------------------------------------------------------

    def laws(self, t: Term) -> Iterator[Term]:
        """Terms that equal ``t`` by one law at its root."""
        if not isinstance(t, Apply) or len(t.args) < 1:
            return
        a, b = (*t.args, t.args[0])[:2]
        inner = a if isinstance(a, Apply) else None
        if t.op in ("Add", "Mul", "Max"):
            yield replace(t, args=(b, a))
        if t.op in ("MatMul", "Mul", "Conv") and inner and inner.op in ("Add", "Sub"):
            p, q = inner.args
            yield replace(inner, args=(replace(t, args=(p, b)), replace(t, args=(q, b))))
        if t.op == "Transpose" and inner and inner.op in ("Add", "Mul", "Relu", "Tanh", "Sub"):
            yield replace(inner, args=tuple(replace(t, args=(p,)) for p in inner.args))
        if t.op == "Transpose" and inner and inner.op == "MatMul":
            yield replace(inner, args=tuple(replace(t, args=(p,)) for p in inner.args[::-1]))
        if inner and inner.op == t.op and t.op in ("Add", "Mul", "MatMul", "Max"):
            p, q = inner.args
            yield replace(t, args=(p, replace(t, args=(q, b))))
        if t.op == "Relu":
            yield ops.Relu(t)
        if t.op == "Conv" and isinstance(b, Apply) and b.op == "Add":
            p, q = b.args
            yield replace(t, args=(a, p)) + replace(t, args=(a, q))
        if t.op == "MaxPool" and inner and inner.op == "Relu":
            yield ops.Relu(replace(t, args=inner.args))

    def errors(self, t: Term) -> Iterator[Term]:
        """Terms that mostly differ from ``t`` by one edit at its root."""
        if isinstance(t, Var):
            yield from (leaf for leaf in (*self.leaves, *self.kernels) if leaf.name != t.name)
            return
        assert isinstance(t, Apply)
        if len(t.args) == 2:
            yield replace(t, args=t.args[::-1])
        if t.op in ("Add", "Mul", "Max", "Sub"):
            yield from (replace(t, op=op) for op in ("Add", "Mul", "Max", "Sub") if op != t.op)
        if t.op in ("Relu", "Tanh"):
            yield replace(t, op="Tanh" if t.op == "Relu" else "Relu")
        yield t.args[0]

    def edited(self, t: Term, neighbours: str) -> Term | None:
        """``t`` with one subterm replaced by a neighbour."""
        places = list(_places(t))
        for k in self.rng.permutation(len(places)):
            path = places[k]
            found = list(getattr(self, neighbours)(_at(t, path)))
            if found:
                return _put(t, path, found[int(self.rng.integers(len(found)))])
        return None


Path = tuple[int, ...]


def _places(t: Term) -> Iterator[Path]:
    yield ()
    if isinstance(t, Apply):
        for i, arg in enumerate(t.args):
            yield from ((i, *rest) for rest in _places(arg))


def _at(t: Term, path: Path) -> Term:
    for i in path:
        assert isinstance(t, Apply)
        t = t.args[i]
    return t


def _put(t: Term, path: Path, new: Term) -> Term:
    if not path:
        return new
    assert isinstance(t, Apply)
    args = list(t.args)
    args[path[0]] = _put(args[path[0]], path[1:], new)
    return replace(t, args=tuple(args))


def _value(term: Term, bindings: Bindings, values: Mapping[str, Array], domain: Domain) -> Array:
    if isinstance(term, Var):
        return values[term.name]
    assert isinstance(term, Apply)
    operands = [_value(arg, bindings, values, domain) for arg in term.args]
    op, attrs = operator(term, bindings)
    return get_op(op).eval_fn(domain, operands, attrs)


def truth(grammar: Grammar, pair: tuple[Term, Term]) -> bool | None:
    """Whether both terms agree at small sizes; ``None`` if they never type."""
    used = {t.op for side in pair for t in side.walk() if isinstance(t, Apply)}
    exact = not used & ORDERED
    verdict = None
    for n in (2, 3, 4):
        image = (2, n, n, 3) if grammar.images else (n, n)
        kernel = (n, n // int(grammar.group), 3, 3)
        shapes = {**dict.fromkeys("xyz", image), **dict.fromkeys("wv", kernel)}
        bindings = Bindings({k: TensorType("float32", s) for k, s in shapes.items()}, {})
        try:
            types = [type_of(side, bindings) for side in pair]
        except (IllTyped, Undefined):
            continue
        if types[0] != types[1]:
            continue
        rng = np.random.default_rng(n)
        field = FieldDomain(seed=n)
        values = {
            k: field.random(rng, s) if exact else rng.standard_normal(s) for k, s in shapes.items()
        }
        with np.errstate(all="ignore"):
            left, right = (
                _value(side, bindings, values, field if exact else FLOAT) for side in pair
            )
            same = (left == right).all() if exact else np.allclose(left, right, rtol=1e-9)
        verdict = bool(same) and verdict is not False
    return verdict


def compare(seed: int) -> tuple[bool, str] | None:
    """The truth about one random pair and what the prover says."""
    grammar = Grammar(seed)
    left = grammar.term(int(grammar.choice(2, 3, 3)))
    right: Term | None = left
    for _ in range(2):
        right = (right and grammar.edited(right, "laws")) or right
    if grammar.chance(0.6) and right is not None:
        right = grammar.edited(right, "errors")
    if right is None or isinstance(left, Var):
        return None
    if "x" not in left.variables() | right.variables():
        return None  # the sizes are those of x
    true = truth(grammar, (left, right))
    if true is None:
        return None
    when = grammar.conditions((left, right))
    rule = Rule(
        "test/pair", (left,), (right,), when, (), Numerics.BITEXACT, Phase.EXPLORE, False, ""
    )
    proof = prove(rule, time_limit_s=1.0)
    assert true or proof.status != "proven", f"seed {seed}: {rule} was proved"
    return true, proof.status


def test_what_is_proved_is_true() -> None:
    counts = Counter(found for seed in range(PAIRS) if (found := compare(seed)) is not None)
    print({f"{'true' if t else 'false'}, {s}": n for (t, s), n in sorted(counts.items())})
    assert counts[True, "proven"] > PAIRS / 8
    assert sum(n for (true, _), n in counts.items() if not true) > PAIRS / 8


# The premises of a proof hold wherever a rule applies --------------------------------------------

COVERED = [
    "matmul/assoc", "matmul/merge-operands", "conv/enlarge-kernel", "conv/residual-identity",
    "conv/linear-in-weight", "concat/slice-of-slice", "concat/add-row-slice", "pool/average-conv",
    "pool/max-relu", "lrn/power", "transpose/compose-3d", "equations/conv-merge-groups",
    "affine/sum-over-two-axes", "affine/reshape-of-scale", "normalisation/layer-scale-shift",
    "normalisation/variance-of-squares", "attention/scaled-masked", "attention/repeated-heads",
    "attention/repeated-merged-heads", "attention/grouped", "attention/merged-scaled-masked",
]  # fmt: skip


def _known_sizes(bindings: Bindings) -> dict[Atom, int]:
    sizes = {
        Atom(f"{name}.{axis}"): int(extent)
        for name, type_ in bindings.types.items()
        for axis, extent in enumerate(require_static(type_).shape)
    }
    for name, value in bindings.attrs.items():
        parts = enumerate(value) if isinstance(value, tuple) else ()
        sizes |= {Atom(f"{name}[{i}]"): part for i, part in parts if isinstance(part, int)}
        if isinstance(value, int):
            sizes[Atom(name)] = value
    return sizes


def _choice(name: str, bindings: Bindings) -> Any:
    """What an instance has for a choice; a list attribute has a rank of its own."""
    variable = name.removeprefix("rank ")
    if variable == name:
        return bindings.attrs[name]
    if variable in bindings.types:
        return bindings.types[variable].rank
    return len(bindings.attrs[variable])


def _chosen(scenario: Scenario, bindings: Bindings) -> bool:
    """Whether the ranks, axes and flags are those of the instance."""
    return all(_choice(name, bindings) == value for name, value in scenario.choices.items())


def _highest_rank(bindings: Bindings) -> int:
    lists = (value for value in bindings.attrs.values() if isinstance(value, tuple))
    return max(len(one) for one in (*(t.shape for t in bindings.types.values()), *lists))


def _satisfied(scenario: Scenario, bindings: Bindings) -> bool:
    """Whether the extents and premises agree, for some share of outputs per group."""
    known = _known_sizes(bindings)
    extents = [
        (extent, known[Atom(f"{name}.{axis}")])
        for name, shape in scenario.shapes.items()
        for axis, extent in enumerate(shape)
    ]
    symbols = {s for premise in scenario.premises for s in premise.symbols()}
    symbols |= {s for extent, _ in extents for s in extent.symbols()}
    open_ = sorted(symbols - set(known))
    for values in itertools.product(range(1, 33), repeat=len(open_)):
        sizes = {**known, **dict(zip(open_, values, strict=True))}
        if all(poly_value(extent, sizes) == size for extent, size in extents):
            return all(formula_value(premise, sizes) for premise in scenario.premises)
    return False


@pytest.mark.parametrize("name", COVERED)
def test_every_instance_of_a_rule_lies_in_a_scenario(name: str) -> None:
    (found,) = (one for rules in families().values() for one in rules if one.name == name)
    known = list(scenarios(found))
    instances = find_instances(found, limit=12).points
    tried = [one for one in instances if _highest_rank(one) <= HIGHEST_RANK]
    assert tried
    for bindings in tried:
        matching = [scenario for scenario in known if _chosen(scenario, bindings)]
        assert len(matching) == 1, str(bindings)
        assert _satisfied(matching[0], bindings), str(bindings)
