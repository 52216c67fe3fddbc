"""A pass is one file and one row of the list of passes; so is a case of the simplification."""

from __future__ import annotations

import json

import pytest

from tests.examples.house import House

FOLDER = "eqsat_opt/ir/passes"

SQUARES = '''"""Squares as products, which are equal to products that are written as such."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.handles import splat_value

__all__ = ["multiplied_squares"]


def multiplied_squares(graph: Graph) -> Graph:
    """Replace squares by products; return ``graph`` if there are none.

    1. x² with a constant exponent is x · x.
    2. Any other power stays.
    """
    nodes = tuple(_multiplied(node, graph) for node in graph.nodes)
    return graph if nodes == graph.nodes else graph.with_nodes(nodes)


def _multiplied(node: Node, graph: Graph) -> Node:
    if node.op != "Pow" or node.inputs[1] not in graph.constants:
        return node
    base, exponent = node.inputs
    is_square = splat_value(graph.constants[exponent]) == 2
    is_whole = graph.types[base] == graph.types[node.output]
    return replace(node, op="Mul", inputs=(base, base)) if is_square and is_whole else node
'''

NORMAL_FORM = f"{FOLDER}/normalise.py"
PASS_IMPORT = "from eqsat_opt.ir.passes.simplification.simplify import simplify\n"
PASS_ROW = '    Pass("affine", fold_affine, since(Numerics.REASSOCIATE)),\n'

DOUBLE = '''"""Operators that undo themselves."""

from __future__ import annotations

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.passes.simplification.draft import Draft

__all__ = ["undone"]


def undone(node: Node, draft: Draft) -> str | None:
    """Return x for --x."""
    inner = draft.original.producers.get(node.inputs[0])
    return draft.name(inner.inputs[0]) if inner is not None and inner.op == node.op else None
'''

CASES = f"{FOLDER}/simplification/simplify.py"
CASE_IMPORT = "from eqsat_opt.ir.passes.simplification.sharing import computed_before\n"
CASE_ROW = '    SimplificationCase("no-effect", unchanged, WITHOUT_EFFECT),\n'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    (house.path / FOLDER / "squares.py").write_text(SQUARES)
    new_import = "from eqsat_opt.ir.passes.squares import multiplied_squares\n"
    house.with_edits({NORMAL_FORM: (PASS_IMPORT, PASS_IMPORT + new_import)})
    row = '    Pass("squares", multiplied_squares, since(Numerics.REASSOCIATE)),\n'
    house.with_edits({NORMAL_FORM: (PASS_ROW, PASS_ROW + row)})

    (house.path / FOLDER / "simplification/undoing.py").write_text(DOUBLE)
    new_import = "from eqsat_opt.ir.passes.simplification.undoing import undone\n"
    house.with_edits({CASES: (CASE_IMPORT, CASE_IMPORT + new_import)})
    row = '    SimplificationCase("undone", undone, frozenset({"Neg"})),\n'
    return house.with_edits({CASES: (CASE_ROW, CASE_ROW + row)})


NORMAL_FORMS = """
import json, sys
import onnx.parser
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise

graph = import_model(load_model(onnx.parser.parse_model(sys.argv[1])))
forms = (normalise(graph, numerics=numerics) for numerics in Numerics)
print(json.dumps([[node.op for node in form.nodes] for form in forms]))
"""


def normal_forms(house: House, body: str) -> list[list[str]]:
    """Operators of the normal form of a model in each class."""
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y)'
    done = house.run("-c", NORMAL_FORMS, f"{head} <float two = {{2}}> {{ {body} }}")
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_a_pass_is_a_file_and_a_row(house: House) -> None:
    """It runs where its row says; what it made equal is one by the simplification after it."""
    exact, *others = normal_forms(house, "a = Pow (x, two) b = Mul (x, x) y = Max (a, b)")
    assert exact == ["Pow", "Mul", "Max"]
    assert others == [["Mul", "Max"]] * 4


def test_a_case_is_a_file_and_a_row(house: House) -> None:
    body = "a = Neg (x) b = Identity (a) c = Neg (b) y = Relu (c)"
    assert normal_forms(house, body) == [["Relu"]] * 5


def test_nothing_else_changes(house: House) -> None:
    unchanged = House.unchanged()
    assert normal_forms(unchanged, "a = Neg (x) c = Neg (a) y = Relu (c)")[0] == [
        "Neg", "Neg", "Relu"
    ]  # fmt: skip
    body = "a = Relu (x) y = Mul (a, two)"
    assert normal_forms(house, body) == normal_forms(unchanged, body)
