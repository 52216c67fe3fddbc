"""Sizes, positions and conditions on them, from expressions of Haskell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eqsat_opt.lab.imports.foreign import Unsayable
from eqsat_opt.lab.imports.haskell import HaskellCall, Node
from eqsat_opt.rules.term import Condition, Expr, expr

__all__ = ["conditions", "number"]


def number(node: Node, names: Mapping[str, Expr]) -> Expr:
    """Return the expression of numbers and named ones that Haskell has.

    Raises:
        Unsayable: it has another form.
    """
    if not isinstance(node, HaskellCall):
        raise Unsayable("a number in this form")
    if node.head in names and not node.args:
        return names[node.head]
    if node.head.isdigit():
        return expr(int(node.head))
    match node.head, len(node.args):
        case (("+" | "-" | "*"), 2):
            left, right = (number(one, names) for one in node.args)
            return Expr(node.head, (left, right))
        case "divOr", 3:
            return number(node.args[1], names) // number(node.args[2], names)
        case "negate", 1:
            return 0 - number(node.args[0], names)
    raise Unsayable(f"{node.head} of numbers")


def conditions(node: Node, names: Mapping[str, Expr]) -> Iterator[Condition]:
    """Yield the comparisons that a condition of Haskell joins.

    Raises:
        Unsayable: it has another form, such as alternatives.
    """
    if not isinstance(node, HaskellCall):
        raise Unsayable("a condition in this form")
    if node.head == ".&&":
        for one in node.args:
            yield from conditions(one, names)
        return
    if node.head == ".||":
        raise Unsayable("a condition with alternatives")
    if node.head not in (".==", ".<=", ".>=", ".<", ".>", "./="):
        raise Unsayable(f"the condition {node.head}")
    left, right = (number(one, names) for one in node.args)
    if left.kind == right.kind == "literal":
        return  # one that fixed the map
    match node.head:
        case ".==":
            yield left == right
        case "./=":
            yield left != right
        case ".<=":
            yield left <= right
        case ".<":
            yield left < right
        case ".>=":
            yield right <= left
        case _:
            yield right < left
