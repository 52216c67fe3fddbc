"""Rulebooks of users: Python files and installed packages, through the same gate as the book.

Certificates that come with a rulebook are only claims: see `proving.admission`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from traceback import walk_tb
from types import ModuleType

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Rule, made_in

__all__ = [
    "GROUP",
    "installed_rulebooks",
    "read_installed",
    "read_rulebook",
    "rules_of",
]

GROUP = "eqsat_opt.rulebooks"
"""Entry points of this group name a module with rules, or a list of rules."""
_LOADING = RLock()
"""The lock of loading, as threads that redirect standard output have to restore it in turn."""


def rules_of(module: ModuleType) -> list[Rule]:
    """Return the rules that a module makes, in order, and those that it imports by name."""
    named = [value for value in vars(module).values() if isinstance(value, Rule)]
    return list({id(rule): rule for rule in (*made_in(module), *named)}.values())


def read_rulebook(path: Path) -> list[Rule]:
    """Return the unverified rules of a Python file, whose output goes to standard error.

    Raises:
        RuleError: the file is missing, is not Python, fails when it runs, defines no rule, or
            defines two rules of one name.
    """
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise RuleError(
            f"no rule file {str(path)!r}: {error.strerror}; "
            "give a Python file that defines rules with @rule"
        ) from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line else ""
        raise RuleError(
            f"{path} is not Python: {where}{getattr(error, 'msg', error)}; "
            "give a file that defines rules with @rule"
        ) from error
    module = ModuleType(f"_eqsat_opt_rulebook_{id(path)}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses, for example, look their module up
    try:
        with _LOADING, redirect_stdout(sys.stderr):
            exec(code, vars(module))
    except (Exception, SystemExit) as error:
        frames = walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == code.co_filename]
        raise _failure(str(path), error, f"line {lines[-1]}: ") from error
    finally:
        del sys.modules[module.__name__]
    rules = rules_of(module)
    if not rules:
        raise RuleError(f"{path} defines no rule; decorate a function with @rule")
    _refuse_homonyms(rules, str(path))
    return rules


def _failure(book: str, error: BaseException, where: str = "") -> RuleError:
    if isinstance(error, RuleError):
        return RuleError(f"{book}: {where}{error}")
    return RuleError(
        f"{book} cannot be loaded: {where}{type(error).__name__}: {error}; "
        "correct it, or see all with --debug"
    )


def _refuse_homonyms(rules: Sequence[Rule], book: str) -> None:
    """Refuse two rules of one name, as verdicts and certificates are kept by name."""
    first: dict[str, Rule] = {}
    for rule in rules:
        if first.setdefault(rule.name, rule) is not rule:
            raise RuleError(f"{book} defines rule {rule.name!r} twice; rename one")


def installed_rulebooks() -> tuple[str, ...]:
    """Return the names of the rulebooks that installed packages offer."""
    return tuple(sorted(point.name for point in entry_points(group=GROUP)))


def read_installed(name: str) -> list[Rule]:
    """Return the unverified rules of an installed rulebook; none if there is no such rulebook.

    Raises:
        RuleError: the rulebook cannot be loaded, holds no rule, or holds two rules of one name.
    """
    rules = [rule for point in entry_points(group=GROUP, name=name) for rule in _read(point)]
    _refuse_homonyms(rules, f"rulebook {name!r}")
    return rules


def _read(point: EntryPoint) -> list[Rule]:
    try:
        with _LOADING, redirect_stdout(sys.stderr):
            loaded = point.load()
    except (Exception, SystemExit) as error:
        raise _failure(f"rulebook {point.name!r}", error) from error
    rules = rules_of(loaded) if isinstance(loaded, ModuleType) else loaded
    if not (rules and isinstance(rules, list | tuple) and all(isinstance(r, Rule) for r in rules)):
        raise RuleError(
            f"rulebook {point.name!r} holds no rules; it must name a module of rules or a list"
        )
    return list(rules)
