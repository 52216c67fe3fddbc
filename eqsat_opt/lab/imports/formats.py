"""The formats of foreign rules, and which one a file has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eqsat_opt.errors import OptionError, or_nearest
from eqsat_opt.lab.imports.foreign import ForeignRule
from eqsat_opt.lab.imports.tensat import read_tensat
from eqsat_opt.lab.imports.tensorright import read_tensorright

__all__ = ["FORMATS", "format_of", "read_foreign"]

FORMATS = ("rulebook", "taso", "tensat", "tensorright")
"""The names that `rules import --format` takes."""

_BY_SUFFIX: Mapping[str, str] = {
    ".py": "rulebook",
    ".pb": "taso",
    ".txt": "tensat",
    ".hs": "tensorright",
}
_READERS = {"tensat": read_tensat, "tensorright": read_tensorright}


def format_of(path: Path, given: str | None) -> str:
    """Return the format of a file, as given or by its name.

    Raises:
        OptionError: there is no such format, or the name implies none.
    """
    if given is not None:
        if given not in FORMATS:
            raise OptionError(f"there is no format {given!r}; {or_nearest(given, FORMATS)}")
        return given
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        raise OptionError(
            f"{path} is neither a rulebook (.py) nor a file of TASO's rules (.pb); if it holds "
            f"rules of another system, give --format {'|'.join(FORMATS[2:])}"
        )
    return found


def read_foreign(path: Path, format_name: str) -> tuple[ForeignRule, ...]:
    """Read the rules of a file in the format of another system.

    Raises:
        RuleError: the file cannot be read or is not intact.
    """
    return _READERS[format_name](path)
