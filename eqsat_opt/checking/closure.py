"""Ground terms and what follows from equations between them: congruence closure, with reasons.

Two terms are equal if equations say so, or if they have one head and equal operands. Reasons are
kept in a forest, from which the equations behind an equality are read (Nieuwenhuis and Oliveras,
Fast congruence closure and extensions, 2007).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

__all__ = ["Closure"]

_Reason = tuple[int, bool] | None
"""The number of an equation, and whether it is read from left to right; ``None`` where operands are
equal."""


class Closure:
    """Terms, each once, and their classes."""

    def __init__(self) -> None:
        self.terms: list[tuple[Hashable, tuple[int, ...], bool]] = []
        self._numbers: dict[Hashable, int] = {}
        self._parent: list[int] = []
        self._members: list[list[int]] = []
        self._readers: list[list[int]] = []
        self._signed: dict[Hashable, int] = {}
        self._edges: list[tuple[int, _Reason] | None] = []

    def add(self, head: Hashable, operands: Sequence[int] = (), *, commutes: bool = False) -> int:
        """Return the number of a term; one that is equal by its operands joins its class.

        Args:
            head: the operator with its attributes.
            operands: numbers of earlier terms.
            commutes: whether the order of the operands does not matter.
        """
        key = head, tuple(operands)
        if key in self._numbers:
            return self._numbers[key]
        number = self._numbers[key] = len(self.terms)
        self.terms.append((head, tuple(operands), commutes))
        self._parent.append(number)
        self._members.append([number])
        self._readers.append([])
        self._edges.append(None)
        for operand in set(map(self.root, operands)):
            self._readers[operand].append(number)
        known = self._signed.setdefault(self._signature(number), number)
        if known != number:
            self._merge([(number, known, None)])
        return number

    def root(self, term: int) -> int:
        """Return the number of the term that represents the class of another."""
        while self._parent[term] != term:
            self._parent[term] = self._parent[self._parent[term]]
            term = self._parent[term]
        return term

    def same(self, left: int, right: int) -> bool:
        """Return whether two terms are equal."""
        return self.root(left) == self.root(right)

    def unite(self, left: int, right: int, equation: int) -> None:
        """Make two terms equal, for the reason of a number."""
        self._merge([(left, right, (equation, True))])

    def reasons(self, left: int, right: int) -> set[tuple[int, bool]]:
        """Return numbers of equations by which one term becomes another one.

        Each comes with whether its left side becomes its right side; it may come with both.

        Raises:
            ValueError: the terms are not equal.
        """
        if not self.same(left, right):
            raise ValueError("the terms are not equal")
        found: set[tuple[int, bool]] = set()
        pending, seen = [(left, right)], {(left, right)}
        while pending:
            for one, other, reason in self._path(*pending.pop()):
                if reason is not None:
                    found.add(reason)
                    continue
                for pair in self._paired(one, other):
                    if pair not in seen:
                        seen.add(pair)
                        pending.append(pair)
        return found

    # Classes --------------------------------------------------------------------------------------

    def _signature(self, term: int) -> Hashable:
        head, operands, commutes = self.terms[term]
        roots = tuple(map(self.root, operands))
        return head, tuple(sorted(roots)) if commutes else roots

    def _merge(self, pending: list[tuple[int, int, _Reason]]) -> None:
        while pending:
            left, right, reason = pending.pop()
            small, large = self.root(left), self.root(right)
            if small == large:
                continue
            if len(self._members[small]) > len(self._members[large]):
                left, right, small, large = right, left, large, small
                reason = _turned(reason)
            self._join(left, right, reason)
            self._parent[small] = large
            self._members[large] += self._members[small]
            for reader in self._readers[small]:
                known = self._signed.setdefault(self._signature(reader), reader)
                if not self.same(known, reader):
                    pending.append((reader, known, None))
            self._readers[large] += self._readers[small]

    # Reasons --------------------------------------------------------------------------------------

    def _join(self, left: int, right: int, reason: _Reason) -> None:
        """Make ``left`` the root of its tree of reasons, and hang that below ``right``."""
        term, above = left, (right, reason)
        while True:
            before, self._edges[term] = self._edges[term], above
            if before is None:
                return
            term, above = before[0], (term, _turned(before[1]))

    def _path(self, left: int, right: int) -> Iterator[tuple[int, int, _Reason]]:
        """Yield the edges of the way from one term to another one of its tree."""
        above = {left: 0}
        for number, (_, term, _) in enumerate(self._upwards(left), 1):
            above[term] = number
        edges = []
        meeting = right
        for edge in self._upwards(right):
            if meeting in above:
                break
            meeting = edge[1]
            edges.append((meeting, edge[0], _turned(edge[2])))
        yield from edges
        for edge in self._upwards(left):
            if edge[0] == meeting:
                return
            yield edge

    def _upwards(self, term: int) -> Iterator[tuple[int, int, _Reason]]:
        while (edge := self._edges[term]) is not None:
            yield term, edge[0], edge[1]
            term = edge[0]

    def _paired(self, one: int, other: int) -> list[tuple[int, int]]:
        """Return the operands that make two terms equal, in pairs."""
        (_, left, commutes), (_, right, _) = self.terms[one], self.terms[other]
        pairs = list(zip(left, right, strict=True))
        if commutes and not all(self.same(*pair) for pair in pairs):
            pairs = list(zip(left, reversed(right), strict=True))
        return [pair for pair in pairs if pair[0] != pair[1]]


def _turned(reason: _Reason) -> _Reason:
    return None if reason is None else (reason[0], not reason[1])
