"""The diagnosis: what is broken is said, with what to do, and nothing of it ends the command."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eqsat_opt.cli import main
from eqsat_opt.errors import CertificateError
from eqsat_opt.pipeline import doctor
from eqsat_opt.pipeline.inventory import Item


def found(name: str) -> Item:
    (item,) = (one for one in doctor.diagnosis("") if one.name == name)
    return item


def test_everything_that_is_required_works_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "-"]) == 0
    items = {one["name"]: one for one in json.loads(capsys.readouterr().out)["items"]}
    assert all(items[name]["is_here"] for name in doctor.REQUIRED)
    assert {"onnxruntime", "energy", "cache", "C++ compiler", "verify"} <= items.keys()
    assert "egglog" in items["packages"]["facts"]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (ImportError("libstdc++ is too old"), "egglog cannot be loaded: libstdc++ is too old"),
        (ValueError("odd"), "egglog cannot be loaded: odd"),
    ],
)
def test_a_broken_package_fails_the_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: Exception,
    expected: str,
) -> None:
    def broken() -> ModuleType:
        raise fault

    monkeypatch.setattr(doctor, "Engine", broken)
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert expected in " ".join(output.split())
    assert "failed" in output


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", absent)
    assert "pip install egglog" in found("packages").text
    assert not found("packages").is_here


def test_edited_certificates_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise CertificateError("the certificate of matmul/assoc was edited")

    monkeypatch.setattr(doctor, "standings", broken)
    assert found("rules").text == "the certificate of matmul/assoc was edited"


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(file / "below"))
    assert not found("cache").is_here
    assert "EQSAT_OPT_CACHE" in found("cache").text


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage())
    assert not found("disk").is_here


def test_extras_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(name: str) -> ModuleType:
        if name == "z3":
            raise ImportError
        if name == "jinja2":
            raise OSError("broken")
        return import_module(name)

    monkeypatch.setattr(doctor, "import_module", loaded)
    assert "pip install 'eqsat-opt[verify]'" in found("verify").text
    assert found("html").text == "jinja2 cannot be loaded: broken"
