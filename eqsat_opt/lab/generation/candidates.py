"""Candidates for rules: pairs of equal terms, up to the names of variables, smallest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from eqsat_opt.lab.generation.enumeration import Enumerated, Tree
from eqsat_opt.lab.generation.settings import Setting

__all__ = ["CandidateEquation", "KnownEquations", "candidates", "leaves_of", "operators_in"]


@dataclass(frozen=True)
class CandidateEquation:
    """Two terms that are equal at one point; the left one is no variable and has all variables."""

    left: Tree
    right: Tree | int

    @property
    def size(self) -> int:
        """The number of operators of both sides."""
        return operators_in(self.left) + operators_in(self.right)

    @property
    def reads_both_ways(self) -> bool:
        """Whether the right side could be the left one."""
        return not isinstance(self.right, int) and set(leaves_of(self.left)) == set(
            leaves_of(self.right)
        )


def leaves_of(tree: Tree | int) -> Iterator[int]:
    """Yield the variables of a tree, from left to right."""
    if isinstance(tree, int):
        yield tree
        return
    for operand in tree[1:]:
        yield from leaves_of(operand)


def operators_in(tree: Tree | int) -> int:
    """Return the number of operators of a tree."""
    return 0 if isinstance(tree, int) else 1 + sum(map(operators_in, tree[1:]))


def candidates(found: Enumerated) -> list[CandidateEquation]:
    """Return the pairs of equal terms, each once up to the names of variables.

    A pair with fewer operators comes first, and of equal ones that with more variables, as it is
    the more general.
    """
    kept: dict[CandidateEquation, None] = {}
    for number, other in found.equal:
        left, right = found.tree(number), found.tree(other)
        if isinstance(left, int) or not set(leaves_of(right)) <= set(leaves_of(left)):
            left, right = right, left
        if isinstance(left, int) or not set(leaves_of(right)) <= set(leaves_of(left)):
            continue
        ways = [_named(left, right, found.setting)]
        if ways[0].reads_both_ways:
            ways.append(_named(right, left, found.setting))  # type: ignore[arg-type]
        kept.setdefault(min(ways, key=_order))
    return sorted(kept, key=_order)


def _order(one: CandidateEquation) -> tuple[int, int, int, str, str]:
    variables = len(set(leaves_of(one.left)))
    difference = operators_in(one.right) - operators_in(one.left)
    return one.size, -variables, difference, str(one.left), str(one.right)


def _named(left: Tree, right: Tree | int, setting: Setting) -> CandidateEquation:
    """Return a pair whose variables are the first ones of their shape, in the order of reading."""
    names: dict[int, int] = {}
    of_shape: dict[object, list[int]] = defaultdict(list)
    for number, leaf in enumerate(setting.leaves):
        of_shape[leaf.shape].append(number)
    for one in (*leaves_of(left), *leaves_of(right)):
        if one not in names:
            names[one] = of_shape[setting.leaves[one].shape].pop(0)
    renamed = _renamed(left, names)
    assert isinstance(renamed, tuple)
    return CandidateEquation(renamed, _renamed(right, names))


def _renamed(tree: Tree | int, names: dict[int, int]) -> Tree | int:
    if isinstance(tree, int):
        return names[tree]
    return (tree[0], *(_renamed(one, names) for one in tree[1:]))


class KnownEquations:
    """Equations that are known to hold, with which instances of them are recognised."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, object], list[tuple[Tree | int, Tree | int]]] = defaultdict(
            list
        )

    def add(self, one: CandidateEquation) -> None:
        """Add an equation, to be used in both directions."""
        sides: tuple[Tree | int, Tree | int] = one.left, one.right
        for left, right in (sides, sides[::-1]):
            self._known[_head(left), _head(right)].append((left, right))

    def has(self, one: CandidateEquation) -> bool:
        """Return whether a pair is an instance of a known equation."""
        for left, right in self._known[_head(one.left), _head(one.right)]:
            bound: dict[int, Tree | int] = {}
            if _match(left, one.left, bound) and _match(right, one.right, bound):
                return True
        return False


def _head(tree: Tree | int) -> object:
    return "variable" if isinstance(tree, int) else tree[0]


def _match(pattern: Tree | int, tree: Tree | int, bound: dict[int, Tree | int]) -> bool:
    if isinstance(pattern, int):
        return bound.setdefault(pattern, tree) == tree
    return (
        not isinstance(tree, int)
        and pattern[0] == tree[0]
        and all(_match(p, t, bound) for p, t in zip(pattern[1:], tree[1:], strict=True))
    )
