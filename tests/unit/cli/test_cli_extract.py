"""`eqsat-opt extract`: what it reads, prints, writes and refuses."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.cli import main
from eqsat_opt.cli.extract.files import FileOutcome
from eqsat_opt.cli.extract.table import SolvedFile, print_solved
from eqsat_opt.cli.session import output_console
from eqsat_opt.extract import (
    EXTRACTORS,
    Extraction,
    Extractor,
    Objective,
    Problem,
    extract,
    read_json,
)
from eqsat_opt.extract.objective import AnyObjective

# Both users of `common` have a cheaper child of their own, but together it is cheaper to share.
NODES: dict[str, dict[str, Any]] = {
    "top.0": {"op": "f", "children": ["left.0", "right.0"], "eclass": "top", "cost": 1},
    "left.0": {"op": "a", "children": ["one.0"], "eclass": "left", "cost": 1},
    "left.1": {"op": "a", "children": ["common.0"], "eclass": "left", "cost": 1},
    "right.0": {"op": "b", "children": ["two.0"], "eclass": "right", "cost": 1},
    "right.1": {"op": "b", "children": ["common.0"], "eclass": "right", "cost": 1},
    "common.0": {"op": "c", "children": [], "eclass": "common", "cost": 4.0},
    "one.0": {"op": "d", "children": [], "eclass": "one", "cost": 3.0},
    "two.0": {"op": "e", "children": [], "eclass": "two", "cost": 3.0},
}
PRICED: dict[str, dict[str, Any]] = {
    "top.0": {"op": "f", "children": ["leaf.0"], "eclass": "top", "implementations": [
        {"name": "fast", "costs": {"time": 1.0, "energy": 9.0}},
        {"name": "slow", "costs": {"time": 2.0, "energy": 4.0}},
    ]},
    "leaf.0": {"op": "x", "children": [], "eclass": "leaf", "costs": {"time": 1.0, "energy": 1.0}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def egraph(path: str, nodes: object = None, roots: object = ("top",)) -> str:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"nodes": NODES if nodes is None else nodes, "root_eclasses": roots}
    file.write_text(json.dumps(content), encoding="utf-8")
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of a command that says nothing on standard error."""
    assert main(("extract", *arguments)) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return output


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that fails."""
    assert main(("extract", *arguments)) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    return errors


def result(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(shown(capsys, *arguments, "--json", "-"))


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, egraph("e.json")).splitlines()
    assert lines[0].split()[:6] == ["file", "e-nodes", "classes", "best", "greedy", "cost"]
    name, nodes, classes, greedy, cost, bound, gap, status, *rest = lines[1].split()
    assert (name, nodes, classes, greedy, cost, bound) == ("e.json", "8", "6", "9", "7", "7")
    assert (gap, status) == ("0.00%", "optimal")
    assert "s" in rest
    assert len(lines) == 2


@pytest.mark.parametrize("width", [80, 100, 125, 140])
def test_tables_cut_no_number(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    name = "folder/of/a/rather/long/path/to/an/egraph/which/is/cut.json"
    nodes = {key: {**node, "cost": node["cost"] / 3e5} for key, node in NODES.items()}
    outcome = SolvedFile(
        name=egraph(name, nodes),
        n_nodes=1_234_567,
        n_classes=123_456,
        extraction=extract(read_json(name).problem, Objective({"cost": 1.0})),
        named={},
        greedy_cost=9 / 3e5,
        time_s=1234.56,
        aim=("cost",),
    )
    console = output_console()
    print_solved(console, [outcome, FileOutcome("bad.json", "bad.json is not JSON")])
    output = capsys.readouterr().out
    words = ["2.333333e-05", "0.00%", "optimal", "bad.json is not JSON", "3e-05"]
    words += ["123,456", "1234.56 s"] if width >= 100 else []
    words += ["rest"] if width >= 125 else []
    for word in words:
        assert word in output
    assert ("classes" in output) == (width >= 100)  # a column goes, before a number is cut
    assert max(map(len, output.splitlines())) <= width


def test_result_file_has_the_names_of_the_egraph(capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, egraph("e.json"), "--json", "out.json", "--quiet")
    found = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert found["choices"] == {
        "top": "top.0",
        "left": "left.1",
        "right": "right.1",
        "common": "common.0",
    }
    assert (found["cost"], found["lower_bound"], found["gap"]) == (7.0, 7.0, 0.0)
    assert (found["status"], found["greedy_cost"]) == ("optimal", 9.0)
    assert found["metrics"] == {"cost": 7.0}
    assert found["implementations"] == {}
    assert sum(found["stages_s"].values()) > 0


def test_implementations_and_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("e.json", PRICED)
    fast = result(capsys, "e.json", "--objective", "time")
    assert fast["choices"] == {"top": "top.0", "leaf": "leaf.0"}
    assert fast["implementations"] == {"top": "fast"}
    assert fast["metrics"] == {"time": 2.0, "energy": 10.0}
    both = result(capsys, "e.json", "--objective", "time+energy")
    assert both["implementations"] == {"top": "slow"}
    assert both["cost"] == 8.0
    limited = result(capsys, "e.json", "--objective", "time", "--limit", "energy=6")
    assert limited["implementations"] == {"top": "slow"}
    assert limited["cost"] == 3.0


@pytest.mark.parametrize(
    ("objective", "limits", "cost", "chosen"),
    [
        # Totals of time and energy: fast 2 and 10, slow 3 and 5; all is one chain.
        ("time+0.5*energy", (), 5.5, "slow"),
        ("time+2*critical_path(time)", (), 6.0, "fast"),
        ("energy*time", (), 15.0, "slow"),
        ("energy^0.1*time^0.9", (), 10**0.1 * 2**0.9, "fast"),
        ("energy/time", (), 5 / 3, "slow"),
        ("time", ("max(energy)=8",), 3.0, "slow"),
        ("energy", ("critical_path(time)=2.5",), 10.0, "fast"),
    ],
)
def test_objectives(
    objective: str,
    limits: tuple[str, ...],
    cost: float,
    chosen: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [word for limit in limits for word in ("--limit", limit)]
    found = result(capsys, egraph("e.json", PRICED), "--objective", objective, *options)
    assert found["cost"] == pytest.approx(cost, rel=1e-6)
    assert found["implementations"] == {"top": chosen}
    assert found["status"] == "optimal"
    assert (found["objective"], found["limits"]) == (objective, list(limits))


def test_greedy_is_judged_by_the_whole_objective(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("e.json", PRICED)
    path = result(capsys, "e.json", "--objective", "time+2*critical_path(time)")
    assert path["greedy_cost"] == 6.0
    limited = result(capsys, "e.json", "--objective", "time", "--limit", "energy=6")
    assert limited["greedy_cost"] is None  # it takes the fast one, which breaks the limit


def test_methods_differ_as_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("e.json")
    assert result(capsys, "e.json", "--method", "tree")["cost"] == 9.0
    for method in ("auto", "exact", "local", "lns"):
        assert result(capsys, "e.json", "--method", method)["cost"] == 7.0, method


def test_folder(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("set/b/one.json")
    egraph("set/two.json", roots=["left"])
    Path("set/optima.json").write_text("{}")
    output = shown(capsys, "set", "--json", "r.json")
    assert "2 files: 2 optimal" in output
    assert "left out: optima.json" in output
    found = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert {name: entry["cost"] for name, entry in found.items()} == {
        "b/one.json": 7.0,
        "two.json": 4.0,
    }


def test_folder_with_a_bad_file_solves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("set/good.json")
    egraph("set/bad.json", roots=["nowhere"])
    assert main(("extract", "set", "--json", "r.json")) == 1
    output, errors = capsys.readouterr()
    assert "root class nowhere does not exist" in " ".join(output.split())
    assert errors == "error: 1 of 2 files have no result: bad.json\n"
    found = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert found["good.json"]["cost"] == 7.0
    assert found["bad.json"]["status"] == "error"
    assert "nowhere" in found["bad.json"]["error"]


def test_incumbent(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("e.json")
    shown(capsys, "e.json", "--json", "best.json")
    again = result(capsys, "e.json", "--incumbent", "best.json", "--method", "greedy")
    assert again["cost"] == 7.0
    egraph("set/e.json")
    Path("all.json").write_text(json.dumps({"e.json": json.loads(Path("best.json").read_text())}))
    again = result(capsys, "set", "--incumbent", "all.json", "--method", "greedy")
    assert again["e.json"]["cost"] == 7.0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{}", "has no choices"),
        ('{"choices": {"top": "top.0"}}', "incomplete: class"),
        ('{"choices": {"nowhere": "top.0"}}', "no class nowhere"),
        ('{"choices": {"top": "up.0"}}', "no e-node up.0"),
        ('{"choices": {"top": "left.0"}}', "left.0 is not in class top"),
        ("", "is empty"),
    ],
)
def test_bad_incumbents(content: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("known.json").write_text(content)
    assert expected in refused(capsys, egraph("e.json"), "--incumbent", "known.json")


def test_infeasible(capsys: pytest.CaptureFixture[str]) -> None:
    cycle = {
        "a.0": {"op": "f", "children": ["b.0"], "eclass": "a"},
        "b.0": {"op": "g", "children": ["a.0"], "eclass": "b"},
    }
    egraph("e.json", cycle, ["a"])
    assert "infeasible: every way to compute the roots is cyclic" in refused(
        capsys, "e.json", "--json", "r.json"
    )
    found = json.loads(Path("r.json").read_text())
    assert (found["status"], found["cost"], found["choices"]) == ("infeasible", None, {})
    egraph("e.json", PRICED)
    arguments = ("e.json", "--objective", "time", "--limit", "energy=4")
    assert "infeasible: nothing meets the limits" in refused(capsys, *arguments)


def changed(name: str, **changes: object) -> dict[str, Any]:
    return {**NODES, name: {**NODES[name], **changes}}


@pytest.mark.parametrize(
    ("nodes", "roots", "expected"),
    [
        (NODES, ["nowhere"], "root class nowhere does not exist"),
        (NODES, [3], "root class 3 is not a string"),
        (NODES, [], "no root"),
        ([], ["top"], "no nodes or root_eclasses"),
        (changed("one.0", children=["gone.0"]), ["top"], "one.0 has the child gone.0"),
        (changed("one.0", children="two.0"), ["top"], "one.0 has children that are not a list"),
        (changed("one.0", children=[["two.0"]]), ["top"], "one.0 has the child ['two.0']"),
        (changed("one.0", cost=-1), ["top"], "one.0 costs -1.0"),
        (changed("one.0", cost=float("nan")), ["top"], "NaN is not a JSON number"),
        (changed("one.0", cost=10**400), ["top"], "one.0 costs inf"),
        (changed("one.0", cost="3"), ["top"], "one.0 has the cost '3', which is not a number"),
        (changed("one.0", cost=True), ["top"], "one.0 has the cost True"),
        (changed("one.0", cost=None), ["top"], "one.0 has no cost"),
        (changed("one.0", eclass=1), ["top"], "one.0 has no eclass"),
        (changed("one.0", op=1), ["top"], "one.0 has the op 1"),
        ({**NODES, "one.0": 3}, ["top"], "one.0 is not an object"),
        (changed("one.0", costs={"time": 1}), ["top"], "top.0 has no time cost"),
        (changed("one.0", costs={"cost": 1}), ["top"], "one.0 gives the metric cost twice"),
        (changed("one.0", costs=[1]), ["top"], "one.0 has costs that are not an object"),
        (changed("one.0", costs={"cost2": {}}), ["top"], "top.0 has no cost2 cost"),
        (changed("one.0", implementations=[]), ["top"], "one.0 has implementations that are no"),
        (changed("one.0", implementations=[1]), ["top"], "implementation 0 of e-node one.0"),
        (changed("one.0", implementations=[{"name": 1}]), ["top"], "implementation 1, no string"),
        (changed("one.0", implementations=[{"name": "a"}, {"name": "a"}]), ["top"], "named a"),
        (
            {"a": {"eclass": "top", "costs": {"time": 1, "energy": -2}}},
            ["top"],
            "a costs -2.0 energy",
        ),
    ],
)
def test_bad_egraphs(
    nodes: object, roots: list[object], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, egraph("e.json", nodes, roots))
    assert message.startswith("error: e.json")
    assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "e.json is empty"),
        (" \n", "e.json is empty"),
        ("{", "e.json is not JSON"),
        ("\x00\xff", "e.json is not JSON"),
        ("[" * 100_000, "e.json is not JSON"),
        ("3", "e.json is not an egraph-serialize file"),
        ('{"nodes": {"a": 1, "a": 2}}', "the key 'a' comes twice"),
    ],
)
def test_files_that_are_no_egraphs(
    text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e.json").write_bytes(text.encode("latin-1"))
    assert expected in refused(capsys, "e.json")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("none.json",), "cannot read none.json"),
        (("empty",), "no .json file in empty"),
        (("others",), "none of the files is an e-graph"),
        (("e.json", "--method", "magic"), "unknown method 'magic'; choose from tree, sharing"),
        (("e.json", "--time-limit", "-1"), "--time-limit"),
        (("e.json", "--gap", "2"), "--gap"),
        (("e.json", "--json", "no/out.json"), "the folder no does not exist"),
        (("e.json", "--plot", "p.png"), "--pareto"),
        (("e.json", "--objective", "time"), "time"),
        (("e.json", "--objective", "cost+"), "cost+"),
        (("e.json", "--limit", "cost"), "cost"),
        (("e.json", "--limit", "bytes=3"), "bytes"),
        (("p.json",), "has the metrics time, energy; say with --objective"),
        (("e.json", "--incumbent", "none.json"), "cannot read none.json"),
        (("p.json", "--objective", "time", "--method", "tree", "--limit", "time=9"), "no limits"),
    ],
)
def test_bad_arguments(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    egraph("e.json")
    egraph("p.json", PRICED)
    Path("empty").mkdir()
    Path("others").mkdir()
    for name in ("x", "y"):
        Path(f"others/{name}.json").write_text("{}")
    assert expected in refused(capsys, *arguments)


def test_quiet_and_duplicate_roots(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("e.json", roots=["top", "left", "top"])
    assert shown(capsys, "e.json", "--quiet") == ""
    assert result(capsys, "e.json")["cost"] == 7.0


def fake(monkeypatch: pytest.MonkeyPatch, *, catches: bool) -> None:
    """An extractor that is interrupted while it works, and keeps what it has or does not."""

    def run(problem: Problem, objective: AnyObjective, **_: object) -> Extraction:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if not catches:
                raise
        return EXTRACTORS["tree"].run(problem, objective)

    extractors = {**EXTRACTORS, "auto": Extractor(run, "none", anytime=False)}
    monkeypatch.setattr("eqsat_opt.extract.EXTRACTORS", extractors)


def test_interrupt_prints_and_writes_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    fake(monkeypatch, catches=True)
    egraph("set/a.json")
    egraph("set/b.json")
    assert main(("extract", "set", "--json", "r.json")) == 1
    output, errors = capsys.readouterr()
    assert errors == "error: interrupted; r.json is complete\n"
    assert "a.json" in output
    found = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert {name: entry["cost"] for name, entry in found.items()} == {"a.json": 9.0}
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupt_without_any_result_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, catches=False)
    egraph("e.json")
    assert main(("extract", "e.json", "--json", "r.json")) == 1
    assert capsys.readouterr().err == "error: interrupted; nothing was written\n"
    assert not Path("r.json").exists()


def test_help_describes_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("--help",)) == 0
    assert "extract" in capsys.readouterr().out
    text = shown(capsys, "--help")
    for word in ('"costs": {"time": 1.0, "energy": 2.0}', '"implementations"', "stages_s"):
        assert word in text


# ** trade-offs **


def test_trade_off(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("e.json", PRICED)
    output = shown(capsys, "e.json", "--pareto", "time,energy", "--json", "r.json")
    rows = [line.split() for line in output.splitlines()]
    assert rows[1] == ["time", "energy", "classes"]
    assert rows[2:] == [["1", "2", "10", "2"], ["2", "3", "5", "2"]]
    front = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert front["metrics"] == ["time", "energy"]
    assert (front["status"], front["gap"]) == ("optimal", pytest.approx(0.0, abs=1e-6))
    assert [point["implementations"] for point in front["points"]] == [
        {"top": "fast"},
        {"top": "slow"},
    ]
    limited = result(capsys, "e.json", "--pareto", "time,energy", "--limit", "energy=6")
    assert [point["metrics"]["energy"] for point in limited["points"]] == [5.0]


def test_trade_offs_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    egraph("set/a.json", PRICED)
    egraph("set/b.json", PRICED, ["leaf"])
    egraph("set/c.json")
    assert main(("extract", "set", "--pareto", "energy,time", "--json", "r.json")) == 1
    output, errors = capsys.readouterr()
    assert "a.json: gap" in output
    assert errors == "error: 1 of 3 files have no result: c.json\n"
    found = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert [len(found[f"{name}.json"].get("points", ())) for name in "abc"] == [2, 1, 0]


def test_trade_off_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cycle = {"a.0": {"op": "f", "children": ["a.0"], "eclass": "a", "costs": {"x": 1, "y": 1}}}
    egraph("e.json", cycle, ["a"])
    assert "infeasible" in refused(capsys, "e.json", "--pareto", "x,y")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--pareto", "time"), "is not two metrics"),
        (("--pareto", "time,"), "is not two metrics"),
        (("--pareto", "time,time"), "two different metrics"),
        (("--pareto", "time,bytes"), "bytes"),
        (("--pareto", "time,energy", "--objective", "time"), "--objective has no meaning"),
        (("--pareto", "time,energy", "--method", "tree"), "--method has no meaning"),
        (("--pareto", "time,energy", "--points", "1"), "--points"),
        (("--pareto", "time,energy", "--plot", "p.xyz"), "cannot write p.xyz; end its name in"),
        (("--pareto", "time,energy", "--limit", "critical_path(time)=3"), "critical path"),
    ],
)
def test_bad_trade_offs(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in refused(capsys, egraph("e.json", PRICED), *arguments)


def test_plot(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra 'plot'")
    egraph("e.json", PRICED)
    for name in ("p.svg", "p.png"):
        shown(capsys, "e.json", "--pareto", "time,energy", "--plot", name)
    assert b"<svg" in Path("p.svg").read_bytes()
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    egraph("one.json", PRICED, ["leaf"])
    shown(capsys, "one.json", "--pareto", "time,energy", "--plot", "one.png")  # a single point


def test_plot_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eqsat_opt.cli.plotting.find_spec", lambda _: None)
    egraph("e.json", PRICED)
    arguments = ("e.json", "--pareto", "time,energy", "--plot", "p.png")
    assert "install eqsat-opt[plot]" in refused(capsys, *arguments)
