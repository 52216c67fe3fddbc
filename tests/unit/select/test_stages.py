"""Stages as text and as documents: what is printed, and what is said of a damaged file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.common.codecs import document_text, number_from_json, number_to_json
from eqsat_opt.egraph.legend import NamedEClasses
from eqsat_opt.errors import ExtractionError, OptionError, StageError
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.graph.listed_graph import ListedGraph
from eqsat_opt.pipeline.options import Options
from eqsat_opt.select.choosing.named_problem import NamedProblem
from eqsat_opt.select.choosing.priced_candidates import QuotedCandidates
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding.priced_selection import PricedSelection
from eqsat_opt.select.stages import stage_of

OPTIONS = Options(measure=False, threads=1, store="", budget_s=600.0)
FAST = ("--no-measure", "--threads", "1", "--budget", "600")


@cache
def stage(name: str) -> api.StageValue:
    """A stage of a small model: three time steps, whose products rules merge."""
    return stage_of(searched(), name)


@cache
def searched() -> Proposal:
    """The search that all stages are of."""
    proposal = api.run("zoo:sru_step@tiny", replace(OPTIONS, race=False, check=0)).proposal
    assert proposal is not None
    return proposal


@cache
def stage_text(name: str) -> str:
    """A stage as it is stored."""
    return document_text(api.stage_document(stage(name)))


def damaged(tmp_path: Path, name: str, change: Callable[[Any], object]) -> str:
    """What is said of a stored stage after a change."""
    document = json.loads(stage_text(name))
    change(document)
    path = tmp_path / "stage.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StageError) as caught:
        api.read_stage(path)
    return str(caught.value)


def first_node(document: Any, op: str) -> Any:
    nodes = (node for one in document["classes"] for node in one["nodes"])
    return next(node for node in nodes if node["op"] == op)


def first_step(document: Any) -> Any:
    return next(item for item in document["candidates"] if item["kind"] == "op" and item["class"])


# ** files **


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("graph", ListedGraph),
        ("eclasses", NamedEClasses),
        ("candidates", QuotedCandidates),
        ("problem", NamedProblem),
        ("selection", PricedSelection),
    ],
)
def test_files_go_round(name: str, kind: type, tmp_path: Path) -> None:
    path, again = tmp_path / "one.json", tmp_path / "two.json"
    api.write_stage(stage(name), path)
    back = api.read_stage(path)
    assert isinstance(back, kind)
    api.write_stage(back, again)
    assert path.read_bytes() == again.read_bytes()
    assert str(back) == str(stage(name))


def test_a_stored_problem_is_extracted_by_another_process(tmp_path: Path) -> None:
    """Divided sizes mean something in a process that has not seen the model."""
    g = helper.make_graph(
        [
            helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "N"])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3, None])],
    )
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    quoted = api.stage(model, "candidates", OPTIONS, shapes={"N": 9})
    assert isinstance(quoted, QuotedCandidates)
    assert "floor" in str(quoted)
    path = tmp_path / "candidates.json"
    api.write_stage(quoted, path)
    code = (
        "import sys; from eqsat_opt import api; from eqsat_opt.extract import Objective, extract; "
        "found = extract(api.read_stage(sys.argv[1]).problem().problem, Objective({'time_us': 1}));"
        "print(found.cost.hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    expected = extract(quoted.problem().problem, Objective({"time_us": 1.0})).cost
    assert (done.stdout, done.stderr) == (f"{expected.hex()}\n", "")


def test_the_extractor_reads_a_stored_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`extract` finds what the search found, in the file of its problem."""
    path = tmp_path / "problem.json"
    api.write_stage(stage("problem"), path)
    selection = stage("selection")
    assert isinstance(selection, PricedSelection)
    for metric in ("time_us", "flops", "bytes", "launches"):
        assert main(["extract", str(path), "--objective", metric, "--json", "-"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["status"] == "optimal"
        if metric == "time_us":
            assert found["cost"] == pytest.approx(selection.cost)


def test_a_stored_graph_has_no_contents(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    api.write_stage(stage("graph"), path)
    was, back = stage("graph"), api.read_stage(path)
    assert isinstance(was, ListedGraph)
    assert isinstance(back, ListedGraph)
    assert back.graph == was.graph
    with pytest.raises(StageError, match="no contents"):
        back.graph.constants["weight_1"].load()


def test_a_selection_belongs_to_its_candidates() -> None:
    selection, quoted = stage("selection"), stage("candidates")
    assert isinstance(selection, PricedSelection)
    assert isinstance(quoted, QuotedCandidates)
    selection.require_from(quoted.priced.candidates)
    other = api.stage("zoo:weight_chain@tiny", "candidates", OPTIONS)
    assert isinstance(other, QuotedCandidates)
    with pytest.raises(StageError, match="is not among the candidates"):
        selection.require_from(other.priced.candidates)


def test_constants_are_handles() -> None:
    named = stage("eclasses")
    assert isinstance(named, NamedEClasses)
    weight = next(leaf for leaf in named.legend.leaves if leaf.name == "weight_1")
    assert weight.digest
    assert str(weight.type) == "float32[16,16]"
    leaf = next(leaf for leaf in api.stage_document(named)["leaves"] if leaf["name"] == "weight_1")
    assert leaf == {"name": "weight_1", "type": ["float32", [16, 16]], "digest": weight.digest}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("graph", lambda d: d["inputs"].pop(), "before it is defined"),
        ("graph", lambda d: d["nodes"].reverse(), "before it is defined"),
        ("graph", lambda d: d["outputs"].append("no"), "output 'no' is never defined"),
        ("graph", lambda d: d["inputs"].append(d["inputs"][0]), "which is empty or taken"),
        ("graph", lambda d: d["nodes"][0].update(op="No"), "has the unknown operator 'No'"),
        ("graph", lambda d: d["nodes"][0].update(outputs=[]), "has 0 outputs; it has one"),
        ("graph", lambda d: d["nodes"][0].update(of=["", "If"]), "is not an opaque node"),
        ("graph", lambda d: d["constants"][0].pop("digest"), "lacks the field 'digest'"),
        ("graph", lambda d: d["constants"][0].update(type=["float32", [-1]]), "negative size"),
        ("eclasses", lambda d: d.pop("format"), "has no format; this version reads"),
        ("eclasses", lambda d: d.update(format="eqsat-opt eclasses 99"), "this version reads"),
        ("eclasses", lambda d: d.pop("term_class"), "the e-graph lacks the field 'term_class'"),
        ("eclasses", lambda d: d["classes"][3].pop("nodes"), "class 3 of the e-graph lacks"),
        ("eclasses", lambda d: d.pop("rules"), "the e-graph lacks the field 'rules'"),
        ("eclasses", lambda d: d.update(more=1), "the field 'more', which is not known"),
        (
            "eclasses",
            lambda d: first_node(d, "Sigmoid").update(op="Sigmund"),
            "has the unknown operator 'Sigmund'",
        ),
        (
            "eclasses",
            lambda d: first_node(d, "Sigmoid").update(children=[100_000]),
            "is 100000, which is out of range; allowed are 0 to ",
        ),
        (
            "eclasses",
            lambda d: first_node(d, "Sigmoid").update(children=[0, 1]),
            "Sigmoid is applied to 2 operands",
        ),
        (
            "eclasses",
            lambda d: first_node(d, "Slice")["attrs"].pop("axis"),
            "Slice lacks the attribute 'axis'",
        ),
        (
            "eclasses",
            lambda d: first_node(d, "Slice")["attrs"].update(hi=10**6),
            "is ill-typed: ",
        ),
        (
            "eclasses",
            lambda d: d["classes"][0].update(type=["float31", [1]]),
            "type of class 0 of the e-graph has the unknown element type 'float31'",
        ),
        ("eclasses", lambda d: d["rules"].clear(), "which has no name"),
        (
            "candidates",
            lambda d: first_step(d)["offers"][0].update(time_us=-1),
            "prices are finite and not negative",
        ),
        ("candidates", lambda d: first_step(d)["offers"][0].pop("time_us"), "time_us"),
        ("candidates", lambda d: first_step(d)["offers"][0].pop("backend"), "backend"),
        ("candidates", lambda d: first_step(d)["offers"][0].update(steps=[]), "fewer steps"),
        ("candidates", lambda d: first_step(d).update(writes="blocks"), "a form is space/layout"),
        ("candidates", lambda d: first_step(d).update(nodes=[0]), "computes another class than"),
        ("candidates", lambda d: d["eclasses"].pop("format"), "the e-graph has no format"),
        ("candidates", lambda d: d["candidates"].reverse(), "not in the order of the classes"),
        (
            "problem",
            lambda d: d["nodes"]["#0.0"]["costs"].pop("bytes"),
            "e-node #0.0 has no bytes cost",
        ),
        ("problem", lambda d: d["nodes"]["#0.0"].pop("eclass"), "e-node #0.0 has no eclass"),
        ("problem", lambda d: d["nodes"].pop("#0.0"), "has the child #0.0, which does not exist"),
        ("problem", lambda d: d["root_eclasses"].append("#x"), "root class #x does not exist"),
        ("problem", lambda d: d.update(nodes=[]), "no nodes or root_eclasses"),
        ("problem", lambda d: d.update(more=1), "the field 'more', which is not known"),
        ("selection", lambda d: d["chosen"].reverse(), "which is not computed before it"),
        ("selection", lambda d: d.update(status="perfect"), "'perfect', which is not known"),
        ("selection", lambda d: d.update(cost="much"), 'is "much", which is not a number'),
    ],
)  # fmt: skip
def test_damage_is_named(
    name: str, change: Callable[[Any], object], said: str, tmp_path: Path
) -> None:
    assert said in damaged(tmp_path, name, change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[1]", "holds no JSON object"),
        ('{"format": "eqsat-opt eclasses 1"}', "lacks the field"),
        ('{"format": 1, "format": 2}', "the key 'format' comes twice"),
        ('{"format": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "is not JSON"),
        ('{"nodes": {}, "root_eclasses": []}', "has no format"),
    ],
)
def test_foreign_files_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StageError) as caught:
        api.read_stage(path)
    assert said in str(caught.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="cannot read"):
        api.read_stage(tmp_path / "none.json")
    with pytest.raises(StageError, match="cannot write"):
        api.write_stage(stage("selection"), tmp_path / "none" / "stage.json")
    assert not list(tmp_path.iterdir())


# ** text **


def test_a_model_that_runs_nothing() -> None:
    """An output that is an input: one class, one candidate that is free, no kernel."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    model = helper.make_model(
        helper.make_graph([], "empty", [value], [value]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    texts = {name: str(api.stage(model, name, OPTIONS)) for name in api.STAGES}
    assert texts["eclasses"].splitlines()[-1].split() == ["#0", "float32[2]", "x", "input", "x"]
    assert texts["candidates"].splitlines()[-1].split() == [
        "#0", "float32[2]", "leaf", "input", "x",
    ]  # fmt: skip
    assert texts["selection"].startswith("kernels 0, inputs 1, constants 0; cost 0 ")


def test_one_row_for_each_kernel() -> None:
    text = str(stage("selection")).splitlines()
    assert "price" in text[1]
    running = [line for line in text[2:] if "bound" in line]
    assert text[0].startswith(f"kernels {len(running)}, ")
    assert any("Sigmoid(#26) by concat/map-slice" in line for line in running)


def test_unknown_stages_are_refused_before_the_work() -> None:
    with pytest.raises(OptionError, match="did you mean selection"):
        api.stage("nowhere.onnx", "selektion")


# ** the command **


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["explain", *arguments]) == code
    output, errors = capsys.readouterr()
    assert bool(errors) == bool(code)
    return output if not code else errors


@pytest.mark.parametrize("name", api.STAGES)
def test_explain_shows_a_stage(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stage.json"
    model = ("zoo:sru_step@tiny", "--stage", name, *FAST)
    few = shown(capsys, *model, "--lines", "3").splitlines()
    assert len(few) == 6
    assert few[-1].endswith("more rows: --lines 0 prints all, --json FILE writes them")
    full = shown(capsys, *model, "--lines", "0", "--json", str(path))
    assert full.splitlines() == str(api.read_stage(path)).splitlines()
    assert int(few[-1].split()[1]) == len(full.splitlines()) - 5
    if name == api.STAGES[0]:
        assert shown(capsys, *model, "--json", "-") == path.read_text(encoding="utf-8")
        assert shown(capsys, *model, "--quiet") == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--stage", "eclass"), "unknown stage 'eclass'; did you mean eclasses?"),
        (
            ("--stage", "17"),
            "unknown stage '17'; choose from graph, eclasses, candidates",
        ),
        (("--stage", "selection", "--lines", "-1"), "-1 lines cannot be printed"),
        (("--stage", "selection", "--kernels"), "leave out --kernels or --stage"),
        (("--lines", "3"), "name one with --stage"),
        (("--stage", "selection", "--json", "/nowhere/at/all.json"), "/nowhere/at"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = shown(capsys, "zoo:sru_step@tiny", *arguments, code=1)
    assert said in errors
    assert errors.count("\n") == 1


def test_names_of_a_file_steer_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x\x1b[31m[red]"
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", [name], ["y"])],
            "names",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    onnx.save(model, tmp_path / "m.onnx")
    output = shown(capsys, str(tmp_path / "m.onnx"), "--stage", "selection", *FAST)
    assert "\\x1b[31m[red]" in output
    assert "\x1b" not in output


def test_a_damaged_root_is_an_error_of_extraction(tmp_path: Path) -> None:
    document = json.loads(stage_text("candidates"))
    document["roots"] = []
    path = tmp_path / "stage.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    quoted = api.read_stage(path)
    assert isinstance(quoted, QuotedCandidates)
    with pytest.raises(ExtractionError, match="no root"):
        quoted.problem()


def test_numbers_that_json_lacks_survive() -> None:
    for number in (np.inf, -np.inf, -0.0, 1e-320, 3):
        text = json.dumps(number_to_json(number))
        assert repr(number_from_json(json.loads(text), "number")) == repr(number)


@pytest.mark.parametrize("name", api.STAGES)
def test_the_page_shows_what_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "stages.md"
    command = f"$ eqsat-opt explain zoo:weight_chain@tiny --stage {name} --no-measure --lines 0\n"
    printed = shown(capsys, *command.split()[3:])
    assert command + printed in page.read_text(encoding="utf-8")
