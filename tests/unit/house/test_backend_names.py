"""Where backends are named: in their folders, in the registry, and what is listed here.

What depends on a property of a backend asks its record, and what means one backend imports the name
from its folder. A name that is written out in another file fails, and so does one that is listed
here and no longer there.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import eqsat_opt
from eqsat_opt.runtime.backends.record import LAUNCHED
from eqsat_opt.runtime.backends.registry import records
from eqsat_opt.runtime.devices.profile import HOST_PROFILE

PACKAGE = Path(eqsat_opt.__file__).parent
REGISTRY = "runtime/backends/registry.py"

HELD: dict[str, dict[str, str]] = {
    "prices, times and targets by the model of a profile": {
        "cli/plan.py": "analytic",
        "cli/plan_plot.py": "analytic",
        "cost/analytic.py": "analytic",
        "cost/quotes.py": "analytic",
        "pipeline/page/drawing.py": "analytic",
        "pipeline/plans.py": "analytic",
        "pipeline/targets.py": "analytic",
    },
    "devices with CUDA, by the kind of a profile and by the module that runs them": {
        "runtime/devices/needed.py": "cuda",
        "runtime/devices/profile.py": "cuda",
    },
    "Python packages whose versions decide a certificate": {
        "proving/certificates/cache.py": "numpy",
    },
    "Python packages whose versions decide whether decisions can be replayed": {
        "pipeline/decisions/basis.py": "numpy",
    },
    "a folder with a header": {
        "runtime/backends/generated/compiling.py": "native",
    },
}
"""Files with words that are names of backends too, by what they mean there."""

LISTED = {file: names for files in HELD.values() for file, names in files.items()}


def texts_in(source: str) -> set[str]:
    """The texts of a module that are one value each."""
    nodes = ast.walk(ast.parse(source))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def folder_of(name: str) -> str:
    """The folder of a backend in the package."""
    launcher = records()[name].launcher
    assert launcher is not None
    module = launcher.place.partition(":")[0]
    return "/".join(module.split(".")[1:-1]) + "/"


def names_in(file: str) -> set[str]:
    """The names of backends that are written out in a file that is not theirs."""
    texts = texts_in((PACKAGE / file).read_text(encoding="utf-8"))
    known = {text: name for name in records() for text in (name, LAUNCHED + name)}
    return {text for text in texts & known.keys() if not file.startswith(folder_of(known[text]))}


def test_backends_are_named_in_their_folders() -> None:
    files = (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    found = {file: " ".join(sorted(names_in(file))) for file in files if file != REGISTRY}
    assert {file: names for file, names in found.items() if names} == LISTED, (
        "ask the record of the backend, import the name from its folder, or list the file in HELD "
        "under what it means"
    )


@pytest.mark.parametrize("name", sorted(records()))
def test_a_folder_names_its_backend_once(name: str) -> None:
    folder = PACKAGE / folder_of(name)
    assert name in texts_in((folder / "__init__.py").read_text(encoding="utf-8"))


def test_names_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "made.py").write_text('"""Of ort."""\nY = "ort", f"{x} cuda", "launched:numpy"')
    assert names_in("made.py") == {"ort", "launched:numpy"}


def test_the_profile_of_the_host_is_named_once() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if HOST_PROFILE in texts_in(path.read_text())]
    assert [path.relative_to(PACKAGE).as_posix() for path in files] == [
        "runtime/devices/profile.py"
    ]
