"""The lean installation: its list has all that commands load, and nothing that they do not need."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name in {others}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusal())
from eqsat_opt.cli import main
for line in (
    "optimize zoo:weight_chain@tiny -o made.onnx --threads 1 --budget 20 --store=",
    "explain zoo:weight_chain@tiny --objective flops --threads 1",
    "inspect made.onnx",
    "diff zoo:weight_chain@tiny made.onnx",
    "compare zoo:weight_chain@tiny --methods eqsat,metaflow --objective flops --device v100",
    "rules show matmul/assoc",
):
    assert main(line.split()) == 0, line
"""


def names(lines: list[str]) -> dict[str, str]:
    """Return requirements by the names of their distributions."""
    kept = [one for one in lines if one and not one.startswith("#")]
    return {re.split(r"[<>=]", one)[0].lower().replace("_", "-"): one for one in kept}


def lean() -> dict[str, str]:
    return names((ROOT / "lean.txt").read_text(encoding="utf-8").splitlines())


def test_every_dependency_is_in_the_list() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert names(project["dependencies"]).items() <= lean().items()


@pytest.mark.skipif(
    version("typer") >= "0.29", reason="this typer is newer than the package allows"
)
def test_commands_load_nothing_else(tmp_path: Path) -> None:
    """No module of another distribution that is installed here can be imported."""
    listed = {*lean(), "eqsat-opt"}
    others = {
        module
        for module, homes in packages_distributions().items()
        if not {home.lower().replace("_", "-") for home in homes} & listed
        and module not in sys.stdlib_module_names
        and module.isidentifier()
    }
    assert {"pandas", "sympy", "IPython"} <= others
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(others=sorted(others))],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
