"""Every stage of a search over a random graph is written and read back as it was."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from copy import deepcopy
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from eqsat_opt.common.codecs import document_text
from eqsat_opt.egraph.eclasses_json import eclasses_from_json
from eqsat_opt.errors import StageError
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.listed_graph import graph_from_json
from eqsat_opt.ir.graph.values_json import dim_from_json, dim_to_json
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.ir.values.dims import Dim, floor_div, sym
from eqsat_opt.ir.values.types import OtherType, TensorType
from eqsat_opt.lab.testing import GraphMaker, typed_graphs
from eqsat_opt.select import raise_graph
from eqsat_opt.select.choosing.candidates_json import candidates_from_json
from eqsat_opt.select.choosing.named_problem import problem_from_json
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding.priced_selection import PricedSelection
from eqsat_opt.select.rebuilding.selection_json import selection_from_json
from eqsat_opt.select.stages import STAGES, StageValue, stage_document, stage_of
from tests.property.edges.draft import Impossible
from tests.property.edges.models import draw_model
from tests.property.stages import difference, parsed, proposal_of

READERS: dict[str, Any] = {
    "graph": graph_from_json,
    "eclasses": eclasses_from_json,
    "candidates": candidates_from_json,
    "problem": problem_from_json,
    "selection": selection_from_json,
}


def goes_round(proposal: Proposal) -> dict[str, StageValue]:
    """The stages as they were read back."""
    back: dict[str, StageValue] = {}
    for name in STAGES:
        value = stage_of(proposal, name)
        back[name] = READERS[name](parsed(value))
        assert difference(back[name], value) == ""
        text = document_text(stage_document(value))
        assert document_text(stage_document(back[name])) == text
        assert str(back[name]) == str(value)
    return back


@settings(max_examples=8)
@given(typed_graphs())
def test_stages_go_round(graph: Graph) -> None:
    proposal = proposal_of(graph)
    back = goes_round(proposal)
    quoted, selection = back["candidates"], back["selection"]
    assert isinstance(quoted, QuotedCandidates)
    assert isinstance(selection, PricedSelection)
    problem, stored = proposal.choice.problem, quoted.problem()
    assert stored.index == problem.index
    np.testing.assert_array_equal(stored.problem.impl_cost, problem.problem.impl_cost)
    assert stored.problem.roots == problem.problem.roots
    found = extract(stored.problem, Objective(selection.objective), time_limit_s=60.0)
    assert found.cost <= selection.cost * (1 + 1e-9)
    selection.require_from(quoted.priced.candidates)
    raised = raise_graph(proposal.saturation.lowered, quoted.named.eclasses, selection.selection)
    assert str(raised) == str(proposal.best)


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_stages_of_odd_models_go_round(rng: random.Random) -> None:
    """Control flow, functions, sequences, empty tensors, every element type."""
    try:
        model = load_model(draw_model(rng).model)
    except Impossible:
        assume(False)
        raise
    imported = import_model(model)
    goes_round(proposal_of(normalise(imported), **size_sets(imported, ({},))[0].all))


@settings(max_examples=4)
@given(typed_graphs(5), st.integers(0, 1_000_000))
def test_what_is_damaged_is_refused_or_read(graph: Graph, seed: int) -> None:
    """A changed document ends in a typed error or in a value, never in another failure."""
    rng = random.Random(seed)
    proposal = proposal_of(graph)
    for name in STAGES:
        whole = json.dumps(parsed(stage_of(proposal, name)))
        for _ in range(18):
            document = json.loads(whole)  # a copy, in less time than deepcopy takes
            _damage(document, rng)
            with suppress(StageError):
                assert str(READERS[name](document))


def _damage(document: Any, rng: random.Random) -> None:
    """Replace, remove or exchange one random part."""
    places: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        value = pending.pop()
        keys = value if isinstance(value, dict) else range(len(value))
        places += [(value, key) for key in keys]
        pending += [value[key] for key in keys if isinstance(value[key], dict | list)]
    holder, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder[key] = rng.choice([None, -1, 10**6, 10**30, "Relu", "x", [], {}, 0.5, True])
        case 2:
            other, name = rng.choice(places)
            holder[key] = deepcopy(other[name])
        case _ if isinstance(holder, dict):
            holder["foreign"] = 1
        case _:
            holder.append(deepcopy(holder[key]))


NAMES = ("N", "a b", "x*y", "1 + n", "floor((N)/(2))", "λ")


@st.composite
def sizes(draw: st.DrawFn) -> Dim:
    """Polynomials and quotients of names that look like either."""
    total: Dim = draw(st.integers(-5, 5))
    for _ in range(draw(st.integers(0, 3))):
        term: Dim = draw(st.integers(-3, 3))
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=2)):
            term = term * sym(name)
        total = total + term
    return floor_div(total, draw(st.integers(2, 7))) if draw(st.booleans()) else total


@given(sizes())
def test_sizes_go_round(size: Dim) -> None:
    assert dim_from_json(dim_to_json(size), "size") == size


@pytest.mark.parametrize("n", [0, 1, 3])
def test_symbolic_opaque_empty_and_scalar_values_survive(n: int) -> None:
    g = GraphMaker()
    x, s = g.input("x", "N", 4), g.input("s")
    y = g("Relu", g("MatMul", x, g.weight(4, 4)))
    half = floor_div(sym("N"), 2)
    kinds = (TensorType("float32", (half, 4)), OtherType("sequence"), TensorType("int64", ()))
    split, sequence, count = g.opaque("Custom", y, s, outputs=kinds)
    empty = g.constant(np.zeros((0, 4), np.float32))
    z = g("Tanh", g("Concat", split, empty, axis=0))
    graph = g.graph(z, y, sequence, count, x, z, empty)
    back = goes_round(proposal_of(graph, N=n))
    assert sym("N") in back["eclasses"].eclasses.types[0].shape  # type: ignore[union-attr]
