"""An extractor is one file and one row of the table of extractors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.house import House

FEWEST = '''"""As few e-nodes as a tree may have, whatever they cost."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.solve.greedy import tree_greedy

__all__ = ["fewest_enodes"]


def fewest_enodes(instance: Instance) -> list[int]:
    """The option of the smallest tree for each class, -1 where there is none."""
    return tree_greedy(replace(instance, cost=[1.0] * instance.n_options))
'''

TABLE = "eqsat_opt/extract/extractors.py"
ROW = '        "tree": Extractor('
IMPORT = "from eqsat_opt.extract.solve.greedy import"


def node(op: str, cost: float, children: tuple[str, ...] = ()) -> dict[str, object]:
    return {"op": op, "children": children, "eclass": op[0], "cost": cost}


EGRAPH = {
    "nodes": {
        "t-dear": node("t-dear", 9.0, ("l",)),
        "t-cheap": node("t-cheap", 1.0, ("m",)),
        "m": node("m", 1.0, ("l",)),
        "l": node("l", 1.0),
    },
    "root_eclasses": ["t"],
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    (house.path / "eqsat_opt/extract/solve/fewest.py").write_text(FEWEST)
    house.with_edits({
        TABLE: (IMPORT, f"from eqsat_opt.extract.solve.fewest import fewest_enodes\n{IMPORT}"),
    })  # fmt: skip
    row = '        "fewest": Extractor(_alone(fewest_enodes), "none", anytime=False),\n'
    return house.with_edits({TABLE: (ROW, row + ROW)})


def test_an_extractor_is_a_file_and_a_row(house: House, tmp_path: Path) -> None:
    file = tmp_path / "egraph.json"
    file.write_text(json.dumps(EGRAPH))
    costs = {"fewest": 10.0, "tree": 3.0, "exact": 3.0}
    command = ("extract", str(file), "--json", "-", "--method")
    *done, unknown = house.commands([(*command, method) for method in (*costs, "fewer")])
    assert [one.returncode for one in done] == [0, 0, 0], done
    assert [json.loads(one.stdout)["cost"] for one in done] == list(costs.values())
    assert unknown.returncode != 0
    assert "fewest" in unknown.stderr
