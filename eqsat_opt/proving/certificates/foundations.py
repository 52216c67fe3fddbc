"""Digests of what verdicts rest on: the verifier, and the record of each operator.

The verifier is the modules that judge, with all values that they import. A record is the entries of
an operator in the tables that the verifier reads, with all values that these use. Comments,
docstrings and layout count for nothing.

Computing the digests takes up to a second, so they are stored with a hash of all sources that they
may depend on: beside the book, and after an edit in the user's cache. Where that hash agrees,
nothing is parsed. It saves time only; the digests alone decide which certificates are valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from eqsat_opt import LOADED_NS
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import CertificateError
from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving.certificates.meaning import PACKAGE, Meaning
from eqsat_opt.proving.certificates.sealed import fetched, put
from eqsat_opt.proving.certificates.syntax import Syntax

__all__ = ["JUDGES", "Foundations", "computed", "foundations", "sources", "write_manifest"]

JUDGES = ("gate", "checks", "instances", "numbers", "proof", "typing")
"""Modules and folders of the verifier that make verdicts; the others store and show them."""
_FOLDERS = ("common", "ir/graph", "ir/ops", "ir/values", "proving", "rules")
"""Folders of all modules that a digest may depend on; books are left out."""
_MANIFEST = "sources.json"
_KIND = "foundations"
_FORMAT = 2
_SLACK_NS = 20_000_000
"""Bound on how far the clock of a file system is behind."""


@dataclass(frozen=True)
class Foundations:
    """Digests of what verdicts rest on.

    Attributes:
        verifier: digest of the code that judges.
        operators: operator to the digest of its record.
    """

    verifier: str
    operators: Mapping[str, str]


@cache
def foundations() -> Foundations | None:
    """Return the foundations of the package as it is; ``None`` where it has no sources."""
    found = sources()
    if not found:
        return None
    mark = _mark(found)
    known = _stored(_manifest(), mark) or _stored(fetched(_KIND, mark), mark)
    if known is None:
        known = computed(Syntax(found))
        if _is_settled():
            put(_KIND, mark, _storable(known, mark))
    return known


def computed(syntax: Syntax) -> Foundations:
    """Compute the foundations, given the syntax of all sources."""
    verifier, tables = _verifier(syntax)
    records = {name: _digest(_record(name, tables, syntax)) for name in sorted(OPS)}
    return Foundations(_digest(verifier), records)


def _verifier(syntax: Syntax) -> tuple[str, tuple[object, ...]]:
    """Return the verifier as text, and the tables that it looks operators up in."""
    judging = tuple(f"{PACKAGE}.proving.{name}." for name in JUDGES)
    modules = [name for name in sorted(syntax.sources) if f"{name}.".startswith(judging)]
    meaning = Meaning(syntax)
    return meaning.of_modules(modules), meaning.tables


def _record(name: str, tables: Iterable[object], syntax: Syntax) -> str:
    """Return the entries of an operator as text, with those of the operators that they name."""
    parts, more = set[str](), {name}
    while more:
        parts |= more
        record = Meaning(syntax, parts)
        text = record.of_values(tables)
        more = (record.strings & OPS.keys()) - parts
    return f"{name}: {text}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Sources -----------------------------------------------------------------------------------------


def sources() -> dict[str, bytes]:
    """Return the source of each module that digests may depend on; empty where there are none.

    Lines end with bare line feeds on every platform.
    """
    with suppress(OSError):
        return {name: file.read_bytes().replace(b"\r\n", b"\n") for name, file in _files()}
    return {}


def _files() -> Iterator[tuple[str, Traversable]]:
    for folder in _FOLDERS:
        parts = folder.split("/")
        yield from _below(files(PACKAGE).joinpath(*parts), ".".join([PACKAGE, *parts]))


def _below(folder: Traversable, package: str) -> Iterator[tuple[str, Traversable]]:
    for one in folder.iterdir():
        if one.name.endswith(".py"):
            name = one.name.removesuffix(".py")
            yield (package if name == "__init__" else f"{package}.{name}"), one
        elif "." not in one.name and one.name not in ("__pycache__", "books"):
            yield from _below(one, f"{package}.{one.name}")


def _mark(found: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(f"{name} {len(found[name])}\n".encode() + found[name])
    return digest.hexdigest()


def _is_settled() -> bool:
    """Return whether no source has changed since it was loaded, so that values are as written."""
    times = [one.stat() for _, one in _files() if isinstance(one, Path)]
    changed = max((max(time.st_mtime_ns, time.st_ctime_ns) for time in times), default=LOADED_NS)
    return changed < LOADED_NS - _SLACK_NS


# Stored digests ----------------------------------------------------------------------------------


def _stored(data: Any, mark: str) -> Foundations | None:
    """Return stored foundations; ``None`` if they were computed from other sources."""
    with suppress(TypeError, LookupError, AttributeError):
        is_ours = (data["format"], data["sources"]) == (_FORMAT, mark)
        if is_ours and data["operators"].keys() == OPS.keys():
            return Foundations(data["verifier"], data["operators"])
    return None


def _storable(found: Foundations, mark: str) -> dict[str, Any]:
    return {"format": _FORMAT, "sources": mark, **asdict(found)}


def _manifest() -> Any:
    with suppress(OSError, ValueError, RecursionError):
        return json.loads(files(f"{PACKAGE}.rules.books").joinpath(_MANIFEST).read_bytes())
    return None


def write_manifest(folder: Path) -> None:
    """Write the manifest anew in the folder of the book.

    Nothing is written where there are no sources, or where one has changed since it was loaded.

    Raises:
        CertificateError: the manifest cannot be written.
    """
    found = sources()
    if found and _is_settled():
        data = _storable(computed(Syntax(found)), _mark(found))
        write_whole(folder / _MANIFEST, json.dumps(data, indent=1) + "\n", CertificateError)
