"""The shape of the package: a light import, honest public names, links that only readers use."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import eqsat_opt

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "eqsat_opt"
LINKS = ("extract", "rules", "runtime")
HEAVY = ("egglog", "numpy", "onnx", "onnx_ir", "onnxruntime", "ortools", "rich", "typer")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter whose first import path is the repository root."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules() -> list[str]:
    """Every module of the package, without importing any of them."""
    paths = (path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in paths)
    return sorted(name for name in names if not name.endswith("__main__"))


def test_import_is_light() -> None:
    done = python("import eqsat_opt, json, sys; print(json.dumps(sorted(sys.modules)))")
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "eqsat_opt" in loaded
    assert loaded.isdisjoint(HEAVY)


UNNEEDED = {
    "cudnn", "cupy", "egglog", "highspy", "jinja2", "matplotlib", "mpmath", "networkx", "nvmath",
    "openvino", "ortools", "pandas", "pynvml", "scipy", "sklearn", "sympy", "torch", "z3",
    "eqsat_opt.cost.on_device", "eqsat_opt.lab.comparison", "eqsat_opt.lab.search",
    "eqsat_opt.pipeline.forms.plan", "eqsat_opt.pipeline.forms.tuned",
    "eqsat_opt.racing.planned_results", "eqsat_opt.racing.tuned_results",
    "eqsat_opt.runtime.backends.generated.kernel", "eqsat_opt.runtime.backends.generated.program",
    "eqsat_opt.runtime.backends.gpu", "eqsat_opt.runtime.planning",
}  # fmt: skip
"""What a quick run of a portable model has no use for, and takes a while to load."""


def test_a_quick_run_loads_what_it_uses(tmp_path: Path) -> None:
    line = ["optimize", "zoo:squeezenet@tiny", "--effort", "quick", "--no-race", "-q"]
    line += ["--store", "", "-o", str(tmp_path / "made.onnx")]
    done = python(
        "import json, sys; from eqsat_opt.cli.app import run; "
        f"code = run({line}); print(json.dumps(sorted(sys.modules))); sys.exit(code)"
    )
    assert done.returncode == 0, done.stderr
    assert UNNEEDED.isdisjoint(json.loads(done.stdout))


def test_onnxruntime_reports_nothing_to_its_makers(tmp_path: Path) -> None:
    """It keeps what it is about to report in the user's cache, from its import on."""
    place = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    asked = {**os.environ, **place}
    for name in ("CI", "ORT_DISABLE_TELEMETRY"):
        asked.pop(name, None)
    program = "import eqsat_opt, onnxruntime"
    subprocess.run([sys.executable, "-c", program], env=asked, cwd=ROOT, check=True)
    assert not list(tmp_path.iterdir())


def test_sympy_is_loaded_when_dimensions_are_computed_with() -> None:
    """And whoever imports it gets the real one, before that and after."""
    program = (
        "import sys, eqsat_opt, onnx_ir; assert 'sympy' not in sys.modules; "
        "dim = onnx_ir.SymbolicDim('Max(a, 3)'); assert 'sympy' not in sys.modules; "
        "{} assert str((dim + 1).value) == 'Max(3, a) + 1', dim + 1; "
        "import sympy.core.add; assert sympy.core.add.Add is sympy.Add; "
        "assert onnx_ir.SymbolicDim(sympy.Symbol('q')).value == 'q'; "
        "assert onnx_ir.__spec__.loader is onnx_ir.__loader__; "
        "assert 'onnx_ir' not in [getattr(one, 'library', '') for one in sys.meta_path]"
    )
    for first in ("", "import sympy;"):
        done = python(program.format(first))
        assert done.returncode == 0, done.stderr


def test_pandas_is_loaded_when_series_of_variables_are_made() -> None:
    program = (
        "import sys, eqsat_opt; {} from ortools.sat.python import cp_model; "
        "model = cp_model.CpModel(); x = model.new_bool_var('x'); model.maximize(x); "
        "solver = cp_model.CpSolver(); assert solver.solve(model) == cp_model.OPTIMAL; "
        "assert solver.value(x) == 1; assert ('pandas' in sys.modules) == {}; "
        "import pandas; y = model.new_int_var_series('y', pandas.Index([1, 2]), 0, 3); "
        "model.add(y[1] == 2); solver.solve(model); assert solver.values(y)[1] == 2; "
        "assert cp_model.__name__ not in [getattr(one, 'library', '') for one in sys.meta_path]"
    )
    for first, is_loaded in (("", False), ("import pandas;", True)):
        done = python(program.format(first, is_loaded))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", modules())
def test_public_names_exist(name: str) -> None:
    module = importlib.import_module(name)
    public = module.__all__
    assert len(set(public)) == len(public), f"{name}.__all__ repeats a name"
    missing = [public_name for public_name in public if not hasattr(module, public_name)]
    assert not missing, f"{name}.__all__ promises {missing}"


def test_lazy_face_lists_what_it_serves() -> None:
    assert set(eqsat_opt.__all__) <= set(dir(eqsat_opt))
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = eqsat_opt.optimise  # type: ignore[attr-defined]


def test_version_is_the_one_of_the_distribution() -> None:
    assert settings()["project"]["version"] == eqsat_opt.__version__


@pytest.mark.parametrize("name", LINKS)
def test_links_are_relative(name: str) -> None:
    link = ROOT / name
    if not link.is_symlink():
        pytest.skip(f"{name} is no link: this checkout was made without support for links")
    assert os.readlink(link) == f"eqsat_opt/{name}"
    assert link.resolve() == PACKAGE / name


@pytest.mark.parametrize("name", LINKS)
def test_links_cannot_be_imported(name: str) -> None:
    done = python(f"import {name}")
    assert done.returncode == 1
    assert f"ImportError: import eqsat_opt.{name}" in done.stderr


def test_the_records_of_backends_load_nothing_heavy() -> None:
    done = python(
        "import json, sys; from eqsat_opt.runtime.backends.registry import records; "
        "assert records(); print(json.dumps(sorted(sys.modules)))"
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)).isdisjoint((*HEAVY, "cudnn", "openvino"))
