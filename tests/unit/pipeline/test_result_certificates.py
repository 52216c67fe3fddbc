"""Certificates of results: made by a run, confirmed without it, refused when a step is changed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqsat_opt.api import run
from eqsat_opt.cli.app import run as command
from eqsat_opt.errors import CheckFailed, StageError
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.certificates.confirming import certify
from eqsat_opt.pipeline.options import Options


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its result and the certificate."""
    path = tmp_path_factory.mktemp("certified")
    onnx.save(zoo.build("bert", scale="tiny"), str(path / "model.onnx"))
    options = Options(
        objective="launches", measure=False, race=False, check=1, strict=True, store="",
        threads=1, budget_s=600.0, nodes=2_500, certificate=str(path / "cert.json"),
    )  # fmt: skip
    run(str(path / "model.onnx"), options, output=str(path / "fast.onnx"))
    return path


def confirmed(folder: Path, certificate: str = "cert.json") -> Any:
    paths = (str(folder / name) for name in ("model.onnx", "fast.onnx", certificate))
    return certify(*paths)


def test_a_result_is_confirmed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = confirmed(folder)
    assert found.rules
    names = [str(folder / name) for name in ("model.onnx", "fast.onnx", "cert.json")]
    assert command(["certify", *names]) == 0
    assert "confirmed" in capsys.readouterr().out


def changes(certificate: dict[str, Any]) -> list[dict[str, Any]]:
    """Certificates of which one step is changed or left out."""
    found = []
    for number, step in enumerate(certificate["steps"]):
        if "compared" in step:
            new = copy.deepcopy(certificate)
            new["steps"][number]["compared"][0] = 0
            found.append(new)
            continue
        for name in step["of"]:
            new = copy.deepcopy(certificate)
            new["steps"][number]["of"][name] = 0
            found.append(new)
        for name, value in step["with"].items():
            new = copy.deepcopy(certificate)
            more = [7, *value[1:]] if isinstance(value, list) else 7
            new["steps"][number]["with"][name] = more
            found.append(new)
        new = copy.deepcopy(certificate)
        new["steps"][number]["rule"] = "no/such-rule"
        found.append(new)
    new = copy.deepcopy(certificate)
    new["steps"].clear()
    return [*found, new]


def test_changed_steps_are_refused(folder: Path) -> None:
    certificate = json.loads((folder / "cert.json").read_text())
    tried = changes(certificate)
    assert len(tried) > 10
    for new in tried[:: max(1, len(tried) // 12)]:
        (folder / "changed.json").write_text(json.dumps(new))
        with pytest.raises(CheckFailed):
            confirmed(folder, "changed.json")


def test_other_models_are_refused(folder: Path) -> None:
    model, fast, cert = (str(folder / one) for one in ("model.onnx", "fast.onnx", "cert.json"))
    with pytest.raises(CheckFailed, match="another model"):
        certify(fast, fast, cert)
    with pytest.raises(CheckFailed, match="is not the one"):
        certify(model, model, cert)
    with pytest.raises(StageError, match="is not JSON"):
        certify(model, fast, model)


def test_a_result_with_a_split_is_confirmed(tmp_path: Path) -> None:
    model, fast, cert = (str(tmp_path / name) for name in ("m.onnx", "f.onnx", "c.json"))
    onnx.save(zoo.build("sru_step", scale="tiny"), model)
    options = Options(
        measure=False,
        race=False,
        strict=True,
        store="",
        threads=1,
        budget_s=600.0,
        certificate=cert,
    )
    run(model, options, output=fast)
    assert "Split" in {node.op_type for node in onnx.load(fast).graph.node}
    assert certify(model, fast, cert).rules
