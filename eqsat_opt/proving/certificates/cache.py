"""Certificates that were earned on this machine, stored so that no rule is verified twice.

The key of an entry is a hash of the rule, the level, the verifier and the versions of libraries,
and the entry is valid for these alone.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from importlib import metadata

from eqsat_opt.proving.certificates.certificate import Certificate, why_invalid
from eqsat_opt.proving.certificates.sealed import fetched, put
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.rules.rule import Rule

__all__ = ["keep", "kept"]

_KIND = "certificates"
_LIBRARIES = ("numpy", "z3-solver")
"""Libraries that the verifier computes with, besides its own sources."""


def kept(rule: Rule, level: int) -> Certificate | None:
    """Return the stored certificate of a rule at exactly this level; ``None`` if there is none."""
    key = _key(rule, level)
    entry = fetched(_KIND, key) if key else None
    try:
        certificate = Certificate.from_json(entry["certificate"]) if entry else None
    except (ValueError, LookupError):
        return None
    if certificate is None or (certificate.rule, certificate.level) != (rule.name, level):
        return None
    return None if why_invalid(rule, certificate) else certificate


def keep(rule: Rule, certificate: Certificate) -> None:
    """Store the certificate that a rule has earned, if the cache can be written."""
    if key := _key(rule, certificate.level):
        put(_KIND, key, {"certificate": asdict(certificate)})


def _key(rule: Rule, level: int) -> str:
    """Return all that a certificate depends on; empty where that is unknown."""
    rests_on = fingerprint(rule, level)
    return "\n".join([rests_on, f"level {level}", *_versions()]) if rests_on else ""


@cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {_version(name)}" for name in _LIBRARIES)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
