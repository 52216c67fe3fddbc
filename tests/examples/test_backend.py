"""A backend is a package with an entry point; nothing of ours changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.examples.house import House

TOY = '''"""Runs Relu with a threshold, and Relu of Tanh as one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.rules import Var, ops
from eqsat_opt.runtime.backends.protocol import (
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.measure import Measurement


class Toy:
    name = "toy"

    def version(self) -> str:
        return "toy 1"

    def patterns(self) -> Sequence[KernelPattern]:
        return (KernelPattern("toy-tanh-relu", ops.Relu(ops.Tanh(Var("x")))),)

    def carried(self) -> Sequence[CarriedForm]:
        return ()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        *before, last = kernel.steps
        if last.op != "Relu" or any(step.op != "Tanh" for step in before):
            return ()
        threshold = Step("ThresholdedRelu", attributes(alpha=0.0), last.operands)
        return (Implementation("threshold", (*before, threshold)),)

    def request(self, offer: Offer) -> bytes:
        return offer.body.signature.encode()

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        assert b"ThresholdedRelu" in request
        return Measurement(0.001, 0.001, 0.001, 1, 1, "cpu", 0.001, 0.001)
'''

ENTRY_POINTS = "[eqsat_opt.backends]\ntoy = toy:Toy\nbroken = toy:Nothing\nother = toy:Toy\n"

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
agraph (float[512, 64] x, float[64, 512] w) => (float[512, 512] y, float[512, 512] z)
{
    product = MatMul(x, w)
    y = Relu(product)
    bent = Tanh(product)
    z = Relu(bent)
}
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    (house.path / "toy.py").write_text(TOY)
    info = house.path / "toy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    onnx.save(onnx.parser.parse_model(MODEL), house.path / "model.onnx")
    return house


EXPLAIN = ("explain", "model.onnx", "--rules", "none", "--stage")


def store(house: House) -> tuple[str, str]:
    """The store of all runs, so that the device is calibrated once."""
    return "--store", str(house.path / "store.sqlite3")


def explained(house: House, *asked: tuple[str, ...]) -> list[Any]:
    """Stages with some arguments each, as documents."""
    done = house.commands(
        [(*EXPLAIN, *arguments, *store(house), "--json", "-") for arguments in asked]
    )
    assert [one.returncode for one in done] == [0] * len(asked), done
    return [json.loads(one.stdout) for one in done]


def offers(candidates: list[Any]) -> set[tuple[str, str]]:
    """The operators of each kernel with the backend and algorithm of everything offered for it."""
    return {
        ("+".join(step["op"] for step in one["steps"]), f"{offer['backend']}:{offer['algorithm']}")
        for one in candidates
        for offer in one.get("offers", ())
    }


def test_its_kernels_are_offered_beside_ours(house: House) -> None:
    stage = ("candidates", "--no-measure")
    with_it, without = explained(house, (*stage, "--backends", "ort,toy"), stage)
    assert offers(with_it["candidates"]) == {
        ("MatMul", "ort:default"),
        ("Tanh", "ort:default"),
        ("Relu", "ort:default"),
        ("Relu", "toy:threshold"),
        ("Tanh+Relu", "toy:threshold"),
    }
    assert {by for _, by in offers(without["candidates"])} == {"ort:default"}


def test_extraction_chooses_one(house: House) -> None:
    (document,) = explained(house, ("selection", "--backends", "ort,toy"))
    chosen = offers([one["candidate"] for one in document["chosen"]])
    assert ("MatMul", "ort:default") in chosen
    # Of Relu alone nothing is said: until the toy has measured it, its price is a roofline bound,
    # and a measured Relu may be below that. A Tanh is far above.
    assert ("Tanh+Relu", "toy:threshold") in chosen


def test_its_prices_are_stored_under_its_version(house: House, tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "store.sqlite3"))
    priced, stats = house.commands([
        ("explain", "model.onnx", "--rules", "none", "--backends", "ort,toy", "--quiet", *store),
        ("profile", "show", *store),
    ])  # fmt: skip
    assert priced.returncode == 0, priced.stderr
    assert "toy 1" in stats.stdout


def test_what_it_runs_is_written_and_computes_the_same(house: House) -> None:
    done = house.run(
        "-m", "eqsat_opt", "optimize", "model.onnx", "-o", "fast.onnx", "--backends", "ort,toy",
        "--rules", "none", *store(house), "--no-race", "--objective", "time", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    operators = [node.op_type for node in onnx.load(house.path / "fast.onnx").graph.node]
    assert "ThresholdedRelu" in operators
    rng = np.random.default_rng(0)
    shapes = {"x": (512, 64), "w": (64, 512)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    before, after = (
        onnxruntime.InferenceSession(house.path / name).run(None, feeds)
        for name in ("model.onnx", "fast.onnx")
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            '"ThresholdedRelu", attributes(alpha=0.0)',
            '"Abs", attributes()',
            "no rule is at fault, but kernels of toy are involved; leave these out with --backends",
        ),
        (
            "return (Imp",
            "raise KeyError(kernel) # (Imp",
            "the backend 'toy' failed in implementations: KeyError",
        ),
    ],
)
def test_a_backend_that_is_wrong_is_named(
    house: House, tmp_path: Path, old: str, new: str, why: str
) -> None:
    wrong = house.copied_to(tmp_path / "wrong")
    shutil.copytree(house.path / "toy-1.dist-info", wrong.path / "toy-1.dist-info")
    (wrong.path / "toy.py").write_text(
        TOY.replace(old, new).replace('assert b"ThresholdedRelu" in request', "pass")
    )
    onnx.save(onnx.parser.parse_model(MODEL), wrong.path / "model.onnx")
    done = wrong.run(
        "-m", "eqsat_opt", "optimize", "model.onnx", *store(house), "--no-race", "--strict",
        "--backends", "ort,toy",
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert why in " ".join(done.stderr.split())


NOT_TO_BE_HAD = {
    "ort,cuda": "unknown backend 'cuda'; there are ort, broken, other, toy",
    "toy": "add ort, which runs what no other does",
    "ort,broken": "the backend 'broken' cannot be loaded from toy:Nothing",
    "ort,other": "the backend 'other' of toy:Toy calls itself 'toy'",
}


def test_a_backend_that_cannot_be_had_is_told_in_a_sentence(house: House) -> None:
    command = ("optimize", "model.onnx", "--backends")
    done = house.commands([(*command, backends) for backends in NOT_TO_BE_HAD])
    for one, why in zip(done, NOT_TO_BE_HAD.values(), strict=True):
        assert one.returncode == 1
        assert why in " ".join(one.stderr.split())
        assert "Traceback" not in one.stderr
