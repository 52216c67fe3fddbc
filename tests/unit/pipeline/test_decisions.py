"""Decisions: the same bytes again without a search, and refusals of what they are not about."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.common.codecs import document_text, value_from_json, value_to_json
from eqsat_opt.common.faults import Faults
from eqsat_opt.errors import CheckFailed, OptionError, StageError
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.decisions import basis, replaying
from eqsat_opt.pipeline.decisions.document import (
    Edit,
    RunDecisions,
    read_decisions,
    write_decisions,
)
from eqsat_opt.pipeline.decisions.making import applied
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.runtime.backends.ort.config import level_in
from tests.sampling import sampled

SEARCH: dict[str, Any] = {
    "measure": False,
    "race": False,
    "check": 0,
    "budget_s": 600,
    "threads": 1,
    "nodes": 2_000,
    "store": "",
}

BODIES = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4] w = {1, 2, 3, 4}> {
    e = Exp (x)
    f = Exp (x)
    g = Add (e, f)
    z = If (c) <then_branch = a () => (float[2, 4] r)
            { i = Identity (g) s = Mul (i, w) t = Mul (i, w) u = Add (s, t) r = Tanh (u) },
        else_branch = b () => (float[2, 4] q)
            { s = Exp (g) i = Identity (s) t = Exp (g) q = Add (t, i) }>
    y = Relu (z)
}"""

SEQUENCES = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[4, 6] x) => (float[4, 6] y, float[4, 3] p) {
    s = SplitToSequence <axis = 1> (x)
    c = ConcatFromSequence <axis = 1> (s)
    a = Neg (c)
    b = Neg (a)
    h = int64[2] {3, 3} ()
    y = Relu (b)
    zero = Sub (x, x)
    p, q = Split <axis = 1, num_outputs = 2> (x)
}"""


def parsed(text: str) -> onnx.ModelProto:
    lines = [line for line in text.splitlines() if "int64[2]" not in line]
    return onnx.parser.parse_model("\n".join(lines))


def tiny(name: str) -> Callable[[], onnx.ModelProto]:
    return lambda: zoo.build(name, scale="tiny")


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, Any]]] = {
    "products": (tiny("weight_chain"), {}),
    "one weight of two": (tiny("lora"), {"numerics": "refactor"}),
    "siblings and splits": (tiny("sru_step"), {}),
    "least weights": (tiny("bert_taso"), {"objective": "weight_bytes"}),
    "batch normalisation": (tiny("resnet50_bn"), {"numerics": "relaxed"}),
    "every bit": (tiny("nasrnn"), {"numerics": "bitexact"}),
    "bodies": (lambda: parsed(BODIES), {}),
    "sequences": (lambda: parsed(SEQUENCES), {}),
    "training": (tiny("mlp_training"), {}),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def decided(model: onnx.ModelProto | None = None, **options: Any) -> Report:
    onnx.save(zoo.build("weight_chain", scale="tiny") if model is None else model, "m.onnx")
    return api.run(
        "m.onnx", Options(**{**SEARCH, **options}, decisions="d.json"), output="a.onnx"
    ).report


def again(output: str | None = "b.onnx", **options: Any) -> Report:
    given: dict[str, Any] = {"threads": 1, "budget_s": 600, "store": ""}
    return api.run("m.onnx", Options(**{**given, **options}, replay="d.json"), output=output).report


# ** the same bytes **


@pytest.mark.parametrize("name", sampled(MODELS, 2))
def test_a_replay_writes_the_same_bytes(name: str, folder: Path) -> None:
    made, options = MODELS[name]
    found = decided(made(), **options)
    assert not found.warnings
    assert found.winner != "original"
    told = again(**options)
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()
    assert (told.status, told.winner, told.rules) == ("replayed", found.winner, found.rules)
    assert told.operators_after == found.operators_after
    assert (told.latency, told.race, told.errors, told.speedup) == ({}, {}, (), 1.0)
    assert not {"saturate", "measure", "check", "race"} & told.stages_s.keys()
    assert any("neither checked nor raced again" in note for note in told.notes)


def test_decisions_hold_no_weights_and_are_canonical(folder: Path) -> None:
    model = zoo.build("lora", scale="tiny")
    decided(model, numerics="refactor")
    first = (folder / "d.json").read_text(encoding="utf-8")
    assert first == document_text(json.loads(first))
    edit = json.loads(first)["edit"]
    assert not any("bytes" in one for one in edit["computed"])
    assert any("op" in one for one in edit["computed"])
    # Other weights of the same model are another model, and give the same edit.
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(array * np.float32(1.5), tensor.name))
    decided(model, numerics="refactor")
    other = json.loads((folder / "d.json").read_text(encoding="utf-8"))
    assert other["edit"] == edit
    assert other["result"] != json.loads(first)["result"]


def test_weights_in_another_file(folder: Path) -> None:
    model = zoo.build("weight_chain", scale="tiny")
    onnx.save(model, "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    options = Options(**SEARCH, decisions="d.json")
    api.run("m.onnx", options, output="a.onnx")
    again("b.onnx")
    one, other = (onnx.load(name) for name in ("a.onnx", "b.onnx"))
    assert one == other
    (folder / "m.data").write_bytes(bytes(len((folder / "m.data").read_bytes())))
    with pytest.raises(OptionError, match="about another model, or about other weights"):
        again("c.onnx")


def test_without_a_better_model_the_original_comes_back(folder: Path) -> None:
    assert decided(rules="none").winner == "original"
    assert json.loads((folder / "d.json").read_text(encoding="utf-8"))["edit"] is None
    told = again(rules="none")
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()
    assert told.notes == ("d.json decided that the original stays (unchanged), with 1 thread",)


def test_an_advised_level_is_replayed(folder: Path) -> None:
    decided()
    write_decisions(replace(read_decisions("d.json"), level="basic", session_speedup=1.2), "d.json")
    told = again()
    assert level_in(onnx.load("b.onnx")) == "basic"
    assert told.session_options == {"graph_optimization_level": "basic"}


def test_an_earlier_result_takes_no_part(folder: Path) -> None:
    decided()
    api.run("m.onnx", Options(**SEARCH, decisions="e.json"), output="a.onnx")
    assert (folder / "d.json").read_bytes() == (folder / "e.json").read_bytes()


def test_nothing_is_decided_without_a_search(folder: Path) -> None:
    found = decided(zoo.build("sru", scale="tiny"), **{"nodes": 1})
    assert found.status == "unmeasured" or found.winner == "original"
    onnx.save(zoo.build("sru", scale="tiny"), "m.onnx")
    (folder / "d.json").unlink()
    hurried = Options(**{**SEARCH, "budget_s": 1e-6}, decisions="d.json")
    notes = api.run("m.onnx", hurried, output="a.onnx").report.notes
    assert "no decisions are written, as nothing was decided" in notes
    assert not (folder / "d.json").exists()


# ** a check and a race on demand **


def test_a_check_on_demand(folder: Path) -> None:
    decided()
    told = again(check=1)
    assert told.errors
    assert told.race == {}
    assert any("not raced again; ask for it with --race" in note for note in told.notes)


def test_a_race_on_demand(folder: Path) -> None:
    decided()
    told = again(race=True, budget_s=20)
    assert told.race["entries"].keys() >= {"original", "best"}
    assert told.status == "replayed"
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


def forged(change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the edit, so that neither the checksum nor the digest of the result shows it."""
    found = read_decisions("d.json")
    assert found.edit is not None
    edit = json.loads(json.dumps(value_to_json(found.edit)))
    change(edit)
    write_decisions(replace(found, edit=value_from_json(edit, Edit, "the edit")), "d.json")


def test_a_check_finds_a_forged_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Relu(a) c = Neg(b) y = Neg(c) }
    """)
    decided(model)

    def other_operator(graph: dict[str, Any]) -> None:
        graph["nodes"] = [{"op": "Exp", "inputs": ["x"], "outputs": {"y": ["float32", [2, 3]]}}]

    forged(other_operator)
    with pytest.raises(StageError, match="does not make the result again"):
        again()
    found = read_decisions("d.json")
    monkeypatch.setattr(
        "eqsat_opt.pipeline.decisions.replaying.content_digest",
        lambda model, computed_only=False: found.result if computed_only else content_digest(model),
    )
    with pytest.raises(CheckFailed, match="the replayed result is wrong: output 'y'"):
        again("c.onnx", check=1)
    assert not (folder / "c.onnx").exists()


# ** refusals **


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"versions": {"eqsat-opt": "0.0.9"}}, "decided with eqsat-opt 0.0.9, and here is"),
        ({"versions": {}}, "decided with eqsat-opt none, and here is"),
        ({"device": "cpu-0", "device_name": "Z80"}, "decided for Z80, and this is"),
        ({"rules": "0"}, "decided with other rules; give the same --rules"),
        ({"options": {"numerics": "relaxed"}}, "decided with --numerics relaxed, and this run has"),
    ],
)
def test_another_basis_is_refused(change: dict[str, Any], expected: str, folder: Path) -> None:
    decided()
    found = read_decisions("d.json")
    if "options" in change:
        change = {"options": {**found.basis.options, **change["options"]}}
    write_decisions(replace(found, basis=replace(found.basis, **change)), "d.json")
    with pytest.raises(OptionError, match=expected):
        again()
    assert not (folder / "b.onnx").exists()


def test_every_library_of_the_basis_counts() -> None:
    one = basis.basis_of(basis_request())
    for library in one.versions:
        other = replace(one, versions={**one.versions, library: "0"})
        with pytest.raises(OptionError, match=f"decided with {library} 0"):
            basis.require_same(other, one, "d.json")


def basis_request() -> Any:
    from eqsat_opt.pipeline.request import request_of

    return request_of(Options(threads=1), searches=False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"numerics": "bitexact"}, "with --numerics reassociate, and this run has bitexact"),
        ({"objective": "bytes"}, "with --objective time_us, and this run has"),
        ({"limits": ["bytes<=1e9"]}, "without --limit, and this run has bytes<=1000000000"),
        ({"rules": "none"}, "with other rules"),
    ],
)
def test_other_options_are_refused(options: dict[str, Any], expected: str) -> None:
    decided()
    with pytest.raises(OptionError, match=expected):
        again(**options)


def test_fixed_sizes_are_part_of_the_options() -> None:
    model = parsed("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[N,3] x) => (float[N,3] y) { a = Neg(x) b = Neg(a) y = Relu(b) }
    """)
    decided(model, fixed={"N": 2})
    again(fixed={"N": 2})
    for other in ({}, {"N": 3}):
        with pytest.raises(OptionError, match="with --fix-shape N:2, and this run has"):
            again(fixed=other)


def test_another_model_is_refused(folder: Path) -> None:
    decided()
    onnx.save(zoo.build("weight_chain", scale="tiny", seed=1), "m.onnx")
    with pytest.raises(OptionError, match=r"d\.json is about another model"):
        again()


def test_a_replay_decides_nothing() -> None:
    with pytest.raises(OptionError, match="a replay decides nothing; leave out"):
        Options(replay="d.json", decisions="x")


@pytest.mark.parametrize(("option", "form"), [("tuned", "tuned form"), ("plan", "plan")])
def test_a_form_that_was_not_made_is_refused(option: str, form: str, folder: Path) -> None:
    decided()
    with pytest.raises(OptionError, match=f"decided without a {form}; leave out --{option}"):
        again(**{option: "f"})
    assert not (folder / "f").exists()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda text: text[: len(text) // 2], "d.json is not JSON"),
        (lambda text: "", "d.json is not JSON"),
        (lambda text: "[" * 100_000, "d.json is not JSON"),
        (lambda text: "[]", "holds no JSON object, so it is not a file of decisions"),
        (lambda text: "{}", "has no format"),
        (lambda text: text.replace("decisions 1", "decisions 2"), "has the format"),
        (lambda text: text.replace('"speedup": 1', '"speedup": 9'), "damaged or edited"),
        (lambda text: text.replace('"edit"', '"edits"'), "missing required field `edit`"),
    ],
)
def test_damaged_files_are_refused(
    damage: Callable[[str], str], expected: str, folder: Path
) -> None:
    decided()
    path = folder / "d.json"
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(StageError, match=expected):
        again()
    assert not (folder / "b.onnx").exists()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a JSON document."""
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from places(item, (*path, key))


ODD: tuple[Any, ...] = (None, -1, 10**30, 0.5, "", "x", [], {}, [[]], ["x"], {"x": 1}, True, "00")


@pytest.mark.parametrize("name", ["siblings and splits", "bodies"])
def test_no_edit_does_more_than_fail_in_one_line(name: str) -> None:
    made, options = MODELS[name]
    decided(made(), **options)
    found, model = read_decisions("d.json"), load_model("m.onnx")
    assert found.edit is not None
    good = value_to_json(found.edit)
    request = basis_request()
    right = model_proto(applied(model, found.edit, request, Faults()).model)
    generator = random.Random(0)
    where = list(places(good))
    refused = 0
    for _ in range(40):
        bad = json.loads(json.dumps(good))
        path = generator.choice(where)
        inner = bad
        for key in path[:-1]:
            inner = inner[key]
        if generator.random() < 0.3 and isinstance(inner, list):
            inner.insert(path[-1], generator.choice(inner))
        else:
            inner[path[-1]] = generator.choice(ODD)
        try:
            edit = value_from_json(bad, Edit, "the edit")
            again = replaying.made_again(
                model, replace(found, edit=edit), request, "d.json", Faults()
            )
        except StageError as error:
            assert "\n" not in str(error)  # noqa: PT017 (a change may also leave the result)
            refused += 1
        else:
            assert again is not None
            assert model_proto(again.model) == right
    assert refused > 30


def test_decisions_go_round() -> None:
    decided(parsed(BODIES))
    found = read_decisions("d.json")
    assert found.edit is not None
    assert {one.body for one in found.edit.bodies} == {"then_branch", "else_branch"}
    assert value_from_json(value_to_json(found), RunDecisions, "it") == found


# ** the command line **


def test_the_command_saves_and_replays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("optimize", "zoo:weight_chain@tiny", "--threads", "1", "--store", "")
    search = ("--no-measure", "--no-race", "--budget", "600")
    assert main([*common, *search, "-o", "a.onnx", "--save-decisions", "d.json", "-v"]) == 0
    assert "decisions are in d.json, from which --replay makes the result again" in (
        capsys.readouterr().out
    )
    assert main([*common, "-o", "b.onnx", "--replay", "d.json"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    words = " ".join(output.split())  # however wide the columns are
    for told in (
        "the result was made by earlier decisions, without search or measurement",
        "d.json decided on this result (unmeasured), with 1 thread",
        "the result was neither checked nor raced again; ask for it with --check 3 and --race",
        "written b.onnx",
    ):
        assert told in words
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--replay", "d.json"), "error: cannot read d.json: No such file or directory"),
        (("--save-decisions", "-"), "error: --save-decisions needs a file; give it a name"),
        (("--save-decisions", "o.onnx"), "error: o.onnx is written already; give"),
        (("--save-decisions", "no/d.json"), "error: the folder no does not exist; create it first"),
        (("--replay", "o.onnx"), "error: cannot read o.onnx"),
        (("--replay", "d.json", "--save-decisions", "e.json"), "error: a replay decides nothing"),
        (("--replay", "d.json", "--min-speedup", "2"), "error: --min-speedup is about a race"),
        (("--dry-run", "--save-decisions", "e.json"), "error: --dry-run writes nothing"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimize", "zoo:sru@tiny", "-o", "o.onnx", *arguments]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(expected)
    assert errors.count("\n") == 1
    assert not list(folder.iterdir())
