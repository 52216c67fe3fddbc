"""The rulebook for people: the reader that renders rules as text and Markdown.

``python -m eqsat_opt.rules.describe docs/rulebook.md`` writes the page; a test keeps it up to date.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from eqsat_opt.rules.library import families
from eqsat_opt.rules.rule import Numerics, Phase, Rule

__all__ = ["describe", "equation", "rulebook_markdown"]

_NUMERICS = {
    Numerics.BITEXACT: "every element is computed by the same operations in the same order",
    Numerics.REASSOCIATE: "sums and products are taken in another order",
    Numerics.REFACTOR: "weights are recomputed, so they are rounded once more",
    Numerics.RELAXED: "special values (NaN, infinities, the sign of zero) may differ",
}
_PHASES = {
    Phase.RECOGNISE: "alone and first, on cut-out parts of the graph: brings every spelling of a "
    "fused operator to one form and names it",
    Phase.SIMPLIFY: "makes graphs smaller",
    Phase.EXPLORE: "opens alternatives",
    Phase.SIBLINGS: "merges operators that lie side by side, in one fixed order",
    Phase.ALGEBRA: "associativity and its kin, for few rounds only, because they never saturate",
}


def equation(rule: Rule) -> str:
    """The equation, one line per root, conditions left out."""
    arrow = "=" if rule.bidirectional else "=>"
    return "\n".join(
        f"{left} {arrow} {right}" for left, right in zip(rule.lhs, rule.rhs, strict=True)
    )


def _variables(rule: Rule) -> str:
    by_kind: dict[str, list[str]] = {}
    for name, kind in rule.kinds:
        by_kind.setdefault(kind, []).append(name)
    return ", ".join(f"{' '.join(names)}: {kind}" for kind, names in by_kind.items())


def _subsumes(rule: Rule) -> str:
    return ", replaces its left side" if rule.subsumes else ""


def describe(rule: Rule) -> str:
    """A rule as plain text: equation, variables, conditions with their reasons, purpose."""
    lines = [rule.name, *(f"    {line}" for line in equation(rule).splitlines())]
    lines.append(f"  for {_variables(rule)}")
    for condition in rule.when:
        reason = f"   ({condition.reason})" if condition.reason else ""
        lines.append(f"  when {condition}{reason}")
    lines.append(f"  numerics {rule.numerics.name.lower()}, phase {rule.phase}{_subsumes(rule)}")
    return "\n".join([*lines, *(f"  {line}" for line in rule.doc.splitlines())])


def _markdown(rule: Rule) -> list[str]:
    lines = [f"### `{rule.name}`", "", rule.doc, "", "```text", equation(rule), "```", ""]
    facts = [f"for {_variables(rule)}"]
    for condition in rule.when:
        reason = f": {condition.reason}" if condition.reason else ""
        facts.append(f"when `{condition}`{reason}")
    facts.append(
        f"numerics `{rule.numerics.name.lower()}`, phase `{rule.phase}`{_subsumes(rule)}"
    )
    return [*lines, *(f"- {fact}" for fact in facts), ""]


def rulebook_markdown() -> str:
    """The page of all families."""
    book = families()
    count = sum(len(rules) for rules in book.values())
    lines = [
        "# The rulebook",
        "",
        f"{count} equations in {len(book)} families, generated from `eqsat_opt/rules/books` by",
        "`python -m eqsat_opt.rules.describe docs/rulebook.md`. `=` is read both ways, `=>` from",
        "left to right. Variables are tensors; a `Weight` is known at compile time, a `Func` is",
        "any elementwise function of one argument. Lines of one equation are replaced together.",
        "Beyond the conditions listed, both sides must be well typed and of equal type.",
        "",
        "Numerics, each class admitting those before it (`--numerics`):",
        "",
        *(f"- `{kind.name.lower()}`: {text}" for kind, text in _NUMERICS.items()),
        "",
        "Phases of a saturation round:",
        "",
        *(f"- `{phase}`: {text}" for phase, text in _PHASES.items()),
        "",
    ]
    for name, rules in book.items():
        module = importlib.import_module(f"eqsat_opt.rules.books.{name}")
        lines += [f"## {name}", "", (module.__doc__ or "").strip(), ""]
        for rule in rules:
            lines += _markdown(rule)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write the page to the given file."""
    path = Path(*arguments)
    temporary = path.with_suffix(".new")
    temporary.write_text(rulebook_markdown(), encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    main(sys.argv[1:])
