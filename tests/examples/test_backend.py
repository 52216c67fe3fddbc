"""A backend is a package with an entry point; nothing of ours changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.examples.house import House

TOY = '''"""Runs Relu with a threshold, and Relu of Neg as one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.graph import attributes
from eqsat_opt.ir.kernel import Kernel, Step
from eqsat_opt.runtime.backends.patterns import Anything, KernelPattern, op
from eqsat_opt.runtime.backends.protocol import CarriedForm, Implementation, Offer
from eqsat_opt.runtime.measure import Measurement


class Toy:
    name = "toy"

    def version(self) -> str:
        return "toy 1"

    def patterns(self) -> Sequence[KernelPattern]:
        return (KernelPattern("toy-negative-relu", op("Relu", op("Neg", Anything("x")))),)

    def carried(self) -> Sequence[CarriedForm]:
        return ()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        *before, last = kernel.steps
        if last.op != "Relu" or any(step.op != "Neg" for step in before):
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
    negative = Neg(product)
    z = Relu(negative)
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


def explained(house: House, *arguments: str) -> Any:
    done = house.run(
        "-m", "eqsat_opt", "explain", "model.onnx", "--rules", "none", "--store", "",
        "--stage", "selection", "--json", "-", *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def runs(document: Any) -> dict[str, tuple[str, str]]:
    """Operators of a kernel to the backend and algorithm that were chosen for it."""
    candidates = [chosen["candidate"] for chosen in document["chosen"]]
    return {
        "+".join(step["op"] for step in one["steps"]): (offer["backend"], offer["algorithm"])
        for one in candidates
        for offer in one.get("offers", ())
    }


def test_extraction_chooses_its_kernels(house: House) -> None:
    chosen = runs(explained(house, "--backends", "ort,toy"))
    assert chosen.pop("MatMul") == ("ort", "default")
    assert set(chosen) == {"Relu", "Neg+Relu"}
    assert set(chosen.values()) == {("toy", "threshold")}


def test_without_it_nothing_of_it_is_offered(house: House) -> None:
    chosen = runs(explained(house))
    assert set(chosen) == {"MatMul", "Relu", "Neg"}
    assert set(chosen.values()) == {("ort", "default")}


def test_its_prices_are_stored_under_its_version(house: House, tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite3")
    done = house.run(
        "-m", "eqsat_opt", "explain", "model.onnx", "--rules", "none", "--store", store,
        "--backends", "ort,toy", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stats = house.run("-m", "eqsat_opt", "profile", "show", "--store", store)
    assert "toy 1" in stats.stdout


def test_what_it_runs_is_written_and_computes_the_same(house: House) -> None:
    done = house.run(
        "-m", "eqsat_opt", "optimize", "model.onnx", "-o", "fast.onnx", "--backends", "ort,toy",
        "--rules", "none", "--store", "", "--no-race", "--objective", "time", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    operators = [node.op_type for node in onnx.load(house.path / "fast.onnx").graph.node]
    assert "Relu" not in operators
    assert operators.count("ThresholdedRelu") == 2
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
    ("backends", "why"),
    [
        ("ort,cuda", "unknown backend 'cuda'; installed are ort, broken, other, toy"),
        ("toy", "add ort, which runs what no other does"),
        ("ort,broken", "the backend 'broken' cannot be loaded from toy:Nothing"),
        ("ort,other", "the backend 'other' of toy:Toy calls itself 'toy'"),
    ],
)
def test_a_backend_that_cannot_be_had_is_told_in_a_sentence(
    house: House, backends: str, why: str
) -> None:
    done = house.run("-m", "eqsat_opt", "optimize", "model.onnx", "--backends", backends)
    assert done.returncode == 1
    assert why in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
