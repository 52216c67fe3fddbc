"""The rules that are used: certified ones of the book, and those that a selection names.

No rule is in the default set without a valid certificate beside its book.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from eqsat_opt.errors import RuleError, RuleRefuted
from eqsat_opt.proving.admission import admit
from eqsat_opt.proving.certificates.certificate import (
    Certificate,
    certificates_beside,
    read_certificates,
    why_invalid,
)
from eqsat_opt.proving.certificates.semantics import rule_text
from eqsat_opt.proving.rule_sets import COSTS_ONLY, RULE_SETS, book_rules_of, file_rules_of
from eqsat_opt.rules.library import (
    BOOKS,
    FAMILIES,
    book,
    families,
    family_module,
    read_users_rules,
    rulebook_path,
    unknown_rule,
)
from eqsat_opt.rules.rule import Numerics, Phase, Rule, directed
from eqsat_opt.rules.rulebooks import installed_rulebooks
from eqsat_opt.rules.worth import explored

__all__ = [
    "Standing",
    "book_certificates",
    "certificate_path",
    "costs_only",
    "default_rules",
    "excluded_rules",
    "load_rules",
    "notes_on_rules",
    "standings",
]

_TAKEN = (*FAMILIES, *RULE_SETS, "default", "none")
_LOG = logging.getLogger(__name__)
_NOTES: ContextVar[tuple[str, ...]] = ContextVar("notes on the rules loaded last", default=())


@dataclass(frozen=True)
class Standing:
    """The standing of a rule of the book: whether it may be used.

    Attributes:
        rule: rule of the book.
        certificate: certificate beside the book, valid or not.
        obstacle: why the rule is left out of the default set; empty if it is not.
    """

    rule: Rule
    certificate: Certificate | None
    obstacle: str


def certificate_path(family: str) -> Path:
    """Return the file of a family's certificates, where the package is in a folder."""
    return Path(str(family_module(family).__file__)).with_suffix(".json")


def book_certificates(family: str, *, strict: bool = True) -> dict[str, Certificate]:
    """Read the certificates of a family, by rule name.

    Raises:
        CertificateError: a certificate was edited, unless not ``strict``.
    """
    return read_certificates(files(BOOKS) / f"{family}.json", strict=strict)


@cache
def _standings() -> Mapping[str, Standing]:
    result = {}
    for family, rules in families().items():
        certificates = book_certificates(family)
        for rule in rules:
            certificate = certificates.get(rule.name)
            result[rule.name] = Standing(rule, certificate, why_invalid(rule, certificate))
    return {name: _derived(one, result) for name, one in result.items()}


def _derived(one: Standing, known: Mapping[str, Standing]) -> Standing:
    """Return the standing of a derived rule, which is valid only if all its axioms are valid."""
    if one.obstacle or one.certificate is None:
        return one
    for name in one.certificate.axioms:
        axiom = known.get(name)
        if axiom is None or axiom.obstacle or axiom.certificate is None:
            return replace(one, obstacle=f"it is derived from {name}, which is not certified")
    return one


def standings() -> Mapping[str, Standing]:
    """Return the standings of the whole book, by rule name; they are read once per process.

    Raises:
        CertificateError: a certificate was edited.
    """
    return _standings()


@cache
def _warn(obstacles: tuple[tuple[str, str], ...]) -> None:
    for name, obstacle in obstacles:
        _LOG.warning("%s is left out: %s", name, obstacle)


def excluded_rules() -> dict[str, str]:
    """Return the rules of the book without a valid certificate, with the reasons.

    They are logged once as warnings.
    """
    excluded = {name: one.obstacle for name, one in standings().items() if one.obstacle}
    _warn(tuple(excluded.items()))
    return excluded


def _certified() -> list[Rule]:
    excluded = excluded_rules()
    return [explored(one.rule) for name, one in standings().items() if name not in excluded]


def default_rules(numerics: Numerics = Numerics.REASSOCIATE) -> list[Rule]:
    """Return the certified rules of the book that optimise, as far as ``numerics`` admits them.

    A rule whose directions are of different classes may be admitted in one direction only.

    Raises:
        CertificateError: a certificate was edited.
    """
    return _admitted((r for r in _certified() if r.phase is not Phase.DERIVATION), numerics)


def _admitted(rules: Iterable[Rule], numerics: Numerics) -> list[Rule]:
    found = (rule.admitted(numerics) for rule in rules)
    return [rule for rule in found if rule is not None]


@cache
def _refuse_installed(name: str) -> None:
    """Refuse an installed rulebook whose name is taken; packages are searched only once."""
    if name in installed_rulebooks():
        raise RuleError(f"an installed rulebook is called {name!r}, which is taken; uninstall it")


def _selected(name: str, numerics: Numerics) -> list[Rule]:
    path = rulebook_path(name)
    if name in _TAKEN:
        _refuse_installed(name)
    if name == "none":
        return []
    if name == "default":
        return default_rules(numerics)
    if name in RULE_SETS:
        return _of_set(name)
    if name in FAMILIES:
        return _admitted((r for r in _certified() if r.family == name), numerics)
    if path is None and name in standings():
        # A rule that is named without a certificate is verified now, or refused.
        one = standings()[name]
        if one.obstacle:
            admit([one.rule])
        return [explored(one.rule)]
    rules = read_users_rules(name)
    try:
        note = admit(rules, certificates_beside(path) if path else None)
    except RuleRefuted as error:
        raise RuleRefuted(f"{name}: {error}", error.refutation) from error
    if note:
        _NOTES.set((*_NOTES.get(), note))
    return rules


def _of_set(name: str) -> list[Rule]:
    """Return the rules of a published set; a substitution is read from left to right."""
    known = standings()
    own = [known[rule] for rule in book_rules_of(name)]
    if uncertified := [one.rule for one in own if one.obstacle]:
        admit(uncertified)
    if name in COSTS_ONLY:
        note = f"{name} has rules that are wrong, as published; outputs are not compared"
        _NOTES.set((*_NOTES.get(), note))
    return [*(directed([one.rule])[0] for one in own), *file_rules_of(name)]


def _parts(selection: str | Sequence[str]) -> list[str]:
    given = selection.split(",") if isinstance(selection, str) else selection
    return [part.strip() for part in given if part.strip()]


def costs_only(selection: str | Sequence[str]) -> bool:
    """Return whether a selection has wrong rules, whose graphs have costs but no meaning."""
    return not COSTS_ONLY.isdisjoint(_parts(selection))


def load_rules(
    selection: str | Sequence[str], numerics: Numerics, *, for_costs: bool = False
) -> list[Rule]:
    """Load the rules of a selection.

    A part is ``default``, ``none``, a family, a rule, a published set, a .py file or an installed
    rulebook. ``default`` and families bring the rules that ``numerics`` admits, other parts the
    rules that they name. A leading ``-`` leaves a part out. Rules from outside the book are
    verified first.

    Args:
        selection: parts, separated by commas.
        numerics: how far results may move.
        for_costs: whether sets with wrong rules are admitted, whose graphs must not be run.

    Raises:
        RuleError: for an unknown name, a file that cannot be loaded, a rule that is wrong, one name
            defined twice, or an empty selection.
    """
    parts = _parts(selection)
    if not parts:
        raise RuleError("--rules is empty; give none for no rules, default for those of the book")
    if not for_costs and costs_only(parts):
        wrong = next(part for part in parts if part in COSTS_ONLY)
        raise RuleError(
            f"{wrong} has rules that are wrong, so it serves to compare costs only; "
            f"give {wrong.removesuffix('-published')}, or use eqsat-opt compare"
        )
    _NOTES.set(())
    chosen: dict[str, Rule] = {}
    if parts[0].startswith("-"):
        parts = ["default", *parts]
    for part in parts:
        name = part.removeprefix("-")
        if part.startswith("-"):
            _leave_out(name, chosen)
            continue
        found = _selected(name, numerics)
        if not found and name not in _TAKEN:
            raise _no_part(name)
        for rule in found:
            other = chosen.setdefault(rule.base, rule)
            if _is_way_of(other, rule):
                chosen[rule.base] = rule
            elif not _is_way_of(rule, other):
                raise RuleError(f"rule {rule.name!r} is defined twice; rename one")
    return list(chosen.values())


def notes_on_rules() -> tuple[str, ...]:
    """Return notes for the user on the rules that :func:`load_rules` loaded last, a line each."""
    return _NOTES.get()


def _is_way_of(way: Rule, rule: Rule) -> bool:
    """Return whether one rule is the other, or a direction of it."""
    if way is rule:
        return True
    text = rule_text(way)
    return any(text == rule_text(one) for one in (rule, *directed([rule])))


def _leave_out(name: str, chosen: dict[str, Rule]) -> None:
    if name in RULE_SETS:
        for rule in _of_set(name):
            chosen.pop(rule.base, None)
        return
    named = {r.name for r in read_users_rules(name)} if name not in _TAKEN else set()
    dropped = [
        r
        for r in chosen.values()
        if not named.isdisjoint({r.name, r.base}) or name in (r.name, r.base, r.family)
    ]
    if not (dropped or named or name in FAMILIES or name in book()):
        raise _no_part(name)
    for rule in dropped:
        del chosen[rule.base]


def _no_part(name: str) -> RuleError:
    if name.lower().endswith(".pb"):
        return RuleError(f"{name} is not a rulebook; eqsat-opt rules import {name} shows its rules")
    installed = ", ".join(installed_rulebooks())
    rulebook = f", an installed rulebook ({installed})" if installed else ""
    return unknown_rule(
        name,
        f"give default, none, a rule, a FILE.py{rulebook} or a family: {', '.join(FAMILIES)}; or "
        f"a published set: {', '.join(RULE_SETS)}",
    )
