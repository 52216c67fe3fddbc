"""C++ of programs for a processor: loops that compilers vectorise.

Reductions of rows, which run along consecutive elements, keep a partial result for each lane. All
other loops run along the last axis in chunks: a window or a product adds to a chunk of results at a
time, and the borders of a window become bounds of a loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat_opt.ir.ops.index.integers import (
    AllOf,
    Atom,
    Formula,
    NonNegative,
    Poly,
    poly,
    polynomials,
    quotient,
)
from eqsat_opt.runtime.backends.generated.printing import (
    FOLDS,
    REGISTERS,
    STORED,
    block_lines,
    condition,
    index,
    start,
    statement_lines,
)
from eqsat_opt.runtime.backends.generated.program import (
    Block,
    Branch,
    Fold,
    KernelProgram,
    KernelValue,
    Let,
    Loop,
    LoopNest,
    Statement,
    Store,
)

__all__ = ["HostKernel"]

_LANES = 16
"""Number of partial results of a reduction along consecutive elements."""

_CHUNK = 64
"""Number of results that are reduced together."""

_KIND = "Index"


@dataclass(frozen=True)
class HostKernel:
    """A program as a function for plans.

    Attributes:
        program: the program that it computes, with loops ordered for a processor.
    """

    program: KernelProgram

    @cached_property
    def body(self) -> str:
        """Text of the function's body, with the pointers ``in0`` … and ``out0`` …."""
        lines: list[str] = []
        for i, memory in enumerate(self.program.reads):
            kind = STORED[memory.dtype]
            lines.append(f"  const {kind}* __restrict in{i} = static_cast<const {kind}*>(p[{i}]);")
        for i, memory in enumerate(self.program.writes):
            kind, k = STORED[memory.dtype], i + len(self.program.reads)
            lines.append(f"  {kind}* __restrict out{i} = static_cast<{kind}*>(p[{k}]);")
        for nest in self.program.nests:
            lines += ["  {", *_nest(nest), "  }"]
        return "\n".join(lines)

    @cached_property
    def name(self) -> str:
        """Name that equal kernels have in common, and no others."""
        return f"Program_{hashlib.sha256(self.body.encode()).hexdigest()[:20]}"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostKernel) and other.body == self.body


def _nest(nest: LoopNest) -> Iterator[str]:
    indent = "    "
    for loop in nest.rows:
        yield f"{indent}{_for(loop)}"
        indent += "  "
    for one in nest.head:
        if isinstance(one, Fold) and one.loops and not _parts(one.where):
            yield from _lanes(one, indent)
        else:
            yield from statement_lines(one, indent, _KIND, {})
    opened = len(nest.rows)
    for loop in nest.loops[:-1]:
        yield f"{indent}{_for(loop)}"
        indent, opened = indent + "  ", opened + 1
    if nest.loops:
        yield from _chunks(nest.block, nest.loops[-1], indent)
    else:
        yield from block_lines(nest.block, indent, _KIND)
    for k in reversed(range(opened)):
        yield f"    {'  ' * k}}}"


def _for(loop: Loop) -> str:
    name = loop.variable.key
    return f"for ({_KIND} {name} = 0; {name} < {loop.extent}; {name}++) {{"


def _lanes(one: Fold, indent: str) -> Iterator[str]:
    """Print a reduction of a row: its last loop has lanes, which are combined at the end."""
    total, register = f"v{one.result.number}", REGISTERS[one.result.dtype]
    lanes = f"lanes{one.result.number}"
    *outer, last = one.loops
    name, whole = last.variable.key, last.extent // _LANES * _LANES
    yield f"{indent}{register} {lanes}[{_LANES}];"
    yield f"{indent}for (int l = 0; l < {_LANES}; l++)"
    yield f"{indent}  {lanes}[l] = {start(one.kind, one.result.dtype)};"
    inner = indent
    for loop in outer:
        yield f"{inner}{_for(loop)}"
        inner += "  "
    added = f"{lanes}[l] = {FOLDS[one.kind]}({lanes}[l], v{one.value.number});"
    if whole:
        yield f"{inner}for ({_KIND} k = 0; k < {whole}; k += {_LANES}) {{"
        yield "#pragma GCC ivdep"
        yield f"{inner}  for (int l = 0; l < {_LANES}; l++) {{"
        yield f"{inner}    const {_KIND} {name} = k + l;"
        yield from block_lines(one.block, inner + "    ", _KIND)
        yield f"{inner}    {added}"
        yield f"{inner}  }}"
        yield f"{inner}}}"
    if whole < last.extent:
        yield f"{inner}for (int l = 0; l < {last.extent - whole}; l++) {{"
        yield f"{inner}  const {_KIND} {name} = {whole} + l;"
        yield from block_lines(one.block, inner + "  ", _KIND)
        yield f"{inner}  {added}"
        yield f"{inner}}}"
    for k in reversed(range(len(outer))):
        yield f"{indent}{'  ' * k}}}"
    yield f"{indent}{register} {total} = {lanes}[0];"
    yield f"{indent}for (int l = 1; l < {_LANES}; l++)"
    yield f"{indent}  {total} = {FOLDS[one.kind]}({total}, {lanes}[l]);"


def _chunks(block: Block, loop: Loop, indent: str) -> Iterator[str]:
    """Print the last loop, in chunks if its block has a reduction."""
    name = loop.variable.key
    folds = [one for one in block if isinstance(one, Fold)]
    if not folds:
        yield "#pragma GCC ivdep"
        yield f"{indent}{_for(loop)}"
        yield from block_lines(block, indent + "  ", _KIND)
        yield f"{indent}}}"
        return
    groups = _groups(block)
    kept = _kept(groups)
    for value in kept.values():
        yield f"{indent}{REGISTERS[value.dtype]} kept{value.number}[{_CHUNK}];"
    yield f"{indent}for ({_KIND} begin = 0; begin < {loop.extent}; begin += {_CHUNK}) {{"
    inner = indent + "  "
    yield f"{inner}const {_KIND} rest = {loop.extent} - begin;"
    yield f"{inner}const {_KIND} end = begin + (rest < {_CHUNK} ? rest : {_CHUNK});"
    for group in groups:
        if isinstance(group[0], Fold):
            yield from _chunk_fold(group[0], loop, kept, inner)
        else:
            yield "#pragma GCC ivdep"
            yield f"{inner}for ({_KIND} {name} = begin; {name} < end; {name}++) {{"
            yield from _reloaded(group, kept, name, inner + "  ")
            yield from block_lines(tuple(group), inner + "  ", _KIND)
            for number in kept.keys() & _made(group).keys():
                yield f"{inner}  kept{number}[{name} - begin] = v{number};"
            yield f"{inner}}}"
    yield f"{indent}}}"


def _groups(block: Block) -> list[list[Statement]]:
    """Group statements in order; each reduction is a group of its own."""
    groups: list[list[Statement]] = []
    for one in block:
        if isinstance(one, Fold) or not groups or isinstance(groups[-1][0], Fold):
            groups.append([])
        groups[-1].append(one)
    return groups


def _kept(groups: Sequence[Sequence[Statement]]) -> Mapping[int, KernelValue]:
    """Return the registers that a later loop over the chunk needs, and results of reductions."""
    made: dict[int, KernelValue] = {}
    kept: dict[int, KernelValue] = {}
    for group in groups:
        own = _made(group)
        kept.update((n, made[n]) for n in _used(group) if n in made and n not in own)
        kept.update(own if isinstance(group[0], Fold) else {})
        made.update(own)
    return kept


def _made(statements: Sequence[Statement]) -> dict[int, KernelValue]:
    return {one.result.number: one.result for one in statements if not isinstance(one, Store)}


def _used(statements: Sequence[Statement]) -> set[int]:
    """Return the numbers of registers that statements read, those in nested blocks included."""
    found: set[int] = set()
    for one in statements:
        match one:
            case Let():
                found.update(value.number for value in one.operands)
            case Store():
                found |= {one.value.number, *_in_index(one.place)}
            case Fold():
                found |= _used(one.block) | {one.value.number}
                found.update(n for p in polynomials(one.where) for n in _in_index(p))
            case Branch():
                found |= _used(one.then) | _used(one.otherwise)
                found |= {one.then_value.number, one.otherwise_value.number}
                found.update(n for p in polynomials(one.condition) for n in _in_index(p))
            case _:
                place = one.value if not hasattr(one, "place") else one.place
                found.update(_in_index(place))
    return found


def _in_index(place: Poly) -> set[int]:
    return {int(s.key[1:]) for s in place.symbols() if s.key[0] == "v"}


def _reloaded(
    group: Sequence[Statement], kept: Mapping[int, KernelValue], name: str, indent: str
) -> Iterator[str]:
    for number in sorted((_used(group) & kept.keys()) - _made(group).keys()):
        kind = REGISTERS[kept[number].dtype]
        yield f"{indent}const {kind} v{number} = kept{number}[{name} - begin];"


def _chunk_fold(
    one: Fold, loop: Loop, kept: Mapping[int, KernelValue], indent: str
) -> Iterator[str]:
    """Print a reduction for all results of a chunk, with its loops around that over the chunk."""
    name, total = loop.variable.key, f"kept{one.result.number}[{loop.variable.key} - begin]"
    chunk = f"for ({_KIND} {name} = begin; {name} < end; {name}++)"
    yield f"{indent}{chunk} {total} = {start(one.kind, one.result.dtype)};"
    inner = indent
    for around in one.loops:
        yield f"{inner}{_for(around)}"
        inner += "  "
    outside, ends, inside = _ends(one.where, loop.variable)
    opened = len(one.loops)
    if outside:
        yield f"{inner}if ({' && '.join(map(condition, outside))}) {{"
        inner, opened = inner + "  ", opened + 1
    yield f"{inner}{_KIND} first = begin, last = end;"
    for is_first, value in ends:
        text = index(value)
        if is_first:
            yield f"{inner}first = first > {text} ? first : {text};"
        else:
            yield f"{inner}last = last < {text} ? last : {text};"
    yield "#pragma GCC ivdep"
    yield f"{inner}for ({_KIND} {name} = first; {name} < last; {name}++) {{"
    yield from _reloaded([one], kept, name, inner + "  ")
    body = inner + "  "
    if inside:
        yield f"{body}if ({' && '.join(map(condition, inside))}) {{"
        body += "  "
    yield from block_lines(one.block, body, _KIND)
    yield f"{body}{total} = {FOLDS[one.kind]}({total}, v{one.value.number});"
    if inside:
        yield f"{inner}  }}"
    yield f"{inner}}}"
    for k in reversed(range(opened)):
        yield f"{indent}{'  ' * k}}}"


def _parts(formula: Formula) -> tuple[Formula, ...]:
    return formula.parts if isinstance(formula, AllOf) else (formula,)


def _ends(
    where: Formula, variable: Atom
) -> tuple[list[Formula], list[tuple[bool, Poly]], list[Formula]]:
    """Split a condition into parts independent of a loop, bounds of the loop, and other parts.

    From ``c i + r >= 0`` follows ``i >= -floor(r / c)`` for positive c, and for negative c
    ``i < floor(r / -c) + 1``.
    """
    outside, ends, inside = [], [], []
    for part in _parts(where):
        symbols = {s for p in polynomials(part) for s in p.symbols()}
        if variable not in symbols:
            outside.append(part)
            continue
        steps = dict(part.poly.terms) if isinstance(part, NonNegative) else {}
        stride = steps.pop((variable,), 0)
        rest = Poly(tuple((m, c) for m, c in steps.items()))
        if not stride or variable in rest.symbols():
            inside.append(part)
        elif stride > 0:
            ends.append((True, -quotient(rest, poly(stride))))
        else:
            ends.append((False, quotient(rest, poly(-stride)) + 1))
    return outside, ends, inside
