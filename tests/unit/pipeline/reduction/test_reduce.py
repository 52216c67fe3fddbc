"""The smallest part of a model on which a command fails: right, small, and found in time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from eqsat_opt.cli import main
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.pipeline.reduction import reduce as reduction
from eqsat_opt.pipeline.reduction.failure import (
    DEFAULT_COMMAND,
    Failure,
    command_text,
    failure_of,
)
from eqsat_opt.pipeline.reduction.reduce import reduce_model

CHAIN = """
    <ir_version: 8, opset_import: ["":17]>
    g (float[N,4] x) => (float[N,4] y) {
        a = Relu(x)
        b = Abs(a)
        c = Tanh(b)
        d = Neg(c)
        e = Sigmoid(d)
        y = Exp(e)
    }
"""


def command(condition: str, action: str = "sys.exit(3)") -> tuple[str, ...]:
    """A command that does something if a condition on the bytes of the model holds."""
    code = f"import sys, os, time; data = open(sys.argv[1], 'rb').read()\nif {condition}: {action}"
    return sys.executable, "-S", "-c", code, "{}"


def reduced(text: str, condition: str) -> tuple[list[str], bool]:
    model, told = reduce_model(onnx.parser.parse_model(text), command(condition))
    proto = model_proto(model)
    onnx.checker.check_model(proto)
    return [node.op_type for node in proto.graph.node], told.is_minimal


@pytest.mark.parametrize("wanted", [["Tanh"], ["Abs", "Exp"], ["Relu", "Neg", "Sigmoid"]])
def test_only_what_is_needed_stays(wanted: list[str]) -> None:
    condition = " and ".join(f"b'{op}' in data" for op in wanted)
    assert reduced(CHAIN, condition) == (wanted, True)


def test_a_part_that_fails_in_another_way_does_not_count() -> None:
    action = "sys.exit(3 if b'Relu' in data else 4)"
    model, told = reduce_model(onnx.parser.parse_model(CHAIN), command("b'Tanh' in data", action))
    assert [node.op_type for node in model.graph] == ["Relu", "Tanh"]
    assert told.failure == "exit code 3"


def test_sizes_become_literals_and_weights_go() -> None:
    text = CHAIN.replace("=> (float[N,4] y) {", "=> (float[N,4] y) <float[4] w = {1,2,3,4}> {")
    text = text.replace("b = Abs(a)", "b = Mul(a, w)")
    model, _ = reduce_model(onnx.parser.parse_model(text), command("b'Tanh' in data"))
    assert not model.graph.initializers
    (value,) = model.graph.inputs
    assert value.shape is not None
    assert all(isinstance(dim, int) for dim in value.shape)


def test_bodies_keep_what_they_read() -> None:
    text = """
        <ir_version: 8, opset_import: ["":17]>
        g (bool c, float[2] x) => (float[2] y) {
            h = Abs(x)
            i = Neg(h)
            y = If (c) <then_branch = t () => (float[2] p) { p = Relu(i) },
                        else_branch = e () => (float[2] q) { q = Identity(x) }>
        }
    """
    model, _ = reduce_model(onnx.parser.parse_model(text), command("b'Relu' in data"))
    assert [node.op_type for node in model.graph] == ["If"]
    assert {value.name for value in model.graph.inputs} == {"c", "i", "x"}


def test_a_budget_that_is_over_leaves_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadline, "expired", property(lambda _self: True))
    operators, is_minimal = reduced(CHAIN, "b'Tanh' in data")
    assert len(operators) == 6
    assert not is_minimal


def test_what_does_not_fail_or_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model(CHAIN)
    with pytest.raises(OptionError, match="nothing fails on this model"):
        reduce_model(model, command("b'Softmax' in data"))
    with pytest.raises(OptionError, match="cannot run nonesuch"):
        reduce_model(model, ("nonesuch", "{}"))
    with pytest.raises(OptionError, match=r"no \{\}"):
        reduce_model(model, ("true",))
    weight = numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    model.graph.initializer.append(weight)
    monkeypatch.setattr(reduction, "_MOST_BYTES", 64)
    with pytest.raises(ModelError, match="exceed 1 GB"):
        reduce_model(model, command("True"))


def test_a_command_is_shown_as_it_can_be_typed() -> None:
    assert command_text(DEFAULT_COMMAND).startswith("eqsat-opt optimize {} --strict ")
    assert command_text(("my tool", "{}", "a b")) == "'my tool' {} 'a b'"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("pass", None),
        ("sys.exit(5)", Failure(5, "")),
        ("os.kill(os.getpid(), 9)", Failure(-9, "")),
        ("time.sleep(60)", Failure(124, "")),
        (
            "sys.exit('error: node 7 of /a/b.onnx is odd; try 8')",
            Failure(1, "error: node … of … is odd"),
        ),
        ("sys.exit('ValueError: bad \\'x\\' at 0x1f')", Failure(1, "ValueError: bad … at …")),
    ],
)
def test_kinds_of_failures(action: str, expected: Failure | None, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    timeout_s = 0.5 if "sleep" in action else 60.0
    assert failure_of(command("True", action), str(path), timeout_s=timeout_s) == expected


def test_the_command_writes_the_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, written = str(tmp_path / "größe.onnx"), tmp_path / "told.json"
    onnx.save(onnx.parser.parse_model(CHAIN), path)
    code = "import sys; sys.exit(b'Tanh' in open(sys.argv[1], 'rb').read())"
    line = ["reduce", path, "--command", f'{sys.executable} -S -c "{code}" {{}}']
    assert main([*line, "--json", str(written)]) == 0
    assert "6 nodes → 1 that still fails" in capsys.readouterr().out
    model = onnx.load(tmp_path / "größe.reduced.onnx")
    assert [node.op_type for node in model.graph.node] == ["Tanh"]
    assert json.loads(written.read_text(encoding="utf-8"))["is_minimal"] is True
    assert main([*line, "-o", path]) == 1
    assert main([*line, "--budget", "0"]) == 1
    assert main(["reduce", path, "--command", "'unclosed {}"]) == 1
