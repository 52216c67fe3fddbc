"""Certificates: how a rule was checked, stored as JSON beside its book.

A certificate is valid as long as the rule, the definitions of its operators and the verifier are
those that it was made with. Its digest reveals edits by hand; it is not a signature.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NoReturn

from eqsat_opt.common.files import write_whole
from eqsat_opt.common.paths import shown
from eqsat_opt.errors import CertificateError, reason
from eqsat_opt.proving.certificates.plain import check_fields, content_of
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.rules.rule import Rule

__all__ = [
    "FORMAT",
    "Certificate",
    "Direction",
    "certificate_command",
    "certificates_beside",
    "read_certificates",
    "why_invalid",
    "write_certificates",
]

FORMAT = 2
_HIGHEST_LEVEL = 3
_BESIDE = ".certificates.json"
"""Suffix of a certificate file, after the stem of its rulebook."""


@dataclass(frozen=True)
class Direction:
    """Evidence of level 1 for one direction of a rule.

    Attributes:
        rule: name of the direction.
        method: kind of numbers that both sides were evaluated on.
        instances: typed instances that agree.
        guarded: instances left out because the right side does not type there.
        complete_to: greatest extent up to which all instances of the enumerated ranks and
            attributes are included; 0 if they were too many.
        largest_extent: greatest extent of an operand.
        trials: independent draws of values per instance.
        seed: seed of the instances and values.
        degree, argument_pairs, prime, log2_bound: bound on the probability of a false acceptance
            per instance, ((degree + degree * argument_pairs) / prime) ** trials; ``None`` where
            there is none.
        reason: measurement that keeps the direction out of the default numerics class; empty if
            there is none.
    """

    rule: str
    method: str
    instances: int
    guarded: int
    complete_to: int
    largest_extent: int
    trials: int
    seed: int
    degree: int | None = None
    argument_pairs: int | None = None
    prime: int | None = None
    log2_bound: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Certificate:
    """The result of verifying a rule.

    Attributes:
        rule: name of the rule.
        level: 0 sampled in floating point, 1 exact at instances, 2 proven for all sizes, 3 derived
            from proven rules.
        fingerprint: hash of rule, operators and verifier.
        directions: evidence of level 1.
        float32, float16: worst relative error of the right side against the left side in float64.
        tolerance: largest relative distance at which a constant, which may have been rounded,
            counts as its target; the rule is exact at the targets.
        scope: cases that a verdict of level 2 or 3 covers.
        unproven: why there is no proof for all sizes; empty if there is one.
        axioms: rules that the rule was derived from.
        digest: hash of all other attributes.
    """

    rule: str
    level: int
    fingerprint: str
    directions: tuple[Direction, ...]
    float32: float
    float16: float
    tolerance: float = 0.0
    scope: str = ""
    unproven: str = ""
    axioms: tuple[str, ...] = field(default=())
    digest: str = ""

    @property
    def instances(self) -> int:
        """Number of instances over all directions."""
        return sum(direction.instances for direction in self.directions)

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of all directions, each once."""
        return tuple(dict.fromkeys(direction.method for direction in self.directions))

    def raised(
        self, rule: Rule, level: int, scope: str, unproven: str = "", axioms: tuple[str, ...] = ()
    ) -> Certificate:
        """Return the same certificate at a higher level, with its digest."""
        mark = fingerprint(rule, level) or ""
        return replace(
            self, level=level, fingerprint=mark, scope=scope, unproven=unproven, axioms=axioms
        ).sealed()

    def sealed(self) -> Certificate:
        """Return the same certificate with its digest."""
        return replace(self, digest=self._digest())

    @property
    def is_sealed(self) -> bool:
        """Whether the digest matches the contents."""
        return self.digest == self._digest()

    def _digest(self) -> str:
        # The whole book is read at every start, and `asdict` would copy it leaf by leaf.
        content = {**vars(self), "directions": [*map(vars, self.directions)], "digest": ""}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @staticmethod
    def from_json(value: Any) -> Certificate:
        """Build a certificate from a parsed JSON object.

        Raises:
            ValueError: the value is not an object, or a key is missing, unknown or has another kind
                of value.
        """
        check_fields(value, Certificate, "a certificate")
        for direction in value["directions"]:
            check_fields(direction, Direction, "a direction")
        if value["level"] > _HIGHEST_LEVEL:
            raise ValueError(f"there is no level {value['level']}")
        directions = tuple(Direction(**direction) for direction in value["directions"])
        return Certificate(**{**value, "directions": directions, "axioms": tuple(value["axioms"])})


def why_invalid(rule: Rule, certificate: Certificate | None) -> str:
    """Return why a rule may not be trusted; empty if it may.

    Where the package's sources cannot be read, a certificate is accepted as it is.
    """
    if certificate is None:
        return "it has no certificate"
    if certificate.level < 1:
        return "it was only sampled in floating point"
    now = fingerprint(rule, certificate.level)
    if now is not None and now != certificate.fingerprint:
        return "its certificate is stale: the rule, an operator or the verifier has changed"
    return ""


def read_certificates(path: Path | Traversable, *, strict: bool = True) -> dict[str, Certificate]:
    """Read a file of certificates into a map from rule name to certificate.

    The map is empty if there is no file, or one of an earlier format.

    Args:
        path: path of the JSON file.
        strict: whether a damaged file and a certificate with a wrong digest are errors; otherwise
            they are left out.

    Raises:
        CertificateError: the file is not a list of certificates, or one was edited.
    """
    try:
        found = _parsed(content_of(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        if not strict:
            return {}
        raise CertificateError(
            f"{path} is not a file of certificates ({shown(reason(error))}); "
            f"write it again with {certificate_command(path)}"
        ) from error
    sealed = {one.rule: one for one in found if one.is_sealed}
    edited = [one.rule for one in found if one.rule not in sealed]
    if edited and strict:
        raise CertificateError(
            f"the certificate of {edited[0]} in {path} was edited by hand: its digest does not "
            f"fit; verify it again with {certificate_command(path)}"
        )
    return sealed


def _parsed(content: bytes) -> list[Certificate]:
    data = json.loads(content.decode(), parse_constant=_refuse)
    if isinstance(data, dict) and _is_earlier(data.get("format")):
        return []  # an earlier version measured less
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"it is not of format {FORMAT}, the one that this version reads")
    if not isinstance(data.get("certificates"), list):
        raise ValueError("it lists no certificates")
    found = [Certificate.from_json(value) for value in data["certificates"]]
    name, count = max(Counter(one.rule for one in found).items(), key=_count, default=("", 0))
    if count > 1:
        raise ValueError(f"it has {count} certificates of {name!r}")
    return found


def _count(item: tuple[str, int]) -> int:
    return item[1]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _is_earlier(version: Any) -> bool:
    return type(version) is int and 1 <= version < FORMAT


def certificates_beside(path: Path) -> Path:
    """Return the path of the certificate file of a rulebook."""
    return path.with_name(f"{path.stem}{_BESIDE}")


def certificate_command(path: Path | Traversable) -> str:
    """Return the command that writes a file of certificates again."""
    if path.name.endswith(_BESIDE):
        return f"eqsat-opt rules import {str(path).removesuffix(_BESIDE)}.py --write"
    return f"eqsat-opt rules verify {path.name.removesuffix('.json')} --write"


def write_certificates(path: Path, certificates: Iterable[Certificate]) -> None:
    """Write a file of certificates, either completely or not at all.

    Raises:
        CertificateError: the file cannot be written.
    """
    sealed = [asdict(certificate.sealed()) for certificate in certificates]
    text = json.dumps({"format": FORMAT, "certificates": sealed}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"cannot make {path.parent}: {reason(error)}") from error
    write_whole(path, text, CertificateError)
