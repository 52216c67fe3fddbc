"""The rulebook for people: the reader that renders rules as text and Markdown.

``python -m eqsat_opt.proving.describe docs/rulebook.md`` writes the page, which is not part of the
repository; ``docs/rules.md`` explains its words.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.ops import get_op
from eqsat_opt.proving.certificates.certificate import Certificate, Direction
from eqsat_opt.proving.selection import Standing, standings
from eqsat_opt.rules.glossary import (
    CONDITIONS,
    LEVELS,
    NUMERICS,
    OPERANDS,
    OPERATORS,
    PHASES,
    closed_form,
)
from eqsat_opt.rules.library import families
from eqsat_opt.rules.rule import Phase, Rule
from eqsat_opt.rules.term import Condition

__all__ = ["certificate_text", "describe", "equation", "repeated", "rulebook_markdown"]


def equation(rule: Rule) -> str:
    """Return the equation of a rule, one line per root, without its conditions."""
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


def _numerics(rule: Rule, quote: str = "") -> str:
    """Return the class, and that of the right-to-left reading where it is another one."""
    text = f"{quote}{rule.numerics.name.lower()}{quote}"
    if rule.backward is None:
        return text
    return f"{text} forward, {quote}{rule.backward.name.lower()}{quote} backward"


def _condition(condition: Condition) -> str:
    """Return a condition as text, with a target in closed form and the kind of its tolerance."""
    if condition.kind not in ("near", "far"):
        return str(condition)
    left, target, distance = condition.args
    relation = "≈" if condition.kind == "near" else "≉"
    form = closed_form(target.args[0]) if getattr(target, "kind", "") == "literal" else None
    shown = f"{form} = {target}" if form else str(target)
    return f"{left} {relation} {shown} (relative tolerance {distance:.0e})"


def describe(rule: Rule) -> str:
    """Describe a rule as plain text: equation, variables, conditions with reasons, purpose."""
    lines = [rule.name, *(f"    {line}" for line in equation(rule).splitlines())]
    lines.append(f"  for {_variables(rule)}")
    for condition in rule.when:
        reason = f"   ({condition.reason})" if condition.reason else ""
        lines.append(f"  when {_condition(condition)}{reason}")
    lines.append(f"  numerics {_numerics(rule)}, phase {rule.phase}{_subsumes(rule)}")
    return "\n".join([*lines, *(f"  {line}" for line in rule.doc.splitlines())])


def _extent_text(direction: Direction) -> str:
    complete = (
        f"all with extents up to {direction.complete_to}, the rest drawn"
        if direction.complete_to
        else "drawn"
    )
    guarded = f", {direction.guarded} more left to the typing guard" if direction.guarded else ""
    return (
        f"{direction.instances} instances ({complete}, extents up to {direction.largest_extent}"
        f"{guarded})"
    )


def _bound_text(direction: Direction) -> str:
    if direction.log2_bound is None:
        return f"{direction.trials} draws of values each; no bound on a false acceptance"
    return (
        f"a wrong identity passes one with probability at most 2^{direction.log2_bound:.0f} "
        f"(degree {direction.degree}, argument pairs {direction.argument_pairs}, "
        f"p = {direction.prime}, {direction.trials} trials)"
    )


def certificate_text(certificate: Certificate | None, obstacle: str = "") -> str:
    """Describe a certificate as plain text: level, scope, instances, bound, measured errors."""
    if certificate is None:
        return f"  not certified: {obstacle}"
    lines = [f"  level {certificate.level}: {LEVELS[certificate.level]}"]
    if obstacle:
        lines.append(f"  left out of the default set: {obstacle}")
    if certificate.scope:
        lines.append(f"  {certificate.scope}")
    if certificate.unproven:
        lines.append(f"  not proven for all sizes: {certificate.unproven}")
    if rounded := _rounded(certificate):
        lines.append(f"  {rounded}")
    for direction in certificate.directions:
        lines.append(f"  {direction.rule}: {_extent_text(direction)}")
        lines.append(f"    {direction.method}, seed {direction.seed}; {_bound_text(direction)}")
        if direction.reason:
            lines.append(f"    not reassociate: {direction.reason}")
    lines.append(
        f"  worst relative error measured: {certificate.float32:.1e} in float32, "
        f"{certificate.float16:.1e} in float16"
    )
    return "\n".join(lines)


def _certified(standing: Standing) -> str:
    certificate = standing.certificate
    if certificate is None or standing.obstacle:
        return f"not in the default set: {standing.obstacle}"
    proof = f" ({certificate.scope})" if certificate.scope else ""
    reasons = dict.fromkeys(d.reason.rsplit(": ", 1)[-1] for d in certificate.directions)
    kept = "".join(f"; not `reassociate`: {reason}" for reason in reasons if reason)
    return (
        f"level {certificate.level}, {LEVELS[certificate.level]}{proof}; "
        f"{certificate.instances} instances, {'; '.join(certificate.methods)}; "
        f"errors {certificate.float32:.0e} (float32), {certificate.float16:.0e} (float16)"
        f"{'; ' if (rounded := _rounded(certificate)) else ''}{rounded}{kept}"
    )


def _rounded(certificate: Certificate) -> str:
    """Return a note on approximate constants, where the scope of a certificate has none."""
    if not certificate.tolerance or certificate.scope:
        return ""
    return f"constants within {certificate.tolerance:.0e} of their targets are taken for them"


def _markdown(rule: Rule) -> list[str]:
    lines = [f"### `{rule.name}`", "", rule.doc, "", "```text", equation(rule), "```", ""]
    facts = [f"for {_variables(rule)}"]
    for condition in rule.when:
        reason = f": {condition.reason}" if condition.reason else ""
        facts.append(f"when `{_condition(condition)}`{reason}")
    facts.append(f"numerics {_numerics(rule, '`')}, phase `{rule.phase}`{_subsumes(rule)}")
    facts.append(_certified(standings()[rule.name]))
    return [*lines, *(f"- {fact}" for fact in facts), ""]


def _page(family: str) -> str:
    """Return the docstring of the module of a family."""
    return (importlib.import_module(f"eqsat_opt.rules.books.{family}").__doc__ or "").strip()


def _anchor(title: str) -> str:
    """Return the anchor of a heading in a Markdown page."""
    return "".join(c for c in title.lower() if c.isalnum() or c in "-_ ").replace(" ", "-")


def _links(rules: Sequence[Rule]) -> str:
    return " · ".join(
        f"[{rule.name.removeprefix(f'{rule.family}/')}](#{_anchor(rule.name)})" for rule in rules
    )


def _level(rule: Rule) -> int | None:
    """Return the level that counts; ``None`` without a valid certificate."""
    one = standings()[rule.name]
    return None if one.obstacle or one.certificate is None else one.certificate.level


def _contents(book: Mapping[str, Sequence[Rule]]) -> list[str]:
    """Return a table of the families, and the rules that are not proven for all sizes."""
    lines = ["| family | rules | proven or derived | at instances | |", "|---|--:|--:|--:|---|"]
    for family, rules in book.items():
        levels = [_level(rule) or 0 for rule in rules]
        lines.append(
            f"| [{family}](#{_anchor(family)}) | {len(rules)} | {sum(n >= 2 for n in levels)} | "
            f"{sum(n == 1 for n in levels) or ''} | {_page(family).splitlines()[0]} |"
        )
    every = [rule for rules in book.values() for rule in rules]
    levels = [_level(rule) or 0 for rule in every]
    lines.append(
        f"| all | {len(every)} | {sum(n >= 2 for n in levels)} | {sum(n == 1 for n in levels)} | |"
    )
    at_instances = [rule for rule in every if _level(rule) == 1]
    left_out = [rule for rule in every if _level(rule) is None]
    for rules, what in (
        (at_instances, "Not proven for all sizes"),
        (left_out, "Not in the default set"),
    ):
        if rules:
            names = ", ".join(f"[{rule.name}](#{_anchor(rule.name)})" for rule in rules)
            lines += ["", f"{what}: {names}."]
    return lines


def _law(rule: Rule) -> tuple[object, ...]:
    """Return the equation and conditions of a rule with its variables renamed to numbers."""
    numbers = {name: f"v{number}" for number, (name, _) in enumerate(rule.kinds)}
    texts = (*equation(rule).splitlines(), *map(str, rule.when))
    kinds = tuple(kind for _, kind in rule.kinds)
    # A variable may have the name of an attribute, which an equals sign follows.
    return kinds, *(re.sub(r"\b\w+\b(?!=)", lambda m: numbers.get(m[0], m[0]), t) for t in texts)


def repeated(book: Mapping[str, Sequence[Rule]]) -> list[Rule]:
    """Return the recognition rules that repeat an equation of another family for their phase."""
    others = {_law(r) for rules in book.values() for r in rules if r.phase is not Phase.RECOGNISE}
    every = (rule for rules in book.values() for rule in rules)
    return [rule for rule in every if rule.phase is Phase.RECOGNISE and _law(rule) in others]


def _glossary() -> list[str]:
    """Return a table of the operators that ONNX lacks, and one of the words of conditions."""
    lines = ["| operator | is |", "|---|---|"]
    for name, meaning in OPERATORS.items():
        op = get_op(name)
        operands = OPERANDS.get(name, ("x",) * op.arity[0])
        lines.append(f"| `{name}({', '.join((*operands, *op.attrs))})` | {meaning} |")
    lines += ["", "| condition | says |", "|---|---|"]
    return [*lines, *(f"| `{form}` | {meaning} |" for form, meaning in CONDITIONS.items())]


def _preface(book: Mapping[str, Sequence[Rule]]) -> list[str]:
    again = repeated(book)
    links = ", ".join(f"[{rule.name}](#{_anchor(rule.name)})" for rule in again)
    return [
        f"{sum(map(len, book.values()))} rules in {len(book)} families, generated from",
        "`eqsat_opt/rules/books` by `python -m eqsat_opt.proving.describe docs/rulebook.md`.",
        f"Of these, {len(again)} repeat an equation of another family in the phase of recognition:",
        f"{links}.",
        "[Rules of your own](own-rules.md) shows how to write one.",
    ]


def rulebook_markdown() -> str:
    """Return the Markdown page of all families."""
    book = families()
    lines = [
        "# The rulebook",
        "",
        *_preface(book),
        "",
        *_contents(book),
        "",
        "## How to read it",
        "",
        "[The words of rules](rules.md#how-to-read-it) explains equations, levels and scopes. ONNX",
        "does not have these operators:",
        "",
        *_glossary(),
        "",
        "Numerics, each class admitting those before it (`--numerics`;",
        "[what each promises](numerics.md)):",
        "",
        *(f"- `{kind.name.lower()}`: {text}" for kind, text in NUMERICS.items()),
        "",
        "Phases of a saturation round:",
        "",
        *(f"- `{phase}`: {text}" for phase, text in PHASES.items()),
        "",
    ]
    for name, rules in book.items():
        lines += [f"## {name}", "", _page(name), "", _links(rules), ""]
        for rule in rules:
            lines += _markdown(rule)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page to the file that ``arguments``, by default the command line, names."""
    parser = argparse.ArgumentParser("python -m eqsat_opt.proving.describe", description=__doc__)
    parser.add_argument("file", type=Path, help="where to write the page, docs/rulebook.md")
    path: Path = parser.parse_args(arguments).file
    try:
        write_whole(path, rulebook_markdown())
    except EqsatError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
