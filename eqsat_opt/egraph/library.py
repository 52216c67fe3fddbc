"""The engine's compiled library: quiet in the host's log, and usable again after a fork."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import tempfile
from types import ModuleType
from typing import Any

import egglog.bindings

from eqsat_opt.errors import SaturationError
from eqsat_opt.files import Scratch

__all__ = ["engine_library"]

# It reports every command as INFO. Whoever wants to see that has set a level.
if (_log := logging.getLogger("egglog")).level == logging.NOTSET:
    _log.setLevel(logging.WARNING)

_library: ModuleType | None = egglog.bindings


def engine_library() -> Any:
    """The library; in a forked process a copy of its own.

    The library starts threads when it is loaded, and waits for them later. A fork takes none of
    them along, so that the child would wait forever.

    Raises:
        SaturationError: the copy cannot be made.
    """
    global _library
    if _library is None:
        _library = _load_copy()
    return _library


def _load_copy() -> ModuleType:
    name, path = egglog.bindings.__name__, egglog.bindings.__file__
    try:
        with Scratch() as folder:
            # The loader knows a file by its inode: a link would give the old library again.
            spec = importlib.util.spec_from_file_location(name, shutil.copy(path, folder))
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    except (OSError, ImportError) as error:
        raise SaturationError(
            f"the e-graph engine cannot be loaded anew after a fork ({error}); free some space in "
            f"{tempfile.gettempdir()}, or start processes with 'spawn' instead of 'fork'"
        ) from error
    return module


def _forget() -> None:
    global _library
    _library = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
