"""TENSAT's equations: the terms that TASO's generator enumerated, one equation after the other.

An equation is ``term==term``; equations follow each other with or without a separator. They are
made explicit as those of TASO's own file are (:mod:`eqsat_opt.proving.taso`):

* ``conv2d(sh, sw, pad, act, x, w)``: padding 0 is SAME, 1 is VALID; activation 2 is relu. One
  group, except that ``Cpool`` is a kernel with a group for each channel.
* A kernel variable that is enlarged somewhere is 1 x 1, all others are 3 x 3.
* ``poolavg`` divides by the size of its window at the border too, as the equations with ``Cpool``
  presuppose.
* ``smul`` multiplies by a scalar; ``Iconv``, ``Imatmul`` and ``Iewmul`` are neutral operands, whose
  sizes follow from the other operand.
* ``split_0`` and ``split_1`` cut where their operand was concatenated.
* Elementwise operators take operands of equal shape.

An equation is read from left to right, unless only its right side has all variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from eqsat_opt.errors import RuleError
from eqsat_opt.lab.imports.foreign import ForeignRule, Unsayable
from eqsat_opt.rules.extents import extent, seam
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import (
    Condition,
    Expr,
    Term,
    Var,
    applied,
    concat,
    expr,
    is_float,
    ops,
    slice_,
)

__all__ = ["parse_equations", "read_tensat"]

_TOKEN = re.compile(r"\s*(input_\d+|conv2d|[A-Za-z]+(?:_[01])?|\d+|==|=>|[(),])")
_SCALAR = "input_20"
_ELEMENTWISE = frozenset({"Add", "Mul"})
_KERNEL = 3
"""Extent of kernels and windows; TASO's generator has no other."""


class _Call(NamedTuple):
    """An operator applied to operands, or a name without any."""

    head: str
    args: tuple[_Call, ...] = ()

    def __str__(self) -> str:
        return f"{self.head}({', '.join(map(str, self.args))})" if self.args else self.head

    def walk(self) -> Iterator[_Call]:
        yield self
        for arg in self.args:
            yield from arg.walk()


def read_tensat(path: Path) -> tuple[ForeignRule, ...]:
    """Read the equations of a file, each once.

    Raises:
        RuleError: the file is missing, holds no equation or is not intact.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path} cannot be read: {error}; give a file of TENSAT's rules") from error
    return tuple(
        _foreign(number, *sides) for number, sides in enumerate(parse_equations(text), start=1)
    )


# Reading -----------------------------------------------------------------------------------------


def parse_equations(text: str) -> list[tuple[_Call, _Call]]:
    """Return the distinct equations of a text, in order.

    Raises:
        RuleError: it holds no equation, or something that is none.
    """
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _damage(text, at)
        tokens.append((found[1], at))
        at = found.end()
    tokens.append(("", at))
    place = 0

    def take(*wanted: str) -> str:
        nonlocal place
        token, where = tokens[place]
        if wanted and token not in wanted:
            raise _damage(text, where)
        place += 1
        return token

    def call() -> _Call:
        head = take()
        if not re.fullmatch(r"\w+", head):
            raise _damage(text, tokens[place - 1][1])
        if tokens[place][0] != "(":
            return _Call(head)
        take("(")
        args = [call()]
        while take(",", ")") == ",":
            args.append(call())
        return _Call(head, tuple(args))

    found_ones: dict[tuple[_Call, _Call], None] = {}
    while tokens[place][0]:
        left = call()
        take("==")
        found_ones.setdefault((left, call()))
    if not found_ones:
        raise RuleError("a file of TENSAT's rules holds equations term==term; this one has none")
    return list(found_ones)


def _damage(text: str, at: int) -> RuleError:
    near = text[max(0, at - 20) : at + 20].strip()
    return RuleError(
        f"no equation of TENSAT at character {at + 1}, near {near!r}; give the file as published"
    )


def _foreign(number: int, left: _Call, right: _Call) -> ForeignRule:
    name, text = f"tensat/{number}", f"{left} == {right}"
    try:
        return ForeignRule(name, text, _rule(name, left, right))
    except Unsayable as error:
        return ForeignRule(name, text, None, str(error))


# Stating in our terms ----------------------------------------------------------------------------


def _rule(name: str, left: _Call, right: _Call) -> Rule:
    statement = _Statement((left, right))
    if _names(right) - _names(left) or not left.args:
        left, right = right, left
    if _names(right) - _names(left) or not left.args:
        raise Unsayable("a left side with all variables")
    lhs, rhs = statement.term(left), statement.term(right)
    return Rule(
        name=name, lhs=(lhs,), rhs=(rhs,), when=statement.conditions((lhs, rhs)),
        kinds=tuple((one, "Tensor") for one in sorted(lhs.variables())),
        numerics=Numerics.REFACTOR, phase=Phase.EXPLORE, bidirectional=False,
        doc=f"Equation {name.rpartition('/')[2]} of TENSAT's file.",
    )  # fmt: skip


def _names(call: _Call) -> set[str]:
    return {one.head for one in call.walk() if one.head.startswith("input_")}


class _Statement:
    """The ranks and kernels that both sides of an equation settle, and terms made with them."""

    def __init__(self, sides: Sequence[_Call]) -> None:
        self.ranks: dict[str, int] = {}
        self.kernels: dict[str, int] = {}
        self.square: list[Condition] = []
        calls = [one for side in sides for one in side.walk()]
        images = any(one.head in ("conv2d", "poolavg", "poolmax") for one in calls)
        enlarged = {n for one in calls if one.head == "enlarge" for n in _names(one)}
        weights = {n for one in calls if one.head == "conv2d" for n in _names(one.args[5])}
        for one in sorted(set().union(*map(_names, sides))):
            self.ranks[one] = 0 if one == _SCALAR else 4 if images or int(one[6:]) > 6 else 2
            if one in weights | enlarged and one != _SCALAR:
                self.kernels[one] = 1 if one in enlarged else _KERNEL

    def conditions(self, roots: Sequence[Term]) -> tuple[Condition, ...]:
        """Return ranks, extents of kernels, and equal shapes of what is added or multiplied."""
        found = [Var(_plain(one)).rank == rank for one, rank in self.ranks.items()]
        found.append(is_float(Var(_plain(min(self.ranks)))))
        for one, size in self.kernels.items():
            found += [Var(_plain(one)).dim(axis) == size for axis in (2, 3)]
        found += self.square
        scalar = _plain(_SCALAR)
        seen: set[str] = set()
        for term in applied(roots):
            if term.op not in _ELEMENTWISE:
                continue
            pair = sorted(str(one) for one in term.args if isinstance(one, Var))
            if len(pair) == 2 and scalar not in pair and pair[0] != pair[1]:
                condition = Var(pair[0]).shape == Var(pair[1]).shape
                if str(condition) not in seen:
                    seen.add(str(condition))
                    found.append(condition)
        return tuple(found)

    def rank_of(self, call: _Call) -> int:
        return max((self.ranks[one] for one in _names(call)), default=4)

    def term(self, call: _Call, like: Term | None = None, axis: int = 0) -> Term:
        """Return the term of a call; ``like`` gives neutral operands their sizes.

        For ``Iconv`` it is the data that the kernel meets, for the others the operand on the other
        side; ``Imatmul`` has its extent along ``axis``.
        """
        head, args = call
        match head, len(args):
            case _, 0 if head in self.ranks:
                return Var(_plain(head))
            case "matmul", 2:
                sides = self.beside(args, axes=(0, 1))
                return sides[0] @ sides[1]
            case (("ewadd" | "ewmul"), 2):
                sides = self.beside(args, like)
                return sides[0] + sides[1] if head == "ewadd" else sides[0] * sides[1]
            case "smul", 2:
                return self.term(args[0], like, axis) * self.term(args[1])
            case "relu", 1:
                return ops.Relu(self.term(args[0], like))
            case "transpose", 1 if self.rank_of(args[0]) == 2:
                return ops.Transpose(self.term(args[0]), perm=(1, 0))
            case "concat", 3:
                along = int(args[0].head)
                x, y = (self.term(one, None if along else like) for one in args[1:])
                return concat(x, y, along)
            case (("split_0" | "split_1"), 2):
                return self.part(self.term(args[1]), int(args[0].head), first=head[-1] == "0")
            case (("poolavg" | "poolmax"), 6) if [one.head for one in args[:5]] == [*"33110"]:
                return _pool(head, self.term(args[5], like))
            case "enlarge", 3 if [one.head for one in args[:2]] == [*"33"]:
                return ops.Pad(self.term(args[2], like), pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
            case "conv2d", 6 if [one.head for one in args[:3]] == [*"110"]:
                return self.convolution(args)
            case "Iconv", 2 if like is not None:
                return ops.IdentityKernel(
                    channels=extent(like, 1), height=_KERNEL, width=_KERNEL, dtype=_dtype(like)
                )
            case "Imatmul", 0 if like is not None:
                size = extent(like, axis)
                one = ops.IdentityKernel(channels=size, height=1, width=1, dtype=_dtype(like))
                return ops.Reshape(one, shape=(size, size))
            case "Iewmul", 0 if like is not None:
                rank = max(self.ranks[f"input_{one[1:]}"] for one in like.variables())
                shape = tuple(extent(like, axis) for axis in range(rank))
                return ops.Fill(shape=shape, value=1.0, dtype=_dtype(like))
        raise Unsayable(f"{head} of {len(args)} operands as in {call}")

    def beside(
        self, args: Sequence[_Call], like: Term | None = None, axes: tuple[int, int] | None = None
    ) -> list[Term]:
        """Return two operands, of which a neutral one takes its sizes from the other.

        Args:
            args: the operands.
            like: the value that a neutral operand takes its sizes from if both are neutral.
            axes: the axes of the left and right operand that a neutral one meets, in a product of
                matrices; one that is added to a matrix makes this a square one.
        """
        made = [None if _is_neutral(one) else self.term(one, like) for one in args]
        sides = []
        for own, call, other, axis in zip(made, args, made[::-1], axes or (0, 0), strict=True):
            if own is None and axes is None and call.head == "Imatmul" and other is not None:
                self.square.append(extent(other, 0) == extent(other, 1))
            sides.append(self.term(call, other or like, axis) if own is None else own)
        return sides

    def convolution(self, args: Sequence[_Call]) -> Term:
        x = self.term(args[4])
        depthwise = any(one.head == "Cpool" for one in args[5].walk())
        w = self.depthwise(args[5], x) if depthwise else self.term(args[5], x)
        group = extent(x, 1) if depthwise else expr(1)
        pad = (self.kernel(args[5]) - 1) // 2
        made = ops.Conv(x, w, strides=(1, 1), pads=(pad,) * 4, dilations=(1, 1), group=group)
        if args[3].head not in ("0", "2"):
            raise Unsayable(f"activation {args[3].head} of a convolution")
        return ops.Relu(made) if args[3].head == "2" else made

    def depthwise(self, call: _Call, x: Term) -> Term:
        """Return a kernel made of ``Cpool``: the mean of a window, for each channel."""
        if call.head == "Cpool" and [one.head for one in call.args] == [*"33"]:
            shape = (extent(x, 1), 1, _KERNEL, _KERNEL)
            number = ops.Scalar(value=float(_KERNEL**2), dtype=_dtype(x))
            return ops.Fill(shape=shape, value=1.0, dtype=_dtype(x)) / number
        if call.head == "smul":
            return self.depthwise(call.args[0], x) * self.term(call.args[1])
        raise Unsayable(f"Cpool as in {call}")

    def kernel(self, call: _Call) -> int:
        """Return the extent of the kernels that a call makes."""
        match call.head:
            case "enlarge" | "Iconv" | "Cpool":
                return _KERNEL
            case "conv2d":
                return self.kernel(call.args[4])
            case "poolavg" | "poolmax":
                return self.kernel(call.args[5])
            case "concat" | "split_0" | "split_1":
                return self.kernel(call.args[1])
        return self.kernels[call.head] if not call.args else self.kernel(call.args[0])

    def part(self, whole: Term, axis: int, *, first: bool) -> Term:
        try:
            cut = seam(whole, axis)
        except RuleError as error:
            raise Unsayable(str(error)) from error
        return (
            slice_(whole, axis, 0, cut) if first else slice_(whole, axis, cut, extent(whole, axis))
        )


def _plain(name: str) -> str:
    return f"v{name.removeprefix('input_')}"


def _is_neutral(call: _Call) -> bool:
    """Return whether a call is a neutral operand, scaled or not."""
    inner = call.args[0] if call.head == "smul" else call
    return inner.head in ("Iconv", "Imatmul", "Iewmul")


def _pool(head: str, x: Term) -> Term:
    window = {
        "kernel": (_KERNEL, _KERNEL), "strides": (1, 1), "pads": (1, 1, 1, 1),
        "dilations": (1, 1), "ceil": 0,
    }  # fmt: skip
    if head == "poolmax":
        return ops.MaxPool(x, **window)
    return ops.AveragePool(x, **window, count_include_pad=1)


def _dtype(term: Term) -> Expr:
    return next(one.dtype for one in term.walk() if isinstance(one, Var))
