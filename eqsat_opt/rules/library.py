"""Which rules there are: the families of the book and a user's own rulebooks."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Numerics, Rule

__all__ = ["FAMILIES", "default_rules", "families", "load_rules"]

FAMILIES = (
    "elementwise", "matmul", "conv", "concat", "pool", "lrn", "transpose", "affine", "activation",
    "normalisation", "attention",
)  # fmt: skip
"""Modules of eqsat_opt.rules.books, one per family."""


def _rules_of(module: ModuleType) -> list[Rule]:
    return [value for value in vars(module).values() if isinstance(value, Rule)]


def families() -> dict[str, list[Rule]]:
    """Family name to its rules, in the order of the book."""
    return {
        name: _rules_of(importlib.import_module(f"eqsat_opt.rules.books.{name}"))
        for name in FAMILIES
    }


def default_rules(numerics: Numerics = Numerics.REASSOCIATE) -> list[Rule]:
    """All rules of the book whose numerics class ``numerics`` admits."""
    return [rule for rules in families().values() for rule in rules if rule.numerics <= numerics]


def _load_file(path: Path) -> list[Rule]:
    spec = importlib.util.spec_from_file_location(f"eqsat_opt_rulebook_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RuleError(
            f"no rule file {str(path)!r}; give a Python file that defines rules with @rule"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except RuleError:
        raise
    except Exception as error:
        raise RuleError(f"{path} cannot be loaded: {error}") from error
    rules = _rules_of(module)
    if not rules:
        raise RuleError(f"{path} defines no rule; decorate a function with @rule")
    return rules


def load_rules(selection: str | Sequence[str], numerics: Numerics) -> list[Rule]:
    """Rules by selection.

    A part is ``default``, ``none``, a family, a rule or a .py file; a leading ``-`` leaves it out.

    Raises:
        RuleError: for an unknown name, a file that cannot be loaded, or one name defined twice.
    """
    parts = selection.split(",") if isinstance(selection, str) else list(selection)
    book = {rule.name: rule for rules in families().values() for rule in rules}
    chosen: dict[str, Rule] = {}
    if parts and parts[0].startswith("-"):
        parts = ["default", *parts]
    for part in (p.strip() for p in parts):
        name = part.removeprefix("-")
        if part == "none" or not part:
            continue
        if name.endswith(".py"):
            found = _load_file(Path(name))
        elif name == "default":
            found = default_rules(numerics)
        else:
            found = [rule for rule in book.values() if name in (rule.name, rule.family)]
        if not found:
            raise RuleError(f"no rule or family {name!r}; families: {', '.join(FAMILIES)}")
        for rule in found:
            if part.startswith("-"):
                chosen.pop(rule.name, None)
            elif chosen.get(rule.name, rule) is not rule:
                raise RuleError(f"rule {rule.name!r} is defined twice; rename one")
            else:
                chosen[rule.name] = rule
    return list(chosen.values())
