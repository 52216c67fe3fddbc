"""Which rules there are: the families of the book and a user's own rulebooks.

No rule is in the default set without a valid certificate beside its book.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.rulebooks import (
    admit,
    certificates_beside,
    load_installed,
    read_rulebook,
    rules_of,
)
from eqsat_opt.rules.verify.certificate import Certificate, read_certificates, why_invalid

__all__ = [
    "FAMILIES",
    "Standing",
    "book_certificates",
    "certificate_path",
    "default_rules",
    "excluded_rules",
    "families",
    "load_rules",
    "standings",
]

FAMILIES = (
    "elementwise", "matmul", "conv", "concat", "pool", "lrn", "transpose", "reshape", "reduction",
    "softmax", "layernorm", "folding", "affine", "activation", "normalisation", "attention",
    "equations",
)  # fmt: skip
"""Modules of eqsat_opt.rules.books, one per family."""
_BOOKS = "eqsat_opt.rules.books"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Standing:
    """Whether a rule of the book may be used.

    Attributes:
        rule: of the book.
        certificate: beside the book, valid or not.
        obstacle: why it is left out of the default set; empty if it is not.
    """

    rule: Rule
    certificate: Certificate | None
    obstacle: str


def families() -> dict[str, list[Rule]]:
    """Family name to its rules, in the order of the book, certified or not."""
    return {name: rules_of(importlib.import_module(f"{_BOOKS}.{name}")) for name in FAMILIES}


def certificate_path(family: str) -> Path:
    """The file of a family's certificates, where the package lies in a folder."""
    module = importlib.import_module(f"{_BOOKS}.{family}")
    return Path(str(module.__file__)).with_suffix(".json")


def book_certificates(family: str, *, strict: bool = True) -> dict[str, Certificate]:
    """Rule name to certificate.

    Raises:
        CertificateError: a certificate was edited, unless not ``strict``.
    """
    return read_certificates(files(_BOOKS) / f"{family}.json", strict=strict)


@cache
def _standings() -> Mapping[str, Standing]:
    result = {}
    for family, rules in families().items():
        certificates = book_certificates(family)
        for rule in rules:
            certificate = certificates.get(rule.name)
            result[rule.name] = Standing(rule, certificate, why_invalid(rule, certificate))
    return result


def standings() -> Mapping[str, Standing]:
    """Rule name to standing, for the whole book; read once per process.

    Raises:
        CertificateError: a certificate was edited.
    """
    return _standings()


@cache
def _warn(obstacles: tuple[tuple[str, str], ...]) -> None:
    for name, obstacle in obstacles:
        _LOG.warning("%s is left out: %s", name, obstacle)


def excluded_rules() -> dict[str, str]:
    """Rules of the book that lack a valid certificate, with the reason; logged once as warnings."""
    excluded = {name: one.obstacle for name, one in standings().items() if one.obstacle}
    _warn(tuple(excluded.items()))
    return excluded


def _certified() -> list[Rule]:
    excluded = excluded_rules()
    return [one.rule for name, one in standings().items() if name not in excluded]


def default_rules(numerics: Numerics = Numerics.REASSOCIATE) -> list[Rule]:
    """All certified rules of the book that optimise and whose numerics class is admitted.

    Raises:
        CertificateError: a certificate was edited.
    """
    return [
        rule
        for rule in _certified()
        if rule.numerics <= numerics and rule.phase is not Phase.DERIVATION
    ]


def _selected(name: str, numerics: Numerics) -> list[Rule]:
    if name.endswith(".py"):
        path = Path(name)
        return admit(read_rulebook(path), certificates_beside(path))
    if name == "default":
        return default_rules(numerics)
    if name in FAMILIES:
        return [r for r in _certified() if r.family == name and r.numerics <= numerics]
    if name in standings():
        # Whoever names a rule wants it, so one without a certificate earns it now or is refused.
        one = standings()[name]
        return [one.rule] if not one.obstacle else admit([one.rule])
    return load_installed(name)


def load_rules(selection: str | Sequence[str], numerics: Numerics) -> list[Rule]:
    """Rules by selection.

    A part is ``default``, ``none``, a family, a rule, a .py file or an installed rulebook; the
    first and families bring what ``numerics`` admits, other parts what they name. A
    leading ``-`` leaves it out. Rules that come from outside the book are verified first.

    Raises:
        RuleError: for an unknown name, a file that cannot be loaded, a rule that is wrong, or one
            name defined twice.
    """
    parts = selection.split(",") if isinstance(selection, str) else list(selection)
    chosen: dict[str, Rule] = {}
    if parts and parts[0].startswith("-"):
        parts = ["default", *parts]
    for part in (p.strip() for p in parts):
        name = part.removeprefix("-")
        if part == "none" or not part:
            continue
        if part.startswith("-"):
            _leave_out(name, chosen)
            continue
        found = _selected(name, numerics)
        if not found and name != "default":
            _raise_unknown(name)
        for rule in found:
            if chosen.get(rule.name, rule) is not rule:
                raise RuleError(f"rule {rule.name!r} is defined twice; rename one")
            chosen[rule.name] = rule
    return list(chosen.values())


def _leave_out(name: str, chosen: dict[str, Rule]) -> None:
    known = name in FAMILIES or name in standings()
    dropped = [rule for rule in chosen.values() if name in (rule.name, rule.family)]
    if name.endswith(".py"):
        names = {rule.name for rule in read_rulebook(Path(name))}
        dropped = [rule for rule in chosen.values() if rule.name in names]
        known = True
    if not known and not dropped:
        _raise_unknown(name)
    for rule in dropped:
        del chosen[rule.name]


def _raise_unknown(name: str) -> None:
    if name in FAMILIES:
        return  # all of its rules lack a certificate, which was said already
    raise RuleError(f"no rule or family {name!r}; families: {', '.join(FAMILIES)}")
