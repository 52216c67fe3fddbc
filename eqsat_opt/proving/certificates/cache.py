"""Certificates that were earned on this machine, stored so that no rule is verified twice.

The name of an entry is a hash of the rule, the level, the verifier and the versions of libraries,
and the entry is valid for these alone. It is sealed with a key that is bound to its folder, so an
entry that another user wrote, or that was copied, renamed or edited, is ignored. Deleting the
folder only costs time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path

from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import CertificateError
from eqsat_opt.proving.certificates.certificate import Certificate, content_of, why_invalid
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.rules.rule import Rule

__all__ = ["keep", "kept"]

_CACHE_VARIABLE = "EQSAT_OPT_CACHE"
_KEY_BYTES = 32
_LIBRARIES = ("numpy", "z3-solver")
"""Libraries that the verifier computes with, besides its own sources."""


def kept(rule: Rule, level: int) -> Certificate | None:
    """Return the stored certificate of a rule at exactly this level; ``None`` if there is none."""
    place = _place(rule, level)
    if place is None:
        return None
    try:
        data = json.loads(content_of(place))
        certificate = Certificate.from_json(data["certificate"])
        seal = _seal(place, certificate)
        fits = seal is not None and hmac.compare_digest(seal, str(data["seal"]).encode())
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    named = certificate.rule == rule.name and certificate.level == level
    return certificate if fits and named and not why_invalid(rule, certificate) else None


def keep(rule: Rule, certificate: Certificate) -> None:
    """Store the certificate that a rule has earned, if the cache can be written."""
    place = _place(rule, certificate.level)
    seal = None if place is None else _seal(place, certificate)
    if place is None or seal is None:
        return
    entry = {"certificate": asdict(certificate), "seal": seal.decode()}
    with suppress(CertificateError):
        write_whole(place, json.dumps(entry, indent=1) + "\n", CertificateError)


def _place(rule: Rule, level: int) -> Path | None:
    from platformdirs import user_cache_dir

    rests_on = fingerprint(rule, level)
    if rests_on is None:
        return None
    folder = os.environ.get(_CACHE_VARIABLE) or user_cache_dir("eqsat-opt", appauthor=False)
    text = "\n".join([rests_on, f"level {level}", *_versions()])
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Path(folder).expanduser() / "certificates" / f"{name}.json"


@cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {_version(name)}" for name in _LIBRARIES)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def _seal(place: Path, certificate: Certificate) -> bytes | None:
    """Return the seal of an entry: a hash of its name and contents with the key of its folder."""
    key = _key(place.with_name("key"))
    if key is None:
        return None
    text = f"{place.name}\n{json.dumps(asdict(certificate), sort_keys=True)}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest().encode()


def _key(path: Path) -> bytes | None:
    """Return the secret key of a folder, which is made at first use.

    The key includes the inode number of its file and the time of its last change, so that a copy of
    the file is another key.

    Returns:
        ``None`` where the key cannot be made or kept secret.
    """
    for _ in range(2):
        with suppress(OSError, ValueError):
            content, status = content_of(path), path.lstat()
            if len(content) == _KEY_BYTES:
                mark = f"{status.st_ino} {status.st_ctime_ns}"
                return content + mark.encode() if _is_private(status) else None
        with suppress(OSError, CertificateError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, secrets.token_bytes(_KEY_BYTES), CertificateError, 0o600)
    return None


def _is_private(status: os.stat_result) -> bool:
    """Return whether no other user can read or replace a file.

    Windows itself protects a user's folder, so nothing is checked there.
    """
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
