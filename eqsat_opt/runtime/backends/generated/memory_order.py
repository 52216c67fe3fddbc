"""Loops of kernels in the order of memory, so that neighbouring threads access adjacent elements.

The iterations of a nest are independent. Its loops can therefore be reordered, two loops can be
merged if all addresses depend on them like on one, and a thread can take several iterations of the
last loop, whose elements are read and written together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat_opt.ir.ops.index.integers import Atom, Poly, polynomials
from eqsat_opt.runtime.backends.generated.program import (
    Block,
    Branch,
    Fold,
    IndexValue,
    Let,
    Load,
    Loop,
    LoopNest,
    Schedule,
    Statement,
    Store,
    Tile,
)

__all__ = ["changing_with", "found_tile", "in_memory_order", "steps_of"]

_TILED = 16
"""Least extent of two loops for which a tile pays."""
_MOST_TILES = 4
_COLUMNS = 16
"""Least number of adjacent rows for which neighbouring threads take one row each."""
_MANY_BLOCKS, _LONG = 128, 1024
"""Number of blocks that keeps a GPU busy; length of reductions above which fewer are too slow."""
_LANES = 8, 4, 2
"""Numbers of iterations that a thread may take, best first."""


def found_tile(block: Sequence[Statement], loops: Sequence[Loop]) -> Tile | None:
    """Return two loops by which elements are read and written in different orders, if any."""
    variables = {loop.variable for loop in loops}
    wide = [loop.variable for loop in loops if loop.extent >= _TILED]
    stores = [steps_of(one.place) for one in block if isinstance(one, Store)]
    for write in wide:
        if not all(steps.get(write) == 1 for steps in stores):
            continue
        for read in wide:
            loads = tuple(
                one.result.number
                for one in block
                if isinstance(one, Load)
                and steps_of(one.place).get(read) == 1
                and steps_of(one.place).get(write, 0) > 1
                and one.place.symbols() <= variables  # tiles are loaded before other registers
            )
            if read != write and loads:
                return Tile(read, write, loads[:_MOST_TILES])
    return None


def steps_of(place: Poly) -> Mapping[Atom, int]:
    """Return the stride of each loop in a linear address; empty for any other address."""
    if any(len(m) > 1 or (m and m[0].kind != "symbol") for m, _ in place.terms):
        return {}
    return {m[0]: stride for m, stride in place.terms if m}


def in_memory_order(nest: LoopNest, widest: Callable[[Load | Store], int]) -> LoopNest:
    """Return a nest for many threads with its loops in the order of memory.

    Args:
        nest: a nest with loops in any order.
        widest: returns the number of elements that the alignment of an access's buffer allows to
            read or write at once.
    """
    if nest.schedule == "tile":
        return nest
    stores = [one.place for one in nest.block if isinstance(one, Store)]
    head = tuple(_fold_in_order(one) for one in nest.head)
    loops = _in_order(nest.loops, stores)
    if nest.schedule == "row":
        rows = _in_order(nest.rows, stores)
        schedule: Schedule = "column" if not loops and _are_columns(rows, head) else "row"
        return replace(nest, schedule=schedule, rows=rows, head=head, loops=loops)
    loops, block = _joined(loops, nest.block)
    return replace(nest, loops=loops, block=block, lanes=_lanes(loops, block, widest))


def _in_order(loops: Sequence[Loop], places: Sequence[Poly]) -> tuple[Loop, ...]:
    """Sort loops by their longest strides, the longest first."""
    steps = [steps_of(place) for place in places]

    def longest(loop: Loop) -> int:
        return max((abs(one.get(loop.variable, 0)) for one in steps), default=0)

    return tuple(sorted(loops, key=longest, reverse=True))


def _are_columns(rows: Sequence[Loop], head: Block) -> bool:
    """Return whether adjacent elements belong to consecutive rows, not to one reduction.

    Rows must also be many enough to keep a GPU busy, unless the reductions are short.
    """
    if not rows or rows[-1].extent < _COLUMNS:
        return False
    last, folds = rows[-1].variable, [one for one in head if isinstance(one, Fold)]
    blocks = math.prod(row.extent for row in rows) // _COLUMNS
    if blocks < _MANY_BLOCKS and any(one.size > _LONG for one in folds):
        return False
    steps = [
        steps_of(one.place)
        for fold in folds
        for one in _all(fold.block)
        if isinstance(one, Load) and not one.place.symbols().isdisjoint(_variables(fold))
    ]
    return all(one.get(last) == 1 for one in steps)


def _variables(fold: Fold) -> frozenset[Atom]:
    return frozenset(loop.variable for loop in fold.loops)


def _fold_in_order(one: Statement) -> Statement:
    if not isinstance(one, Fold):
        return one
    places = [inner.place for inner in one.block if isinstance(inner, Load)]
    return replace(one, loops=_in_order(one.loops, places))


def _joined(loops: Sequence[Loop], block: Block) -> tuple[tuple[Loop, ...], Block]:
    """Merge loops where an iteration of the outer one continues where the inner one ended."""
    accesses = [one.place for one in _all(block) if isinstance(one, Load | Store)]
    steps = [found for place in accesses if (found := steps_of(place))]
    fixed = {symbol for place in accesses if not steps_of(place) for symbol in place.symbols()}
    fixed |= _elsewhere(block)
    result: list[Loop] = []
    for outer in reversed(loops):
        inner = result[-1] if result else None
        if (
            inner is not None
            and fixed.isdisjoint((outer.variable, inner.variable))
            and all(
                one.get(outer.variable, 0) == inner.extent * one.get(inner.variable, 0)
                for one in steps
            )
        ):
            result[-1] = Loop(inner.variable, outer.extent * inner.extent)
            block = _without(block, outer.variable)
        else:
            result.append(outer)
    return tuple(reversed(result)), block


def _all(block: Block) -> Iterator[Statement]:
    """Yield the statements of a block, and those nested in them."""
    for one in block:
        yield one
        for inner in _inner(one):
            yield from _all(inner)


def _inner(one: Statement) -> tuple[Block, ...]:
    match one:
        case Fold():
            return (one.block,)
        case Branch():
            return one.then, one.otherwise
    return ()


def _elsewhere(block: Block) -> set[Atom]:
    """Return the variables on which conditions and index values depend."""
    found: set[Atom] = set()
    for one in _all(block):
        match one:
            case IndexValue():
                found.update(one.value.symbols())
            case Branch():
                found.update(s for p in polynomials(one.condition) for s in p.symbols())
            case Fold():
                found.update(s for p in polynomials(one.where) for s in p.symbols())
    return found


def _without(block: Block, variable: Atom) -> Block:
    """Return a block whose addresses no longer depend on a variable."""

    def changed(one: Statement) -> Statement:
        match one:
            case Load() | Store():
                terms = tuple(term for term in one.place.terms if term[0] != (variable,))
                return replace(one, place=Poly(terms))
            case Fold():
                return replace(one, block=_without(one.block, variable))
            case Branch():
                then, otherwise = (_without(arm, variable) for arm in (one.then, one.otherwise))
                return replace(one, then=then, otherwise=otherwise)
        return one

    return tuple(map(changed, block))


def _lanes(loops: Sequence[Loop], block: Block, widest: Callable[[Load | Store], int]) -> int:
    """Return the number of iterations of the last loop that a thread takes.

    It is above 1 only if every access is to adjacent elements, one for each iteration, or to one
    element that all iterations read.
    """
    if not loops or not all(isinstance(one, Let | Load | Store | IndexValue) for one in block):
        return 1
    accesses = [one for one in block if isinstance(one, Load | Store)]
    last = loops[-1]
    changing = changing_with(last.variable, block)

    def is_whole(one: Load | Store, lanes: int) -> bool:
        found = changing & one.place.symbols()
        if isinstance(one, Load) and not found:
            return True
        is_packed = found == {last.variable} and _is_packed(one, last.variable, lanes)
        return is_packed and widest(one) % lanes == 0 < widest(one)

    return next(
        (
            lanes
            for lanes in _LANES
            if last.extent % lanes == 0 and all(is_whole(one, lanes) for one in accesses)
        ),
        1,
    )


def changing_with(variable: Atom, block: Block) -> frozenset[Atom]:
    """Return a loop variable, and the registers of a plain block that depend on it."""
    found = {variable}
    for one in block:
        match one:
            case Let():
                needed = {operand.atom for operand in one.operands}
            case Load():
                needed = set(one.place.symbols())
            case IndexValue():
                needed = set(one.value.symbols())
            case _:
                continue
        if not found.isdisjoint(needed):
            found.add(one.result.atom)
    return frozenset(found)


def _is_packed(one: Load | Store, variable: Atom, lanes: int) -> bool:
    """Return whether the accesses of consecutive iterations form one aligned pack of elements."""
    steps = dict(steps_of(one.place))
    if steps.pop(variable, 0) != 1:
        return False
    return all(n % lanes == 0 for n in (*steps.values(), dict(one.place.terms).get((), 0)))
