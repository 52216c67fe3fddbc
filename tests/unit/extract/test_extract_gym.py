"""egraph-serialize JSON with several metrics and implementations: written, read, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.extract import GymFile, Objective, ProblemBuilder, extract, read_json, write_json
from eqsat_opt.extract.gym.result import read_choice, result_json

TIME = Objective({"time": 1.0})


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Files in every form that the format allows; feasible or not."""
    n_nodes = draw(st.integers(1, 8))
    names = [f"n{i}" for i in range(n_nodes)]
    cost = st.floats(0, 1e9) | st.integers(0, 10**12)
    prices = st.fixed_dictionaries({"time": cost, "energy": cost})
    extended = draw(st.booleans())
    nodes = {}
    for name in names:
        node: dict[str, Any] = {
            "op": draw(st.sampled_from(["Add", "Conv", "π"])),
            "children": draw(st.lists(st.sampled_from(names), max_size=3)),
            "eclass": draw(st.sampled_from(["a", "b", "c"])),
        }
        if not extended:
            node["cost"] = draw(cost)
        elif draw(st.booleans()):
            node["costs"] = draw(prices)
        else:
            rows = draw(st.lists(prices, min_size=1, max_size=3))
            titled = draw(st.booleans())
            node["implementations"] = [
                {"name": f"i{i}", "costs": row} if titled else {"costs": row}
                for i, row in enumerate(rows)
            ]
        nodes[name] = node
    used = sorted({node["eclass"] for node in nodes.values()})
    roots = draw(st.lists(st.sampled_from(used), min_size=1, max_size=3))
    return {"nodes": nodes, "root_eclasses": roots}


def same(first: GymFile, second: GymFile) -> None:
    for name in ("node_class", "child_ptr", "child_ix", "impl_ptr", "impl_cost"):
        one, two = getattr(first.problem, name), getattr(second.problem, name)
        assert np.array_equal(one, two), name
    for name in ("metrics", "roots", "n_classes"):
        assert getattr(first.problem, name) == getattr(second.problem, name)
    for name in ("class_names", "node_names", "ops", "implementation_names"):
        assert getattr(first, name) == getattr(second, name)


@given(document=documents())
def test_what_is_written_is_read_again(document: dict[str, Any], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("gym")
    file, again = folder / "e.json", folder / "again.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    first = read_json(file)
    write_json(again, first)
    same(first, read_json(again))
    assert [p.name for p in sorted(folder.iterdir())] == ["again.json", "e.json"]
    rows = dict(zip(first.node_names, np.diff(first.problem.impl_ptr).tolist(), strict=True))
    for name, node in document["nodes"].items():
        assert rows[name] == len(node.get("implementations", "1"))


def test_a_plain_file_stays_plain(tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    nodes = {"n": {"op": "x", "children": [], "eclass": "a", "cost": 2.5}}
    file.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["a"]}))
    write_json(file, read_json(file))
    assert json.loads(file.read_text())["nodes"] == nodes


def test_a_problem_gets_numbers_for_names(tmp_path: Path) -> None:
    builder = ProblemBuilder(("time", "energy"))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (leaf, leaf), [(3.0, 1.0), (2.0, 5.0)])
    builder.add_node(leaf, (), [(1.0, 1.0)])
    problem = builder.build([top])
    file = tmp_path / "e.json"
    write_json(file, problem, ops=["Add", "x"])
    again = read_json(file)
    assert again.ops == ("Add", "x")
    assert again.class_names == ("0", "1")
    assert again.problem.impl_cost.tolist() == problem.impl_cost.tolist()
    assert again.problem.children(0) == [1, 1]


def test_what_stands_at_the_node_holds_for_its_implementations(tmp_path: Path) -> None:
    node = {
        "eclass": "a",
        "cost": 7,
        "costs": {"time": 1.0, "energy": 2.0},
        "implementations": [{}, {"costs": {"time": 3.0}}, {"cost": 8, "costs": {"energy": 4.0}}],
    }
    file = tmp_path / "e.json"
    other = {"eclass": "a", "costs": {"time": 0, "energy": 0}}  # a cost that is not given is 1
    file.write_text(json.dumps({"nodes": {"n": node, "m": other}, "root_eclasses": ["a"]}))
    problem = read_json(file).problem
    assert problem.metrics == ("cost", "time", "energy")
    assert problem.impl_cost.tolist() == [[7, 1, 2], [7, 3, 2], [8, 1, 4], [1, 0, 0]]
    assert problem.impl_ptr.tolist() == [0, 3, 4]


def test_results_are_incumbents(tmp_path: Path) -> None:
    nodes = {
        "t": {"eclass": "top", "children": ["l"], "costs": {"time": 1}},
        "l": {
            "eclass": "leaf",
            "implementations": [
                {"name": "slow", "costs": {"time": 5}},
                {"name": "fast", "costs": {"time": 2}},
            ],
        },
    }
    file = tmp_path / "e.json"
    file.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["top"]}))
    gym = read_json(file)
    found = result_json(gym, extract(gym.problem, TIME))
    assert found["choices"] == {"leaf": "l", "top": "t"}
    assert found["implementations"] == {"leaf": "fast"}
    known = tmp_path / "known.json"
    known.write_text(json.dumps(found))
    assert read_choice(known, gym, TIME) == {0: (0, 0), 1: (1, 1)}
    known.write_text(json.dumps({**found, "implementations": {"leaf": "slow"}}))
    assert read_choice(known, gym, TIME) == {0: (0, 0), 1: (1, 0)}
    known.write_text(json.dumps({"choices": found["choices"]}))
    assert read_choice(known, gym, TIME) == {0: (0, 0), 1: (1, 1)}  # the cheapest
