"""The engine's compiled library: silent in the application's log, and usable after a fork."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import SaturationError

__all__ = ["engine_library"]

# The library logs every command as INFO. A user who wants to see that has set a level.
if (_log := logging.getLogger("egglog")).level == logging.NOTSET:
    _log.setLevel(logging.WARNING)

_NAME = "egglog.bindings"
_library: ModuleType | None = None
_forked = False


def engine_library() -> Any:
    """Return the library; a forked process gets a copy of its own.

    The library starts threads when it is loaded, and waits for them later. A fork does not copy
    threads, so the child would wait forever.

    Raises:
        SaturationError: the library is not installed, or the copy cannot be made.
    """
    global _library
    if _library is None:
        _library = _load_copy() if _forked else _load_file(_path())
    return _library


def _path() -> str:
    package = importlib.util.find_spec(_NAME.partition(".")[0])
    spec = package and PathFinder.find_spec(_NAME, package.submodule_search_locations)
    if spec is None or spec.origin is None:
        raise SaturationError("the e-graph engine is not installed; run: pip install egglog")
    return spec.origin


def _load_copy() -> ModuleType:
    try:
        with Scratch() as folder:
            # The loader identifies a file by its inode, so a link would give the old library again.
            return _load_file(shutil.copy(_path(), folder))
    except (OSError, ImportError) as error:
        raise SaturationError(
            f"the e-graph engine cannot be loaded anew after a fork ({error}); free some space in "
            f"{tempfile.gettempdir()}, or start processes with 'spawn' instead of 'fork'"
        ) from error


def _load_file(path: str) -> ModuleType:
    """Load the library alone: its package's imports take longer than a search of a small model.

    The module gets another name: under its own, the package would take it for imported already.
    """
    spec = importlib.util.spec_from_file_location(f"{__package__}.bindings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _forget() -> None:
    global _library, _forked
    # If the parent never loaded the library, the child loads it like any process.
    loaded = _library is not None or _NAME in sys.modules
    _library, _forked = None, _forked or loaded


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
