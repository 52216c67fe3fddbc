"""Hashes of the code that verdicts depend on, and the manifest that stores them.

Computing the hashes takes half a second. A file beside the book therefore stores them, with a hash
of the bytes of all sources that they were computed from. Where that hash agrees, nothing is parsed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import CertificateError
from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.certificates import sources
from eqsat_opt.proving.certificates.dependencies import Foundations, Unreadable, computed
from eqsat_opt.proving.certificates.sources import PACKAGE

__all__ = ["foundations", "is_manifest_current", "refresh", "write_manifest"]

_MANIFEST = "sources.json"
_FORMAT = 1


@cache
def foundations() -> Foundations | None:
    """Return the foundations of the package as it is; ``None`` if its sources cannot be read."""
    kept = _manifest()
    return kept if kept is not None and kept.operators.keys() == OPS.keys() else computed()


def refresh() -> None:
    """Forget all cached sources and foundations, so that they are read anew."""
    sources.forget()
    foundations.cache_clear()


# The manifest ------------------------------------------------------------------------------------


def _manifest() -> Foundations | None:
    """Return the foundations in the manifest; ``None`` if it was made from other sources."""
    try:
        data = json.loads(files(f"{PACKAGE}.rules.books").joinpath(_MANIFEST).read_bytes())
        if data["format"] != _FORMAT or data["sources"] != _sources_digest(data["modules"]):
            return None
        operators = {name: (one, two) for name, (one, two) in dict(data["operators"]).items()}
        one, two = data["verifiers"]
        return Foundations((one, two), operators, tuple(data["modules"]))
    except (OSError, ValueError, TypeError, LookupError, RecursionError, Unreadable):
        return None


def _sources_digest(modules: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in modules:
        source = sources.read(name)
        if source is None:
            raise Unreadable(name)
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def is_manifest_current() -> bool:
    """Return whether the manifest was made from the present sources."""
    return _manifest() is not None


def write_manifest(folder: Path) -> None:
    """Write the manifest anew in the folder of the book; do nothing where there are no sources.

    Raises:
        CertificateError: the manifest cannot be written.
    """
    refresh()
    found = computed()
    if found is None:
        return
    data = {
        "format": _FORMAT,
        "sources": _sources_digest(found.modules),
        "modules": found.modules,
        "verifiers": found.verifiers,
        "operators": found.operators,
    }
    write_whole(folder / _MANIFEST, json.dumps(data, indent=1) + "\n", CertificateError)
