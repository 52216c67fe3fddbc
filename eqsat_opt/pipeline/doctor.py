"""A diagnosis of the installation: what works here, and how to get the rest.

It extends the inventory of what can run a model by what the search itself needs.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version

from eqsat_opt import __version__
from eqsat_opt.common.paths import CACHE_VARIABLE, cache_folder
from eqsat_opt.common.text import bytes_text, count_text, counted
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.errors import CertificateError, reason
from eqsat_opt.pipeline.inventory import Item, inventory
from eqsat_opt.proving.selection import standings
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.devices.meters import found_meter

__all__ = ["REQUIRED", "diagnosis"]

_PACKAGE = "eqsat-opt"
_EXTRAS = {
    "verify": ("z3", "proofs for all sizes of rules of your own"),
    "html": ("jinja2", "--html: a run as one page"),
    "plot": ("matplotlib", "--plot: curves and timelines"),
    "distributed": ("distributed", "compare on a cluster"),
    "gpu": ("cupy", "plans run on a GPU"),
}
"""Extras by name: the module by which each is recognised, and its use.

Runtimes are in the inventory.
"""

_LEAST_FREE = 1 << 30
"""Free bytes below which a disk is called full: models and their copies need such space."""

REQUIRED = frozenset({"python", "packages", "rules"})
"""Names of items without which no model is optimised."""


def diagnosis(store: str | None = None) -> tuple[Item, ...]:
    """Return all items, those of the installation first.

    Args:
        store: path of the profile store; ``None`` for the user's own.
    """
    return (
        Item(_PACKAGE, f"{__version__}, in {os.path.dirname(__file__.rpartition(os.sep)[0])}"),
        _python(),
        _packages(),
        _rules(),
        *inventory(store),
        _compiler(),
        _energy(),
        _cache(),
        _disk(),
        *_extras(),
    )


def _python() -> Item:
    text = f"{platform.python_version()}, {platform.system()} on {platform.machine()}"
    is_new = sys.version_info >= (3, 11)
    return Item("python", text if is_new else f"{text}: 3.11 or newer is needed", is_here=is_new)


def _packages() -> Item:
    """Import every package that is required, and report those that fail."""
    found, faults = {}, []
    for name in _required():
        try:
            found[name] = version(name)
            _load(name)
        except PackageNotFoundError:
            faults.append(f"{name} is not installed: pip install {name}")
        except Exception as error:  # a broken library may raise anything
            faults.append(f"{name} cannot be loaded: {reason(error)}")
    versions = ", ".join(f"{name} {number}" for name, number in found.items())
    text = "; ".join(faults) or versions or f"{_PACKAGE} is not installed: run from its sources"
    return Item("packages", text, is_here=not faults, facts=found)


def _load(name: str) -> None:
    """Import a package as it is used here."""
    if name == "egglog":
        Engine()  # without the package around it, which needs others that are not used
    else:
        import_module(name.replace("-", "_"))


def _required() -> list[str]:
    """Return the names of the packages that the installed distribution requires."""
    try:
        lines = requires(_PACKAGE) or []
    except PackageNotFoundError:  # run from a folder of sources
        return []
    names = (re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line)
    return [name[0] for name in names if name]


def _rules() -> Item:
    try:
        book = standings()
    except CertificateError as error:
        return Item("rules", str(error), is_here=False)
    left_out = [name for name, one in book.items() if one.obstacle]
    used = len(book) - len(left_out)
    text = f"{count_text(used)} of {counted(len(book), 'rule')} with valid certificates"
    if left_out:
        text += f"; left out: {', '.join(left_out[:3])}{', …' * (len(left_out) > 3)}"
        text += " (eqsat-opt rules verify says why)"
    return Item("rules", text, is_here=used > 0, facts={"rules": len(book), "left_out": left_out})


def _compiler() -> Item:
    why = compiler_missing()
    return Item("C++ compiler", why or "found; generated kernels can be made", is_here=not why)


def _energy() -> Item:
    found = found_meter()
    if found.meter is not None:
        return Item("energy", f"measured by {found.meter.name}, {found.meter.scope}")
    tried = "; ".join(found.tried)
    return Item(
        "energy", f"no meter counts ({tried}); --energy-model FILE estimates it", is_here=False
    )


def _cache() -> Item:
    folder = cache_folder()
    advice = f"set {CACHE_VARIABLE} to a folder that can be written"
    if not folder:
        return Item("cache", f"the user has no home; {advice}", is_here=False)
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"{folder} cannot be written ({reason(error)}): every run measures anew; {advice}"
        return Item("cache", text, is_here=False)
    return Item("cache", folder, facts={"path": folder})


def _disk() -> Item:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    text = f"{bytes_text(free)} free in {folder}"
    if free < _LEAST_FREE:
        return Item("disk", f"{text}: large models need more; TMPDIR names another", is_here=False)
    return Item("disk", text)


def _extras() -> Iterator[Item]:
    for extra, (module, use) in _EXTRAS.items():
        try:
            import_module(module)
        except ImportError:
            how = f"pip install 'eqsat-opt[{extra}]'"
            yield Item(extra, f"{use}: {how}", is_here=False)
        except Exception as error:  # a broken library may raise anything
            yield Item(extra, f"{module} cannot be loaded: {reason(error)}", is_here=False)
        else:
            yield Item(extra, use)
