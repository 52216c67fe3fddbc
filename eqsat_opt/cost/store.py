"""The profile store: measurements that outlive the process, shared by all processes of a user."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from eqsat_opt.common.paths import CACHE_VARIABLE, cache_folder
from eqsat_opt.cost.export import read_export, write_export
from eqsat_opt.cost.profile import ProfileKey, ProfileRow, StoreStats
from eqsat_opt.errors import StageError, StoreError, reason
from eqsat_opt.runtime.measure import Measurement

__all__ = ["CACHE_VARIABLE", "ProfileStore", "store_path"]

_FILE_NAME = "profile.sqlite3"
_SCHEMA_VERSION = 2
_TABLE = f"profile_v{_SCHEMA_VERSION}"
_BUSY_TIMEOUT_S = 5.0
"""Seconds to wait for other processes that lock the file; their transactions take milliseconds."""

_KEY_COLUMNS = "backend, kernel, implementation, device, threads, protocol, forms, precision"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {_TABLE} (
    backend TEXT NOT NULL,
    kernel TEXT NOT NULL,
    implementation TEXT NOT NULL,
    device TEXT NOT NULL,
    threads INTEGER NOT NULL,
    protocol INTEGER NOT NULL,
    forms TEXT NOT NULL,
    precision TEXT NOT NULL,
    measurement TEXT NOT NULL,
    measured_at TEXT NOT NULL,
    PRIMARY KEY ({_KEY_COLUMNS})
)
"""
_MATCH = " AND ".join(f"{column.strip()} = ?" for column in _KEY_COLUMNS.split(","))

_T = TypeVar("_T")


def store_path() -> Path:
    """Return the file of the default store: in `$EQSAT_OPT_CACHE`, or in the user's cache folder.

    Raises:
        StoreError: the user has no home folder.
    """
    folder = cache_folder()
    if not folder:
        raise StoreError(
            f"there is no home folder to keep the profile store in; name one by {CACHE_VARIABLE}"
        )
    return Path(folder) / _FILE_NAME


class ProfileStore:
    """Measurements by `ProfileKey` in an SQLite file; safe with several processes and threads.

    The file is opened on first use, and again in a forked child. A damaged file is reported and
    left unchanged.

    Args:
        path: the file; its folder is created if need be. The default is `store_path()`.
        wait_s: how long to wait for other processes that lock the file, s.

    Raises:
        StoreError: no path is given, and the user has no home folder.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, wait_s: float = _BUSY_TIMEOUT_S
    ) -> None:
        self._wait_s = wait_s
        self.path = store_path() if path is None else Path(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner_pid = 0

    def get_many(self, keys: Iterable[ProfileKey]) -> dict[ProfileKey, Measurement | None]:
        """Return the stored results; a key without one is absent, a known failure is None.

        Raises:
            StoreError: the file cannot be read or is damaged.
        """
        query = f"SELECT measurement FROM {_TABLE} WHERE {_MATCH}"
        found: dict[ProfileKey, Measurement | None] = {}
        with self._open("read") as connection:
            for key in keys:
                row = connection.execute(query, astuple(key)).fetchone()
                if row is not None:
                    found[key] = self._decoded(row[0])
        return found

    def put_many(self, results: Mapping[ProfileKey, Measurement | None]) -> None:
        """Store results, all or none; newer ones replace older ones.

        Raises:
            StoreError: the file cannot be written (read-only, disk full) or is damaged.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._insert(
            (*astuple(key), _encoded(measurement), now) for key, measurement in results.items()
        )

    def rows(self) -> list[ProfileRow]:
        """Return all entries, sorted by key.

        Raises:
            StoreError: the file cannot be read or is damaged.
        """
        query = f"SELECT {_KEY_COLUMNS}, measurement, measured_at FROM {_TABLE}"
        with self._open("read") as connection:
            found = connection.execute(f"{query} ORDER BY {_KEY_COLUMNS}").fetchall()
        return [ProfileRow(ProfileKey(*key), self._decoded(m), at) for *key, m, at in found]

    def stats(self) -> StoreStats:
        """Return the statistics of the store.

        Raises:
            StoreError: the file cannot be read or is damaged.
        """
        with self._open("read") as connection:
            total, failures, oldest, newest = connection.execute(
                f"SELECT count(*), count(CASE WHEN measurement = 'null' THEN 1 END), "
                f"coalesce(min(measured_at), ''), coalesce(max(measured_at), '') FROM {_TABLE}"
            ).fetchone()
            per_backend, per_device = (
                dict(
                    connection.execute(
                        f"SELECT {column}, count(*) FROM {_TABLE} GROUP BY 1 ORDER BY 1"
                    ).fetchall()
                )
                for column in ("backend", "device")
            )
        size = self.path.stat().st_size if self.path.exists() else 0
        return StoreStats(
            path=str(self.path),
            size_bytes=size,
            n_measurements=total - failures,
            n_failures=failures,
            per_backend=per_backend,
            per_device=per_device,
            oldest=oldest,
            newest=newest,
        )

    def clear(self) -> int:
        """Delete all entries and return their number.

        Raises:
            StoreError: the file cannot be written or is damaged.
        """
        with self._open("write") as connection:
            count = connection.execute(f"DELETE FROM {_TABLE}").rowcount
        with self._open("read") as connection:
            connection.execute("VACUUM")
        return int(count)

    def export_json(self, path: str | os.PathLike[str]) -> int:
        """Write all entries to a JSON file and return their number.

        Raises:
            StoreError: the store cannot be read, or the file cannot be written.
        """
        rows = self.rows()
        write_export(path, rows)
        return len(rows)

    def import_json(self, path: str | os.PathLike[str]) -> int:
        """Add the entries of a file made by `export_json`, all or none, and return their number.

        Raises:
            StoreError: the file is not such an export, or the store cannot be written.
        """
        rows = read_export(path)
        self._insert(
            (*astuple(one.key), _encoded(one.measurement), one.measured_at) for one in rows
        )
        return len(rows)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._owner_pid == os.getpid():
                with suppress(sqlite3.Error):  # committed data is safe, and nothing else matters
                    connection.close()

    def __enter__(self) -> ProfileStore:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _insert(self, records: Iterable[tuple[Any, ...]]) -> None:
        statement = f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        rows = list(records)
        if rows:
            with self._open("write") as connection:
                connection.executemany(statement, rows)

    @contextmanager
    def _open(self, purpose: str) -> Iterator[sqlite3.Connection]:
        """Yield the connection, in a transaction for writing; turn errors into `StoreError`."""
        with self._lock:
            try:
                connection = self._connected()
                if purpose == "read":
                    yield connection
                    return
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError, ValueError) as error:
                raise self._error(purpose, error) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None or self._owner_pid != os.getpid():
            self._connection = self._connect()
            self._owner_pid = os.getpid()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self._prepared(str(self.path), partial(_create_schema, wait_s=self._wait_s))
        except (sqlite3.OperationalError, OSError) as error:
            # A shared store on a read-only disk can still be read. A store that another process is
            # writing must not be opened as immutable.
            if _is_locked(error) or not self.path.is_file():
                raise
            readable = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            return self._prepared(readable, _check_schema)

    def _prepared(
        self, location: str, prepare: Callable[[sqlite3.Connection], None]
    ) -> sqlite3.Connection:
        connection = sqlite3.connect(
            location,
            timeout=self._wait_s,
            isolation_level=None,
            check_same_thread=False,
            uri=location.startswith("file:"),
        )
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _decoded(self, text: str) -> Measurement | None:
        try:
            data = json.loads(text)
            return None if data is None else Measurement.from_json(data)
        except (StageError, ValueError, RecursionError) as error:
            raise self._damaged(str(error)) from error

    def _error(self, purpose: str, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError
        ):
            return self._damaged(str(error))
        if _is_locked(error):
            return StoreError(
                f"cannot {purpose} the profile store {self.path}: another process has held it for "
                f"more than {self._wait_s:g} s; end that, or choose another folder by "
                f"{CACHE_VARIABLE}"
            )
        return StoreError(
            f"cannot {purpose} the profile store {self.path} ({reason(error)}); make room or check "
            f"the permissions, or choose another folder by {CACHE_VARIABLE}"
        )

    def _damaged(self, detail: str) -> StoreError:
        return StoreError(
            f"the profile store {self.path} is damaged ({detail}); move it away "
            f"(mv {self.path} {self.path}.damaged) and its kernels will be measured again"
        )


def _create_schema(connection: sqlite3.Connection, wait_s: float) -> None:
    _retry_while_locked(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchone(), wait_s)
    connection.execute("PRAGMA synchronous=NORMAL")
    if not _has_table(connection, _TABLE):  # this check takes no lock that others wait for
        connection.execute(_SCHEMA)


def _check_schema(connection: sqlite3.Connection) -> None:
    if not _has_table(connection, _TABLE):
        raise sqlite3.OperationalError(f"it has no table {_TABLE} and is read-only")


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _is_locked(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _retry_while_locked(action: Callable[[], _T], wait_s: float) -> _T:
    """Retry an action while the file is locked, for at most ``wait_s`` seconds.

    SQLite does not wait by itself when processes switch a new file to WAL at the same time.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not _is_locked(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _encoded(measurement: Measurement | None) -> str:
    # JSON has no infinities, so a nonsensical time cannot be stored.
    data = None if measurement is None else measurement.to_json()
    return json.dumps(data, allow_nan=False, sort_keys=True)
