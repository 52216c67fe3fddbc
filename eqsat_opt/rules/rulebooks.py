"""Rulebooks of users: Python files and installed packages, through the same gate as the book.

A rule is verified at level 1 when it is loaded. Its certificate is then kept, beside the file if
`eqsat-opt rules import` wrote it there, otherwise in the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from eqsat_opt.errors import CertificateError, RuleError
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.verify.certificate import (
    Certificate,
    read_certificates,
    why_invalid,
    write_certificates,
)
from eqsat_opt.rules.verify.semantics import fingerprint

__all__ = [
    "GROUP",
    "admit",
    "certificates_beside",
    "installed_rulebooks",
    "load_installed",
    "read_rulebook",
    "rules_of",
]

GROUP = "eqsat_opt.rulebooks"
"""Entry points of this group name a module with rules, or a list of rules."""
_CACHE_VARIABLE = "EQSAT_OPT_CACHE"


def rules_of(module: ModuleType) -> list[Rule]:
    """The rules that a module defines, in order."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]


def read_rulebook(path: Path) -> list[Rule]:
    """The rules of a Python file, not verified yet.

    Raises:
        RuleError: it is missing, no Python, fails when it is run, defines no rule, or two of
            one name.
    """
    spec = importlib.util.spec_from_file_location(f"eqsat_opt_rulebook_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RuleError(
            f"no rule file {str(path)!r}; give a Python file that defines rules with @rule"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except RuleError as error:
        raise RuleError(f"{path}: {error}") from error
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise RuleError(
            f"{path} is no Python: {where}{error.msg}; give a file that defines rules with @rule"
        ) from error
    except (Exception, SystemExit) as error:
        raise RuleError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    rules = rules_of(module)
    if not rules:
        raise RuleError(f"{path} defines no rule; decorate a function with @rule")
    _refuse_homonyms(rules, path)
    return rules


def _refuse_homonyms(rules: Sequence[Rule], path: Path) -> None:
    """Verdicts and certificates are kept by name, so two rules must not share one."""
    first: dict[str, Rule] = {}
    for rule in rules:
        if first.setdefault(rule.name, rule) is not rule:
            raise RuleError(f"{path} defines rule {rule.name!r} twice; rename one")


def certificates_beside(path: Path) -> Path:
    """Where the certificates of a rulebook file are kept."""
    return path.with_name(f"{path.stem}.certificates.json")


def installed_rulebooks() -> tuple[str, ...]:
    """Names of the rulebooks that installed packages offer."""
    return tuple(sorted(point.name for point in entry_points(group=GROUP)))


def load_installed(name: str) -> list[Rule]:
    """The verified rules of an installed rulebook; none if there is no such rulebook.

    Raises:
        RuleError: it cannot be loaded, or a rule is wrong.
    """
    return [rule for point in entry_points(group=GROUP, name=name) for rule in _load(point)]


def _load(point: EntryPoint) -> list[Rule]:
    try:
        loaded = point.load()
    except RuleError:
        raise
    except Exception as error:
        raise RuleError(f"rulebook {point.name!r} cannot be loaded: {error}") from error
    rules = rules_of(loaded) if isinstance(loaded, ModuleType) else list(loaded)
    if not rules or not all(isinstance(rule, Rule) for rule in rules):
        raise RuleError(f"rulebook {point.name!r} holds no rules; it must name a module of rules")
    return admit(rules)


def admit(rules: Sequence[Rule], beside: Path | None = None) -> list[Rule]:
    """``rules`` if each of them has a valid certificate or earns one of level 1 now.

    Args:
        rules: of one rulebook.
        beside: file of certificates to look into first.

    Raises:
        RuleRefuted: a rule is wrong or could not be verified; none is admitted.
        CertificateError: a certificate beside the file was edited.
    """
    known = read_certificates(beside) if beside is not None else {}
    for rule in rules:
        certificate = known.get(rule.name)
        if certificate is None or why_invalid(rule, certificate):
            _verify(rule)
    return list(rules)


def _verify(rule: Rule) -> Certificate:
    path = _cached(rule)
    if path is not None:
        for certificate in read_certificates(path, strict=False).values():
            if certificate.rule == rule.name and not why_invalid(rule, certificate):
                return certificate
    from eqsat_opt.errors import RuleRefuted
    from eqsat_opt.rules.verify.gate import certify_exact

    certificate = certify_exact(rule)
    if certificate.level < 1:
        raise RuleRefuted(
            f"rule {rule.name} holds in floating point, but no exact method confirms it; "
            "spell it with functions whose properties the verifier knows"
        )
    if path is not None:
        _store(path, [certificate])
    return certificate


def _cached(rule: Rule) -> Path | None:
    from platformdirs import user_cache_dir

    key = fingerprint(rule)
    folder = os.environ.get(_CACHE_VARIABLE) or user_cache_dir("eqsat-opt", appauthor=False)
    return Path(folder).expanduser() / "certificates" / f"{key}.json" if key else None


def _store(path: Path, certificates: Sequence[Certificate]) -> None:
    try:
        write_certificates(path, certificates)
    except CertificateError:
        return  # the cache saves time and nothing else
