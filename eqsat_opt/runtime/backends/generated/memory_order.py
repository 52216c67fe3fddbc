"""Loops of kernels in the order of memory: neighbouring threads touch neighbouring elements.

No iteration of a nest needs another one, so its loops can stand in any order, two be one where no
address tells them apart, and a thread take several iterations of the last one: their elements are
read and written together.
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
    Let,
    Load,
    Loop,
    LoopNest,
    Schedule,
    Statement,
    Store,
    Tile,
    Whole,
)

__all__ = ["changing_with", "found_tile", "in_memory_order", "steps_of"]

_TILED = 16
"""Iterations from which on two loops are worth a tile."""
_MOST_TILES = 4
_COLUMNS = 16
"""Rows side by side from which on neighbouring threads take one each."""
_MANY_BLOCKS, _LONG = 128, 1024
"""Blocks that keep a GPU busy; iterations that are too many for the threads of fewer blocks."""
_LANES = 8, 4, 2
"""How many iterations a thread may take."""


def found_tile(block: Sequence[Statement], loops: Sequence[Loop]) -> Tile | None:
    """The loops by which elements are read in another order than they are written, if they are."""
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
                and one.place.symbols() <= variables  # tiles are read before all else is known
            )
            if read != write and loads:
                return Tile(read, write, loads[:_MOST_TILES])
    return None


def steps_of(place: Poly) -> Mapping[Atom, int]:
    """The stride of each loop in an address that is a sum of them; else none."""
    if any(len(m) > 1 or (m and m[0].kind != "symbol") for m, _ in place.terms):
        return {}
    return {m[0]: stride for m, stride in place.terms if m}


def in_memory_order(nest: LoopNest, widest: Callable[[Load | Store], int]) -> LoopNest:
    """A nest for many threads with its loops as memory is laid out.

    Args:
        nest: in any order.
        widest: how many elements can be read or written at once where an access begins.
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
    """Loops of the longest steps first."""
    steps = [steps_of(place) for place in places]

    def longest(loop: Loop) -> int:
        return max((abs(one.get(loop.variable, 0)) for one in steps), default=0)

    return tuple(sorted(loops, key=longest, reverse=True))


def _are_columns(rows: Sequence[Loop], head: Block) -> bool:
    """Whether what lies side by side is not what is reduced, but the next row."""
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
    """Loops of which the inner one goes on where the next iteration of the outer one begins."""
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
    """The statements of a block, and those within them."""
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
    """What conditions and numbers depend on."""
    found: set[Atom] = set()
    for one in _all(block):
        match one:
            case Whole():
                found.update(one.value.symbols())
            case Branch():
                found.update(s for p in polynomials(one.condition) for s in p.symbols())
            case Fold():
                found.update(s for p in polynomials(one.where) for s in p.symbols())
    return found


def _without(block: Block, variable: Atom) -> Block:
    """A block whose addresses do not depend on a variable any more."""

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
    """How many iterations of the last loop a thread takes.

    Several only where each element needs nothing but elements at the same place, or those that all
    of them need: then every access is one of several elements, or the same for all.
    """
    if not loops or not all(isinstance(one, Let | Load | Store | Whole) for one in block):
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
    """A loop, and the registers of a block of plain statements that it changes."""
    found = {variable}
    for one in block:
        match one:
            case Let():
                needed = {operand.atom for operand in one.operands}
            case Load():
                needed = set(one.place.symbols())
            case Whole():
                needed = set(one.value.symbols())
            case _:
                continue
        if not found.isdisjoint(needed):
            found.add(one.result.atom)
    return frozenset(found)


def _is_packed(one: Load | Store, variable: Atom, lanes: int) -> bool:
    """Whether accesses of some iterations in a row are to one pack of as many elements."""
    steps = dict(steps_of(one.place))
    if steps.pop(variable, 0) != 1:
        return False
    return all(n % lanes == 0 for n in (*steps.values(), dict(one.place.terms).get((), 0)))
