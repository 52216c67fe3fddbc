"""What is not valid is refused in a sentence; what the runtime only lacks a kernel for is kept."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper
from rich.table import Table

import eqsat_opt
from benchmarks import explosive
from benchmarks.invalid_models import EVIL, KINDS, model, value, write
from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.cli.session import output_console
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import ModelError, RuntimeFailed, printable
from eqsat_opt.ir.onnx.contradictions import contradiction
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.ort import acceptance
from eqsat_opt.runtime.backends.ort.acceptance import require_valid
from eqsat_opt.runtime.backends.ort.session import OrtOptions

FLOAT, BF16, INT64 = TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT64
FAST = {"measure": False, "threads": 1, "store": "", "budget": 600}
ONE_THREAD = OrtOptions(threads=1)


@pytest.fixture
def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command line on a model of a kind; the sentence with which it ends."""

    def run(kind: str, *arguments: str) -> str:
        path = write(KINDS[kind](), tmp_path)
        before = sorted(tmp_path.iterdir())
        command = ["optimize", str(path), "--no-measure", "--threads", "1", "--store", "", "-q"]
        assert main([*command, *arguments]) == 1
        output, errors = capfd.readouterr()
        assert output == ""
        assert re.fullmatch(r"error: .{10,}\n", errors), errors
        assert errors[:-1].isprintable()
        assert not any(word in errors for word in ("unexpected", "ONNXRuntimeError", ".cc:"))
        assert sorted(tmp_path.iterdir()) == before
        return errors

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_valid_is_refused_in_a_sentence(kind: str, refused: Callable[..., str]) -> None:
    refused(kind, "--no-race", "--check", "0")


@pytest.mark.parametrize("kind", ["operator unknown", "groups do not divide", "cycle"])
def test_it_is_refused_with_a_check_as_well(kind: str, refused: Callable[..., str]) -> None:
    refused(kind)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("operator unknown", "operator set 17 has no operator 'Frobnicate'"),
        ("perm no permutation", "Transpose: Attribute perm for Transpose has repeated value"),
        ("int for ints", "Expected: 'INTS', actual: 'INT'"),
        ("groups do not divide", "4 channels and its weights take 3 in 3 groups"),
        ("function calls itself", "must not be recursive"),
        ("weight twice", "'w' is defined twice"),
        ("function reads nothing", "in function 'F': node Relu reads 'nowhere'"),
        ("operator set twice", "imports ai.onnx twice, as operator set 17 and 13"),
        ("constant of two values", "more than one value: 'value_float', 'value_int'"),
        ("name of broken text", "not UTF-8"),
        ("reshape to another size", "6 elements, which do not fit [4, 4]"),
        ("depth not divided", "blocks of 3 x 3"),
        ("sparse index out of range", "index is out of bounds"),
    ],
)
def test_the_sentence_says_what_is_wrong(kind: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        eqsat_opt.optimize(write(KINDS[kind](), tmp_path), **FAST)
    assert expected in str(caught.value)


@pytest.mark.parametrize("run", [api.explain, lambda m: api.bench(m, m), api.compare])
def test_every_command_refuses_it(run: Any, tmp_path: Path) -> None:
    with pytest.raises((ModelError, RuntimeFailed), match="repeated value"):
        run(write(KINDS["perm no permutation"](), tmp_path))


def test_models_in_memory_are_judged_too() -> None:
    made = KINDS["operator unknown"]()
    assert isinstance(made, onnx.ModelProto)
    for given in (made, onnx_ir.from_proto(made)):
        with pytest.raises(ModelError, match="Frobnicate"):
            eqsat_opt.optimize(given, **FAST)


# ** valid, and nothing that this runtime can run **

LACKING = {
    "kernel": model(
        helper.make_node("Erf", ["x"], ["h"]),
        helper.make_node("Neg", ["h"], ["y"]),
        inputs=[value("x", BF16)],
        outputs=[value("y", BF16)],
    ),
    "library": model(
        helper.make_node("Frobnicate", ["x"], ["y"], domain="own"), domains={"own": 1}
    ),
    "operator of the runtime's own": model(
        helper.make_node("Frobnicate", ["x"], ["y"], domain="com.microsoft"),
        domains={"com.microsoft": 1},
    ),
    "newer operator set": model(
        helper.make_node("Relu", ["x"], ["y"]),
        opset=onnx.defs.onnx_opset_version(),
        ir_version=onnx.IR_VERSION,
    ),
}


@pytest.mark.parametrize("what", ["kernel", "library", "operator of the runtime's own"])
def test_what_the_runtime_lacks_is_no_fault_of_the_model(what: str) -> None:
    assert require_valid(LACKING[what], ONE_THREAD)
    found = eqsat_opt.optimize(LACKING[what], report=True, **FAST)
    assert found.report.status == "unchanged"
    assert found.report.latency == {}
    assert any("does not run in onnxruntime" in note for note in found.report.notes)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Unrecognized attribute: axis for operator Softmax", True),
        ("Unrecognized attribute: slope for operator Softmax", False),
        ("Type parameter (T) of Optype (Add) bound to different types", True),
        ("Type parameter (T) of Optype (Softmax) bound to different types", False),
        ("Could not find an implementation: not implemented", True),
        ("tensor(complex64) is not currently registered or supported", True),
        ("Failed to construct locale with name:en_US", True),
        ("Incompatible dimensions", False),
    ],
)
def test_a_runtime_behind_the_standard_is_told_from_a_wrong_model(
    reason: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one does not know each attribute of each operator, and writes some with others."""

    def refuse(*_: object) -> NoReturn:
        raise RuntimeFailed(f"onnxruntime refuses the model: {reason}")

    monkeypatch.setattr(acceptance, "OrtSession", refuse)
    given = model(helper.make_node("Softmax", ["x"], ["y"], axis=1))
    if expected:
        assert require_valid(given, ONE_THREAD) == reason
    else:
        with pytest.raises(ModelError, match="not a valid ONNX model"):
            require_valid(given, ONE_THREAD)


def test_a_newer_operator_set_is_no_fault_of_the_model() -> None:
    require_valid(LACKING["newer operator set"], ONE_THREAD)  # whether this runtime knows it or not


def test_nothing_is_claimed_of_what_was_not_run() -> None:
    found = eqsat_opt.optimize(LACKING["kernel"], report=True, race=False, check=0, **FAST)
    assert any("so nothing was checked" in note for note in found.report.notes)


def test_a_fault_behind_an_unknown_operator_is_found() -> None:
    """The runtime stops at the first operator that it does not know."""
    broken = model(
        helper.make_node("Frobnicate", ["x"], ["h"], domain="own"),
        helper.make_node("Softmax", ["h"], ["y"], axis=[1]),
        domains={"own": 1},
    )
    with pytest.raises(ModelError, match=r"Softmax.*axis"):
        require_valid(broken, ONE_THREAD)


def test_a_valid_model_lacks_nothing() -> None:
    assert require_valid(model(helper.make_node("Relu", ["x"], ["y"])), ONE_THREAD) == ""


def test_what_takes_too_long_to_write_out_is_not_loaded() -> None:
    """Functions that call one another twice stand for a number of nodes that nothing can hold."""
    deep = explosive.build("functions@40")
    why = require_valid(deep, ONE_THREAD, Deadline.after(600.0))
    assert why == "time to load it: its functions stand for 3,298,534,883,326 nodes"
    assert require_valid(explosive.build("functions@3"), ONE_THREAD, Deadline.after(600.0)) == ""
    found = eqsat_opt.optimize(deep, report=True, **FAST)
    assert found.report.status == "unchanged"
    assert any("its functions stand for" in note for note in found.report.notes)


# ** what can never run **


def tensors(*shapes: Sequence[int]) -> list[TensorType]:
    return [TensorType("float32", tuple(shape)) for shape in shapes]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "target"),
    [
        ("Conv", [(1, 4, 8, 8), (6, 2, 3, 3)], {"group": 2}, None),
        ("Conv", [(1, 0, 8, 8), (6, 0, 3, 3)], {}, None),
        ("ConvTranspose", [(1, 4, 8, 8), (4, 3, 3, 3)], {"group": 2}, None),
        ("DepthToSpace", [(1, 8, 2, 2)], {"blocksize": 2}, None),
        ("SpaceToDepth", [(1, 3, 4, 6)], {"blocksize": 2}, None),
        ("Reshape", [(2, 3)], {}, (3, -1)),
        ("Reshape", [(2, 3)], {}, (0, 3)),
        ("Reshape", [(0, 3)], {}, (0, -1)),
        ("Reshape", [(0, 3)], {"allowzero": 1}, (0, 7)),
        ("Reshape", [()], {}, ()),
        ("Reshape", [()], {}, (1, 1)),
        ("Reshape", [(2, 3)], {}, None),
    ],
)
def test_what_fits_is_no_contradiction(
    op: str, shapes: Any, attributes: dict[str, Any], target: Any
) -> None:
    assert contradiction(op, tensors(*shapes), attributes, target) == ""


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "target", "expected"),
    [
        ("Conv", [(1, 4, 8, 8), (6, 2, 3, 3)], {}, None, "4 channels and its weights take 2"),
        ("Conv", [(1, 4, 8, 8), (5, 2, 3, 3)], {"group": 2}, None, "5 channels cannot be parted"),
        ("Conv", [(1, 4, 8, 8), (6, 4, 3)], {}, None, "4 dimensions and its weights have 3"),
        ("ConvTranspose", [(1, 4, 8), (5, 4, 3)], {}, None, "weights take 5"),
        ("SpaceToDepth", [(1, 3, 4, 5)], {"blocksize": 2}, None, "5 rows or columns"),
        ("Reshape", [(2, 3)], {}, (4, -1), "6 elements"),
        ("Reshape", [(2, 3)], {"allowzero": 1}, (0, 3), "6 elements"),
    ],
)
def test_what_does_not_fit_is_one(
    op: str, shapes: Any, attributes: dict[str, Any], target: Any, expected: str
) -> None:
    assert expected in contradiction(op, tensors(*shapes), attributes, target)


# ** names that would steer a terminal **


def test_names_steer_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    evil = EVIL.strip()
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"], name=evil),
        helper.make_node("MatMul", ["h", "w"], [evil], name="[/]" + evil),
    ]
    weights = [onnx.numpy_helper.from_array(np.ones((3, 3), np.float32), name) for name in "vw"]
    onnx.save_model(model(*nodes, outputs=[value(evil)], weights=weights), "m.onnx")
    options = ["--threads", "1", "--store", "", "--no-measure", "--budget", "600"]
    assert main(["optimize", "m.onnx", "-o", "o.onnx", *options]) == 0
    assert main(["explain", "m.onnx", "--kernels", *options]) == 0
    assert main(["bench", "m.onnx", "o.onnx", "--budget", "1", "--threads", "1"]) == 0
    output, errors = capsys.readouterr()
    assert "\x1b" not in output + errors
    assert "\x07" not in output + errors
    assert "\u202e" not in output + errors
    assert "\\x1b[31mred" in output


def test_a_terminal_keeps_its_own_colours() -> None:
    console = output_console()
    console.file, console._force_terminal = io.StringIO(), True
    console._color_system = "standard"  # type: ignore[assignment]
    table = Table("one", style="red")
    table.add_row("\x1b]0;title\x07[/x]", style="green")
    console.print(table, "\x9b31m")
    shown = console.file.getvalue()
    assert "\x1b[3" in shown
    assert "\x1b]0" not in shown
    assert "\x07" not in shown
    assert "\x9b" not in shown


def test_printable_text_stays_as_it_is() -> None:
    assert printable("größer − 2 × 3\n  and more") == "größer − 2 × 3 and more"
    assert printable("\x1b[0m\u202ex") == "\\x1b[0m\\u202ex"
