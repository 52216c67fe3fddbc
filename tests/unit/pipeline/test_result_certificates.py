"""Certificates of results: made by a run, confirmed without it, refused when a step is changed."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqsat_opt.api import run
from eqsat_opt.cli.app import run as command
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.errors import CheckFailed, StageError
from eqsat_opt.ir.graph.graph import Graph, attributes
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.certificates.comparison import agree
from eqsat_opt.pipeline.certificates.confirming import Certified, certify
from eqsat_opt.pipeline.certificates.term_table import TermTable
from eqsat_opt.pipeline.options import Options
from tests.sampling import sampled

MODELS = ("linear_attention", "sru_step", "bert")
"""Models whose certificates have terms, attributes and functions, and comparisons."""


def made(name: str, path: Path) -> Path:
    """A folder with a model, its result and the certificate."""
    onnx.save(zoo.build(name, scale="tiny"), str(path / "model.onnx"))
    options = Options(
        objective="launches", measure=False, race=False, check=1, strict=True, store="",
        threads=1, budget_s=600.0, nodes=2_500, certificate=str(path / "cert.json"),
    )  # fmt: skip
    run(str(path / "model.onnx"), options, output=str(path / "fast.onnx"))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made("bert", tmp_path_factory.mktemp("certified"))


def confirmed(folder: Path, certificate: str = "cert.json") -> Certified:
    model, fast, cert = (str(folder / one) for one in ("model.onnx", "fast.onnx", certificate))
    return certify(model, fast, cert)


def test_a_result_is_confirmed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = confirmed(folder)
    assert found.rules
    assert found.bound is not None
    assert found.bound.gap < 1e-6
    names = ["zoo:bert@tiny", *(str(folder / name) for name in ("fast.onnx", "cert.json"))]
    assert command(["certify", *names]) == 0
    text = capsys.readouterr().out
    assert "confirmed" in text
    assert "a gap of 0.00%, where the solver claims 0.00%" in text


def test_a_bound_that_is_not_shown_is_refused(folder: Path) -> None:
    certificate = json.loads((folder / "cert.json").read_text())
    cost = certificate["bound"]["cost"]
    for place, value in (
        (("cost",), 0.9 * cost),
        (("proof", "options", 0, 1), -1.0),
        (("proof", "chosen", 0), certificate["bound"]["proof"]["chosen"][1]),
    ):
        changed = Change("replaced", ("bound", *place), value).of(certificate)
        (folder / "changed.json").write_text(json.dumps(changed))
        with pytest.raises(CheckFailed, match="the certificate is refused"):
            confirmed(folder, "changed.json")
    (folder / "changed.json").write_text(json.dumps({**certificate, "bound": None}))
    assert confirmed(folder, "changed.json").bound is None


def test_other_models_are_refused(folder: Path) -> None:
    model, fast, cert = (str(folder / one) for one in ("model.onnx", "fast.onnx", "cert.json"))
    with pytest.raises(CheckFailed, match="another model"):
        certify(fast, fast, cert)
    with pytest.raises(CheckFailed, match="is not the one"):
        certify(model, model, cert)
    with pytest.raises(StageError, match="is not JSON"):
        certify(model, fast, model)


# One change of a certificate ----------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One change: of what, at which place, and to what."""

    kind: str
    place: tuple[Any, ...]
    value: Any = None

    def of(self, certificate: dict[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(certificate)
        *above, last = self.place
        inner: Any = functools.reduce(lambda value, key: value[key], above, changed)
        match self.kind:
            case "removed":
                del inner[last]
            case "repeated":
                inner.insert(last, copy.deepcopy(inner[last]))
            case "exchanged":
                inner[last], inner[last + 1] = inner[last + 1], inner[last]
            case "added":
                inner["more"] = inner[last]
            case _:
                inner[last] = self.value
        return changed


def changes(value: Any, place: tuple[Any, ...] = ()) -> Iterator[Change]:
    """Yield changes of all parts of a value."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            here = (*place, key)
            yield Change("removed", here)
            yield Change("added" if isinstance(value, dict) else "repeated", here)
            if isinstance(value, list) and value[key : key + 1] != value[key + 1 : key + 2] != []:
                yield Change("exchanged", here)
            yield from changes(inner, here)
        return
    for new in others(value):
        yield Change("replaced", place, new)


def others(value: Any) -> list[Any]:
    """Values to put in the place of another one."""
    if isinstance(value, int):
        return [value + 1, value - 1, float(value), str(value), bool(value)]
    if isinstance(value, float):
        return [value * 1.001, -value, value + 1]
    classes = [one.name.lower() for one in Numerics]
    named = [*classes, "matmul/assoc", "matmul/assoc-reversed", f"{value}-reversed"]
    return [f"{value}x", "", *(one for one in named if "/" in value or value in classes)]


@pytest.fixture(scope="module")
def certificates(
    tmp_path_factory: pytest.TempPathFactory, folder: Path
) -> list[tuple[Path, dict[str, Any], list[Change], Certified]]:
    folders = [made(one, tmp_path_factory.mktemp(one)) for one in MODELS[:-1]]
    found = []
    for path in (*folders, folder):
        certificate = json.loads((path / "cert.json").read_text())
        steps = {key: part for key, part in certificate.items() if key != "bound"}
        found.append((path, certificate, list(changes(steps)), confirmed(path)))
    return found


COUNT = 201


@pytest.mark.parametrize("number", sampled(range(COUNT), 4))
def test_a_changed_certificate_is_refused_or_claims_the_same(
    number: int, certificates: list[tuple[Path, dict[str, Any], list[Change], Certified]]
) -> None:
    path, certificate, possible, claim = certificates[number % len(certificates)]
    change = possible[number * len(possible) // COUNT]
    (path / "changed.json").write_text(json.dumps(change.of(certificate)))
    try:
        found = confirmed(path, "changed.json")
    except (CheckFailed, StageError):
        return
    assert says_the_same(change, certificate), change
    assert equations(found) == equations(claim)
    is_backwards = change.place[-1] == "rule"
    assert is_backwards or Numerics.parse(found.numerics) >= Numerics.parse(claim.numerics)


def says_the_same(change: Change, certificate: dict[str, Any]) -> bool:
    """Whether a change does not matter: it must not where the changed certificate is confirmed."""
    match change.place:
        case ["options", *_]:
            return True  # a class that admits more; a normal form that is the same here
        case ["steps", _, "rule"]:
            return str(change.value).endswith("-reversed")  # an equation read backwards
        case ["edit", "computed", _, "shape", *_]:
            return True  # the shape of a constant whose elements get another one next
        case ["terms", int(number), "of", _] if change.kind == "replaced":
            return bool(certificate["terms"][number]["op"] == "Reshape")  # of a Reshape or its x
        case _:
            return change.kind == "exchanged"


def equations(claim: Certified) -> tuple[dict[str, int], int]:
    """The number of equations of each rule, and of those that are compared on numbers."""
    found: dict[str, int] = {}
    for name, count in claim.rules.items():
        base = name.removesuffix("-reversed")
        found[base] = found.get(base, 0) + count
    return found, claim.compared


def test_a_step_that_is_left_out_is_missed(
    certificates: list[tuple[Path, dict[str, Any], list[Change], Certified]],
) -> None:
    for path, certificate, _, _ in certificates:
        for number in range(len(certificate["steps"])):
            changed = Change("removed", ("steps", number)).of(certificate)
            (path / "changed.json").write_text(json.dumps(changed))
            with pytest.raises(CheckFailed, match="do not show"):
                confirmed(path, "changed.json")


# Equations that no rule states --------------------------------------------------------------------


@pytest.fixture
def terms() -> TermTable:
    graph = Graph(("x",), ("x",), (), {}, {"x": TensorType("float16", (2,))})
    return TermTable(lower(graph))


def literal(terms: TermTable, value: float) -> int:
    return terms.apply("Scalar", attributes(value=value, dtype="float16"), ())


def test_literals_differ_by_few_roundings(terms: TermTable) -> None:
    chain = [literal(terms, 1 + number * 2**-8) for number in range(9)]
    assert terms.closure.same(chain[0], chain[1])
    assert not any(terms.closure.same(chain[0], one) for one in chain[2:])


def test_infinite_numbers_agree_with_nothing(terms: TermTable) -> None:
    one = literal(terms, 1.0)
    assert agree(terms, one, one)
    assert not agree(terms, literal(terms, float("inf")), one)
