"""Entries in the user's cache that are sealed, so that only what this user wrote is read.

The seal is made with a key that is bound to its folder: an entry that another user wrote, or that
was copied, renamed or edited, is ignored. Deleting the folder only costs time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eqsat_opt.common.files import write_whole
from eqsat_opt.common.paths import cache_folder
from eqsat_opt.errors import CertificateError
from eqsat_opt.proving.certificates.plain import content_of

__all__ = ["fetched", "put"]

_KEY_BYTES = 32


def fetched(kind: str, key: str) -> dict[str, Any] | None:
    """Return the entry of a kind under a key; ``None`` if there is none with a valid seal."""
    try:
        place = _place(kind, key)
        content = json.loads(content_of(place))
        seal = str(content.pop("seal")).encode()
        return content if hmac.compare_digest(_seal(place, content), seal) else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def put(kind: str, key: str, content: Mapping[str, Any]) -> None:
    """Store an entry, if the cache can be written."""
    with suppress(OSError, CertificateError):
        place = _place(kind, key)
        sealed = {**content, "seal": _seal(place, content).decode()}
        write_whole(place, json.dumps(sealed, indent=1) + "\n", CertificateError)


def _place(kind: str, key: str) -> Path:
    folder = cache_folder()
    if not folder:
        raise OSError("the user has no home")
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return Path(folder) / kind / f"{name}.json"


def _seal(place: Path, content: Mapping[str, Any]) -> bytes:
    """Return the seal of an entry: a hash of its name and contents with the key of its folder."""
    text = f"{place.name}\n{json.dumps(content, sort_keys=True)}"
    key = _key(place.with_name("key"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest().encode()


def _key(path: Path) -> bytes:
    """Return the secret key of a folder, which is made at first use.

    The key includes the inode number of its file and the time of its last change, so that a copy of
    the file is another key.

    Raises:
        OSError: the key cannot be made or kept secret.
    """
    for _ in range(2):
        try:
            content, status = content_of(path), path.lstat()
        except (OSError, ValueError):
            content = b""
        if len(content) == _KEY_BYTES:
            if _is_private(status):
                return content + f"{status.st_ino} {status.st_ctime_ns}".encode()
            raise PermissionError("others can read the key")
        with suppress(CertificateError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, secrets.token_bytes(_KEY_BYTES), CertificateError, 0o600)
    raise OSError("there is no key")


def _is_private(status: os.stat_result) -> bool:
    """Return whether no other user can read or replace a file.

    Windows itself protects a user's folder, so nothing is checked there.
    """
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
