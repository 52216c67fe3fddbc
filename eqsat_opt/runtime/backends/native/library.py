"""The compiled library: its path, the instructions that it uses here, and why it is missing."""

from __future__ import annotations

import ctypes
import hashlib
import os
from dataclasses import replace
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat_opt.errors import RuntimeFailed

if TYPE_CHECKING:
    from eqsat_opt.runtime.backends.ort.session import OrtOptions

__all__ = ["instructions", "library_digest", "library_path", "missing", "with_kernels"]


@lru_cache(maxsize=1)
def _found() -> tuple[str, str, str]:
    """Return the library's path, the instructions that it uses here, and why it is unusable."""
    folder = Path(__file__).parent
    paths = [folder / f"_kernels{suffix}" for suffix in EXTENSION_SUFFIXES]
    path = next((str(path) for path in paths if path.is_file()), "")
    if not path:
        return (
            "",
            "",
            (
                "the kernels were not compiled when eqsat-opt was installed; install a C++ "
                "compiler and then eqsat-opt again"
            ),
        )
    try:
        library = ctypes.CDLL(path)
        library.eqsat_opt_instructions.restype = ctypes.c_char_p
        name = library.eqsat_opt_instructions().decode()
    except (OSError, AttributeError) as error:
        return "", "", f"the compiled kernels cannot be loaded: {error}"
    if not name:
        return "", "", "the kernels have no version for this processor; they need AVX2 or NEON"
    return path, name, ""


def missing() -> str:
    """Return why there are no kernels here, as a sentence without a period; empty if there are."""
    return _found()[2]


def library_path() -> str:
    """Return the path of the library for ``SessionOptions.register_custom_ops_library``.

    Raises:
        RuntimeFailed: there is no library for this machine.
    """
    path, _, why = _found()
    if why:
        raise RuntimeFailed(why)
    return path


def instructions() -> str:
    """Return the name of the instructions that the kernels use here: avx512, avx2 or neon."""
    return _found()[1]


@lru_cache(maxsize=1)
def library_digest() -> str:
    """Return a digest of the library's content; empty if there is no library."""
    path = _found()[0]
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else ""


def with_kernels(options: OrtOptions) -> OrtOptions:
    """Return options that run a graph with our operators unchanged, with the library registered.

    Raises:
        RuntimeFailed: there are no kernels for this machine.
    """
    own = library_path()
    others = (one for one in options.custom_ops if os.path.realpath(one) != os.path.realpath(own))
    return replace(options, level="disabled", disabled_optimizers=(), custom_ops=(*others, own))
