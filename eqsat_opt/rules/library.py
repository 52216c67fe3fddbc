"""All rules: the families of the book, and rulebooks of users.

:mod:`eqsat_opt.proving.selection` decides which of them are used.
"""

from __future__ import annotations

import importlib
import os
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.rulebooks import (
    installed_rulebooks,
    read_installed,
    read_rulebook,
    rules_of,
)

__all__ = [
    "BOOKS",
    "FAMILIES",
    "book",
    "families",
    "family_module",
    "named_rules",
    "read_users_rules",
    "rulebook_path",
    "unknown_rule",
]

FAMILIES = (
    "elementwise", "matmul", "conv", "form", "concat", "pool", "lrn", "transpose", "reshape",
    "reduction", "softmax", "layernorm", "folding", "affine", "activation", "normalisation",
    "attention", "equations",
)  # fmt: skip
"""Modules of eqsat_opt.rules.books, one per family."""
BOOKS = "eqsat_opt.rules.books"
"""The package of the families."""


def families() -> dict[str, list[Rule]]:
    """Return the rules of each family by its name, in the order of the book, certified or not."""
    return {name: rules_of(family_module(name)) for name in FAMILIES}


def family_module(family: str) -> ModuleType:
    """Return the module of a family of the book."""
    return importlib.import_module(f"{BOOKS}.{family}")


def book() -> dict[str, Rule]:
    """Return all rules of the book by name."""
    return {rule.name: rule for rules in families().values() for rule in rules}


def unknown_rule(name: str, further: str) -> RuleError:
    """Return the error for a name that no rule and no family has."""
    known = (*book(), *FAMILIES, *installed_rulebooks())
    close = get_close_matches(name.removesuffix("-reversed"), known)
    hint = f"did you mean {', '.join(close)}? " if close else ""
    return RuleError(f"no rule or family {name!r}; {hint}{further}")


def named_rules(name: str) -> list[Rule]:
    """Return the rule of the book that has this name, forward or reversed, or those of a family.

    Raises:
        RuleError: neither a rule nor a family has the name.
    """
    found = [
        rule
        for rule in book().values()
        if name in (rule.name, rule.family)
        or (rule.bidirectional and name == f"{rule.name}-reversed")
    ]
    if not found:
        raise unknown_rule(
            name,
            "eqsat-opt rules list names all of the book, eqsat-opt rules import FILE shows others; "
            f"families: {', '.join(FAMILIES)}",
        )
    return found


def rulebook_path(name: str) -> Path | None:
    """Return the file that a part of a selection names, if it names one."""
    return Path(os.path.expanduser(name)) if name.lower().endswith(".py") else None


def read_users_rules(name: str) -> list[Rule]:
    """Return the unverified rules of a .py file or an installed rulebook; none if it is neither.

    Raises:
        RuleError: the rulebook cannot be loaded, or the book has a rule of the same name.
    """
    path, known = rulebook_path(name), book()
    rules = read_rulebook(path) if path else read_installed(name)
    for rule in rules:
        if known.get(rule.name, rule) is not rule:
            raise RuleError(f"{name}: rule {rule.name!r} is in the book already; rename yours")
    return rules
