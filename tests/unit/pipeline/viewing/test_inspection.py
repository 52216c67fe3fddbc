"""The overview of a model: its work, the reasons why operators pass through, gains in sight."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqsat_opt.cli import main
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.viewing.inspection import Inspection, inspect_model


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["":17, "mine":1]>\n{text}')


def inspected(text: str, **sizes: Any) -> Inspection:
    return inspect_model(parsed(text), [sizes] if sizes else ())


MIXED = """
    g (float[N,4] x, bool c) => (float[N,4] y, float[a,b] z, float[N,4] r) <float[4,4] w = {
        1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
        h = MatMul(x, w)
        y = If (c) <then_branch = t () => (float[N,4] p) { p = Neg(h) },
                    else_branch = e () => (float[N,4] q) { q = Identity(h) }>
        z = mine.Odd(h)
        r = RandomNormalLike(h)
    }
"""


def test_work_is_counted_at_given_sizes() -> None:
    found = inspected(MIXED, N=3)
    product = next(one for one in found.operators if one.operator == "MatMul")
    assert (product.count, product.flops) == (1, 2 * 3 * 4 * 4)
    assert product.bytes == 4 * (3 * 4 + 4 * 4 + 3 * 4)
    assert found.weight_bytes == 64
    assert found.sizes["given"] == {"N": 3}
    assert inspected(MIXED, N=6).flops > found.flops


def test_what_passes_through_has_a_reason() -> None:
    reasons = {one.operator: one.why for one in inspected(MIXED).passing}
    assert reasons.keys() == {"If", "mine::Odd", "RandomNormalLike"}
    assert "bodies" in reasons["If"]
    assert "domain mine" in reasons["mine::Odd"]
    assert "each time" in reasons["RandomNormalLike"]


def test_operators_without_shapes_and_of_old_sets_say_so() -> None:
    text = "g (float[N] x) => (float y) { i = NonZero(x)  y = CategoryOdd(i) }"
    old = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["":6]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    assert "operator set 6" in inspect_model(old).passing[0].why
    assert {one.operator for one in inspected(text).passing} == {"NonZero", "CategoryOdd"}


def test_a_gain_in_sight_is_the_rule_that_pays() -> None:
    gains = inspect_model(zoo.build_named("linear_attention@tiny")).gains
    assert [gain.rule for gain in gains] == ["matmul/assoc"]
    assert 0 < gains[0].share < 1


def test_commuting_saves_nothing() -> None:
    found = inspected("g (float[8,8] x, float[8,8] v) => (float[8,8] y) { y = Add(x, v) }")
    assert found.gains == ()


def test_simplification_is_counted() -> None:
    text = "g (float[8,8] x) => (float[8,8] y) { h = Identity(x)  y = Relu(h) }"
    gone = {one.operator: one.vanish for one in inspected(text).operators}
    assert gone == {"Identity": 1, "Relu": 0}


def test_a_graph_without_operators_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    empty = inspected("g (float[8] x) => (float[8] x) { }")
    assert (empty.n_operators, empty.flops, empty.operators) == (0, 0, ())


def test_the_command_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = str(tmp_path / "größe [bold].onnx")
    onnx.save(parsed(MIXED), path)
    written = tmp_path / "found.json"
    assert main(["inspect", path, "--input-shape", "N:3", "--json", str(written)]) == 0
    output = capsys.readouterr().out
    assert "control flow" in output
    assert all(len(line) <= 80 for line in output.splitlines() if "größe" not in line)
    found = json.loads(written.read_text(encoding="utf-8"))
    assert found["model"] == path
    assert {"operators", "passing", "gains", "flops", "sizes"} <= found.keys()
    assert main(["inspect", path, "--json", path]) == 1
    assert main(["inspect", str(written)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "not an ONNX model" in errors[1]


def test_it_loads_neither_runtimes_nor_solvers(tmp_path: Path) -> None:
    path = str(tmp_path / "one.onnx")
    onnx.save(parsed(MIXED), path)
    heavy = {"onnxruntime", "ortools", "egglog", "sympy", "eqsat_opt.api"}
    program = (
        "import sys; from eqsat_opt.cli import main; "
        f"assert main(['inspect', {path!r}, '--json', '-']) == 0; "
        f"assert not {heavy!r} & {{*sys.modules}}, {heavy!r} & {{*sys.modules}}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
