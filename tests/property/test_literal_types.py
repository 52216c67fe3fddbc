"""A literal takes the element type of what it meets: rules with one apply to all floats alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.egraph import saturate
from eqsat_opt.egraph.derivation.derive import GroundTerms
from eqsat_opt.egraph.derivation.generic import generic_instances
from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.recognition.literals import lift
from eqsat_opt.egraph.saturation.saturate import Budget, saturate_terms
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.types import FLOATS, INTEGERS, numpy_dtype
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.rules import families
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.matcher import Matcher
from eqsat_opt.rules.rule import Phase, Rule, directed
from eqsat_opt.rules.term import Apply
from tests.sampling import sampled

BOOK = {one.name: one for rules in families().values() for one in directed(rules)}


def has_literal(one: Rule) -> bool:
    terms = (term for root in (*one.lhs, *one.rhs) for term in root.walk())
    return any(isinstance(term, Apply) and "dtype" in term.attrs for term in terms)


WITH_LITERALS = sorted(name for name, one in BOOK.items() if has_literal(one))


def test_many_rules_have_literals() -> None:
    assert len(WITH_LITERALS) >= 30


@pytest.mark.parametrize("dtype", sorted(FLOATS))
@pytest.mark.parametrize("name", sampled(WITH_LITERALS, 3))
def test_a_rule_with_a_literal_rewrites(name: str, dtype: str) -> None:
    one = BOOK[name]
    instances = generic_instances(one, most=2)
    assert instances
    for found in instances:
        types = {
            n: replace(t, dtype=dtype) if t.dtype == "float32" else t
            for n, t in found.types.items()
        }
        terms = GroundTerms(one, Bindings(types, found.attrs))
        pairs = [(terms.add(a), terms.add(b)) for a, b in zip(one.lhs, one.rhs, strict=True)]
        alone = replace(one, phase=Phase.EXPLORE, subsumes=False)
        eclasses, _report = saturate_terms(terms.lowered(), [alone], Budget())
        assert all(eclasses.term_class[a] == eclasses.term_class[b] for a, b in pairs)


# In models, where constants are literals ----------------------------------------------------------

Build = Callable[[GraphMaker, str, Callable[[float], str]], str]

SPELLED: dict[str, Build] = {
    "elementwise/relu-of-scaled": lambda g, x, c: g("Relu", g("Mul", x, c(0.1))),
    "elementwise/max-of-zero": lambda g, x, c: g("Max", x, c(0.0)),
    "elementwise/gate": lambda g, x, c: g(
        "Add", g("Mul", x, g("Exp", x)), g("Mul", g("Sub", c(1.0), x), g("Tanh", x))
    ),
    "folding/subtrahend": lambda g, x, c: g("Sub", x, c(0.3)),
    "activation/clip-min-max": lambda g, x, c: g("Max", g("Min", x, c(6.0)), c(-0.7)),
    "affine/power-half": lambda g, x, c: g("Pow", g("Exp", x), c(0.5)),
}


def made_by(eclasses: EClasses) -> set[str | None]:
    return {eclasses.rule_of(node) for node in range(eclasses.n_nodes)}


def spelled(name: str, dtype: str) -> Graph:
    g = GraphMaker()
    x = g.input("x", 2, 3, dtype=dtype)
    return g.graph(SPELLED[name](g, x, lambda v: g.constant(np.array(v, numpy_dtype(dtype)))))


@pytest.mark.parametrize("dtype", sorted(FLOATS))
@pytest.mark.parametrize("name", SPELLED)
def test_constants_of_a_model_are_literals_of_their_type(name: str, dtype: str) -> None:
    graph = spelled(name, dtype)
    one = replace(BOOK[name], phase=Phase.EXPLORE)
    assert list(Matcher(graph).matches(one))
    saturation = saturate(graph, [one])
    assert one.name in made_by(saturation.eclasses)
    assert not check_eclasses(saturation).bad


@pytest.mark.parametrize("dtype", sorted(INTEGERS))
def test_whole_numbers_keep_to_their_range(dtype: str) -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3, dtype=dtype)
    graph = g.graph(g("Sub", x, g.constant(np.array(3, dtype))))
    one = BOOK["folding/subtrahend"]
    saturation = saturate(graph, [one])
    assert (one.name in made_by(saturation.eclasses)) == (not dtype.startswith("u"))
    assert not check_eclasses(saturation).bad


# Which number a constant was rounded from ---------------------------------------------------------


@given(st.sampled_from(sorted(FLOATS)), st.floats(-65504.0, 65504.0))
def test_what_a_constant_was_rounded_to_it_is_rounded_to(dtype: str, value: float) -> None:
    to = numpy_dtype(dtype).type
    rounded = float(to(value))
    assert float(to(lift(rounded, dtype))) == rounded


@pytest.mark.parametrize("dtype", sorted(FLOATS))
@pytest.mark.parametrize("value", [0.5**0.5, 2**0.5, 1 / 12, 0.044715, (2 / np.pi) ** 0.5, 1e-3])
def test_constants_of_formulas_are_found_in_every_type(value: float, dtype: str) -> None:
    assert lift(float(numpy_dtype(dtype).type(value)), dtype) == value
