"""The difference of two models: names and order do not count, changes are found where they are."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.cli import main
from eqsat_opt.pipeline.viewing.difference import GraphDifference, compare_graphs

BASE = """
    g (float[2,4] x) => (float[2,4] y) <float[4] w = {1,2,3,4}> {
        a = Relu(x)
        b = Add(a, w)
        c = Softmax <axis = 1> (b)
        d = Neg(c)
        y = Tanh(d)
    }
"""


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["":{opset}]>\n{text}')


def found(text: str, base: str = BASE) -> GraphDifference:
    return compare_graphs(parsed(base), parsed(text))


def kinds(difference: GraphDifference) -> list[tuple[str, str]]:
    return [(change.kind, change.operator) for change in difference.changes]


def test_names_do_not_count() -> None:
    other = BASE
    for name in "abcd":
        other = other.replace(f"{name} =", f"{name}{name} =").replace(f"({name}", f"({name}{name}")
    assert found(other).is_equal
    assert found(other).same == 5


def test_a_constant_is_an_initializer_or_a_node() -> None:
    text = BASE.replace("<float[4] w = {1,2,3,4}>", "").replace(
        "a = Relu(x)", "w = Constant <value = float[4] {1,2,3,4}> ()\n a = Relu(x)"
    )
    assert found(text).is_equal


def test_one_change_is_one_change_and_what_follows_stays() -> None:
    difference = found(BASE.replace("axis = 1", "axis = 0"))
    assert kinds(difference) == [("changed", "Softmax")]
    assert difference.changes[0].details == ("axis: 1 → 0",)
    assert difference.same == 4


def test_other_contents_of_a_constant() -> None:
    difference = found(BASE.replace("{1,2,3,4}", "{1,2,3,5}"))
    assert kinds(difference) == [("changed", "Add")]
    assert "[1.0, 2.0, 3.0, 5.0]" in difference.changes[0].details[0]


def test_a_removed_node_changes_only_its_reader() -> None:
    difference = found(BASE.replace("d = Neg(c)", "").replace("Tanh(d)", "Tanh(c)"))
    assert kinds(difference) == [("removed", "Neg"), ("changed", "Tanh")]


def test_an_added_node_between_renamed_ones() -> None:
    text = """
        g (float[2,4] x) => (float[2,4] y) <float[4] w = {1,2,3,4}> {
            p = Relu(x)
            q = Abs(p)
            r = Add(q, w)
            s = Softmax <axis = 1> (r)
            t = Neg(s)
            y = Tanh(t)
        }
    """
    assert kinds(found(text)) == [("added", "Abs"), ("changed", "Add")]


def test_interfaces_and_operator_sets() -> None:
    text = BASE.replace("float[2,4] x", "float[N,4] x, float[1] z")
    difference = compare_graphs(parsed(BASE), parsed(text, 18))
    assert difference.interface == (
        "input x: float[2,4] is float[N,4] in the second",
        "input 'z' is in the second model only",
        "operator set ai.onnx: 17 → 18",
    )
    assert not difference.is_equal


def test_an_output_that_is_another_value() -> None:
    base = "g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x)  z = Abs(x) }"
    text = "g (float[2] x) => (float[2] y, float[2] z) { z = Neg(x)  y = Abs(x) }"
    assert len(found(text, base).interface) == 2


def test_bodies_are_compared() -> None:
    text = """
        g (bool c, float[2] x) => (float[2] y) {{
            y = If (c) <then_branch = t () => (float[2] p) {{ p = {}(x) }},
                        else_branch = e () => (float[2] q) {{ q = Abs(x) }}>
        }}
    """
    difference = found(text.format("Neg"), text.format("Relu"))
    assert kinds(difference) == [("changed", "If")]
    assert difference.changes[0].details[0].startswith("then_branch: body ")
    assert found(text.format("Neg"), text.format("Neg")).is_equal


@given(st.lists(st.sampled_from(["Relu", "Neg", "Abs", "Tanh"]), min_size=1, max_size=6), st.data())
def test_both_ways_see_the_same(operators: list[str], data: st.DataObject) -> None:
    other = list(operators)
    other[data.draw(st.integers(0, len(other) - 1))] = "Exp"

    def chain(names: list[str]) -> onnx.ModelProto:
        lines = [f"v{i + 1} = {name}(v{i})" for i, name in enumerate(names)]
        head = f"g (float[2] v0) => (float[2] v{len(names)})"
        return parsed(f"{head} {{ {' '.join(lines)} }}")

    one, back = (
        compare_graphs(chain(a), chain(b)) for a, b in ((operators, other), (other, operators))
    )
    assert [len(one.of_kind(k)) for k in ("added", "removed")] == [1, 1]
    assert one.same == back.same
    assert len(one.of_kind("changed")) == len(back.of_kind("changed"))
    assert one.same + len(one.of_kind("changed")) == len(operators) - 1


def test_the_command_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    paths = [str(tmp_path / "one.onnx"), str(tmp_path / "other.onnx")]
    for path, text in zip(paths, (BASE, BASE.replace("Neg", "Abs")), strict=True):
        onnx.save(parsed(text), path)
    written = tmp_path / "found.json"
    assert main(["diff", *paths, "--json", str(written)]) == 0
    output = capsys.readouterr().out
    assert "5 → 5 operators: 3 same, 1 removed, 1 added, 1 changed" in output
    assert json.loads(written.read_text(encoding="utf-8"))["equal"] is False
    assert main(["diff", paths[0], "zoo:none"]) == 1
