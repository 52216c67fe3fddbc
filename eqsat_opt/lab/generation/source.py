"""Rules as the source of a rulebook, which `rules import` reads back as the same rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import indent, wrap

from eqsat_opt.errors import RuleError
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = ["rulebook_source"]

_WIDTH = 96
_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "MatMul": "@"}


def rulebook_source(rules: Sequence[Rule], about: str) -> str:
    """Return the text of a Python file that defines ``rules``.

    Args:
        rules: rules with distinct names.
        about: the first lines of the file, on the origin of the rules.
    """
    bodies = [_rule(one) for one in rules]
    words = set(re.findall(r"\b[A-Za-z]\w*\b", "\n".join(bodies)))
    exported = (
        "Float", "Func", "Int", "Ints", "Numerics", "Phase", "Sides", "Tensor", "Weight",
        "distinct", "far", "follows", "is_float", "near", "ops", "real", "rule", "sqrt",
    )  # fmt: skip
    names = [one for one in exported if one in words]
    text = f"from eqsat_opt.rules import {', '.join(names)}"
    if len(text) > _WIDTH:
        listed = "\n".join(f"    {name}," for name in names)
        text = f"from eqsat_opt.rules import (\n{listed}\n)"
    head = f'"""{about}"""\n\nfrom __future__ import annotations\n\n{text}\n'
    return "\n\n".join([head, *bodies])


def _rule(one: Rule) -> str:
    options = [f'"{one.name}"', f"numerics=Numerics.{one.numerics.name}"]
    options.append(f"phase=Phase.{one.phase.name}")
    if one.bidirectional:
        options.append("bidirectional=True")
    if one.backward is not None:
        options.append(f"backward=Numerics.{one.backward.name}")
    parameters = ", ".join(f"{name}: {kind}" for name, kind in one.kinds)
    name = re.sub(r"\W", "_", one.name.partition("/")[2])
    doc = "\n".join(wrap(one.doc or str(one), _WIDTH - 10, break_on_hyphens=False))
    parts = [_side(one.lhs), _side(one.rhs), *map(_condition, one.when)]
    returned = ",\n".join(parts) + ","
    return (
        f"@rule({', '.join(options)})\n"
        f"def {name}({parameters}) -> Sides:\n"
        f"{indent(_docstring(doc), '    ')}\n"
        f"    return (\n{indent(returned, ' ' * 8)}\n    )\n"
    )


def _docstring(text: str) -> str:
    return f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""'


def _side(roots: tuple[Term, ...]) -> str:
    texts = [_term(one) for one in roots]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _term(term: Term) -> str:
    if isinstance(term, Var):
        return term.name
    assert isinstance(term, Apply)
    args = [_term(one) for one in term.args]
    if term.op in _INFIX:
        return f"({args[0]} {_INFIX[term.op]} {args[1]})"
    if term.op == MAP:
        return f"{_value(term.attrs['f'])}({args[0]})"
    attrs = [f"{name}={_value(value)}" for name, value in term.attrs.items()]
    return f"ops.{term.op}({', '.join((*args, *attrs))})"


def _value(value: AttrPattern) -> str:
    if isinstance(value, tuple):
        inner = ", ".join(map(_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    match value.kind:
        case "literal":
            return repr(value.args[0])
        case "attr":
            return str(value.args[0])
        case "dim":
            return f"{value.args[0]}.dim({_value(value.args[1])})"
        case "rank" | "dtype":
            return f"{value.args[0]}.{value.kind}"
        case "item":
            index = value.args[1]
            return f"{_value(value.args[0])}[{_value(index) if isinstance(index, Expr) else index}]"
        case "sqrt" | "real":
            return f"{value.kind}({_value(value.args[0])})"
    left, right = (_value(one) if isinstance(one, Expr) else repr(one) for one in value.args)
    return f"({left} {value.kind} {right})"


def _condition(one: Condition) -> str:
    match one.kind:
        case "same-shape":
            text = f"{one.args[0]}.shape == {one.args[1]}.shape"
        case "distinct" | "follows":
            text = f"{one.kind}({one.args[0]}, {one.args[1]})"
        case "is-float":
            text = f"is_float({one.args[0]})"
        case "near" | "far":
            text = f"{one.kind}({_value(one.args[0])}, {_value(one.args[1])}, {one.args[2]!r})"
        case "==" | "!=" | "<" | "<=":
            text = f"{_value(one.args[0])} {one.kind} {_value(one.args[1])}"
        case _:
            raise RuleError(f"the condition {one} cannot be written as source")
    return f"({text}).because({one.reason!r})" if one.reason else text
