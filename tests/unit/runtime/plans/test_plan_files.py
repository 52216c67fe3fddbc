"""Plans as files: canonical, whole or not at all, and damage is told in one line."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.plan.files import plan_from_json, plan_text, read_plan, write_plan
from eqsat_opt.runtime.plan.hazards import check_plan

GOLDEN = sorted((Path(__file__).parents[3] / "golden" / "plans").glob("*.plan.json"))

_Place = tuple[Any, ...]
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 7, 256, 1 << 40, 1 << 70, 1.5, "", "x", "y", [], {}, [0], [1, 2],
    ["float32", [2]], ["string", [1]], "cuda/nhwc", "plain", {"float": "nan"}, {"floor": [1, 0]},
)  # fmt: skip


def places(value: Any, at: _Place = ()) -> Iterator[_Place]:
    """Every place in a document but the whole."""
    if not isinstance(value, dict | list):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*at, key)
        yield from places(item, (*at, key))


def damaged(document: dict[str, Any], rnd: random.Random) -> dict[str, Any]:
    """The document with one place left out, doubled or replaced."""
    document = copy.deepcopy(document)
    *path, last = rnd.choice(list(places(document)))
    holder: Any = document
    for key in path:
        holder = holder[key]
    match rnd.randrange(4):
        case 0:
            del holder[last]
        case 1 if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        case _:
            holder[last] = copy.deepcopy(rnd.choice(_VALUES))
    return document


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_damage_is_refused_in_one_line(path: Path) -> None:
    document, rnd, refused = json.loads(path.read_text()), random.Random(0), list[str]()
    for _ in range(400):
        try:
            plan = plan_from_json(damaged(document, rnd))
            check_plan(plan)
        except PlanError as error:
            refused.append(str(error))
        else:  # another name, say, or a literal
            assert plan_text(plan_from_json(json.loads(plan_text(plan)))) == plan_text(plan)
    assert len(refused) > 300
    assert not any("\n" in message for message in refused)


def test_files_are_canonical(tmp_path: Path) -> None:
    for path in GOLDEN:
        plan = read_plan(path)
        write_plan(tmp_path / "again.json", plan)
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_forms_other_than_plain_are_kept() -> None:
    document = json.loads(GOLDEN[0].read_text())
    document["buffers"][0]["form"] = "cuda/nhwc"
    document["launches"][0]["body"]["writes"] = "cuda/nhwc"
    plan = plan_from_json(document)
    assert plan.buffers[0].form == Form("cuda", "nhwc")
    assert plan_from_json(json.loads(plan_text(plan))) == plan


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    plan = read_plan(GOLDEN[0])
    with pytest.raises(PlanError, match="cannot write"):
        write_plan(tmp_path / "none" / "p.json", plan)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    for text, message in (
        ("", "is not JSON"),
        ("[]", "no JSON object"),
        ("{}", "has no format"),
        ('{"format": "eqsat-opt plan 2"}', "'eqsat-opt plan 1' is what can be read"),
        ("[" * 100_000, "is not JSON"),
        ('{"format": "x", "format": "y"}', "comes twice"),
    ):
        path.write_text(text)
        with pytest.raises(PlanError, match=message):
            read_plan(path)
    with pytest.raises(PlanError, match="cannot read"):
        read_plan(tmp_path / "none.json")
