"""Measurements as a JSON file, for transfer from one machine to another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from eqsat_opt.common.codecs import parse_json, value_from_json
from eqsat_opt.common.files import write_whole
from eqsat_opt.cost.profile import ProfileKey, ProfileRow
from eqsat_opt.errors import StageError, StoreError, reason
from eqsat_opt.runtime.measure import Measurement

__all__ = ["EXPORT_FORMAT", "read_export", "row_from_json", "row_to_json", "write_export"]

EXPORT_FORMAT = "eqsat-opt-profile"

_VERSION = 2
_ADDED = {"forms": "", "precision": ""}
"""Fields of a key that rows of version 1 lack, with their values."""


def write_export(path: str | os.PathLike[str], rows: Iterable[ProfileRow]) -> None:
    """Write entries of a store to a file, completely or not at all.

    Raises:
        StoreError: the file cannot be written.
    """
    data = {
        "format": EXPORT_FORMAT,
        "version": _VERSION,
        "rows": [row_to_json(row) for row in rows],
    }
    write_whole(path, json.dumps(data, indent=1) + "\n", StoreError)


def read_export(path: str | os.PathLike[str]) -> tuple[ProfileRow, ...]:
    """Read the entries that `write_export` wrote, in this or an earlier version of the format.

    Raises:
        StoreError: the file is not such an export.
    """
    try:
        data = parse_json(Path(path).read_bytes())
        if data["format"] != EXPORT_FORMAT or data["version"] not in (1, _VERSION):
            raise ValueError("another format or version")
        added = _ADDED if data["version"] == 1 else {}
        return tuple(row_from_json({**added, **row}) for row in data["rows"])
    except OSError as error:
        raise StoreError(f"cannot read {path}: {reason(error)}") from error
    except (StageError, KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(
            f"{path} is not an export of a profile store ({why}); "
            "make one with `eqsat-opt profile export`"
        ) from error


def row_to_json(row: ProfileRow) -> dict[str, Any]:
    """Return an entry as the JSON object that an export holds."""
    return {
        **asdict(row.key),
        "measurement": row.measurement and row.measurement.to_json(),
        "measured_at": row.measured_at,
    }


def row_from_json(row: Mapping[str, Any]) -> ProfileRow:
    """Read back an entry from the JSON object that `row_to_json` returned.

    Raises:
        StageError, ValueError, KeyError, TypeError: the object is malformed.
    """
    names = [one.name for one in fields(ProfileKey)]
    key = value_from_json({name: row[name] for name in names}, ProfileKey, "the key of a row")
    for number in (key.threads, key.protocol):
        if not 0 <= number < _MOST_INTEGER:
            raise ValueError(f"{number!r:.20} is no count of threads, and no version")
    data = row["measurement"]
    measurement = None if data is None else Measurement.from_json(data)
    json.dumps(data, allow_nan=False)  # no store can keep numbers that are not finite
    measured_at = datetime.fromisoformat(row["measured_at"]).isoformat()
    return ProfileRow(key, measurement, measured_at)


_MOST_INTEGER = 1 << 31
