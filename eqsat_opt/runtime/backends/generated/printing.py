"""Registers, indices and blocks as C++, the same for a processor and for a GPU.

Only numbers and known names of a kernel enter the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from eqsat_opt.ir.ops.index.integers import AllOf, AnyOf, Atom, Formula, IsZero, NonNegative, Poly
from eqsat_opt.runtime.backends.generated.kernel import NUMBER
from eqsat_opt.runtime.backends.generated.program import (
    Block,
    Branch,
    Fold,
    FoldKind,
    IndexValue,
    Let,
    Load,
    Loop,
    Statement,
    Store,
)

__all__ = [
    "FOLDS",
    "REGISTERS",
    "STORED",
    "block_lines",
    "called",
    "condition",
    "decomposed",
    "index",
    "literal",
    "start",
]

REGISTERS: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "float16": "float",
    "bfloat16": "float",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "Index",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "Wide",
    "bool": "bool",
    "index": "Index",
}
"""Type of a register by element type; ``index`` is the type of index values."""

STORED: Mapping[str, str] = {**REGISTERS, "float16": "Half", "bfloat16": "Brain"}
"""Type of an element in memory by element type."""

FOLDS: Mapping[FoldKind, str] = {"sum": "Add", "product": "Mul", "max": "Max", "min": "Min"}
"""Function of two registers that a reduction repeats, by kind."""

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "index": 64}
_UNSIGNED_BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}


def literal(value: float, dtype: str = "float32") -> str:
    """Print a number of an element type."""
    kind = REGISTERS[dtype]
    if kind not in ("float", "double"):
        whole = int(value)
        if whole <= -(2**63):
            return f"static_cast<{kind}>(1ull << 63)"
        return f"static_cast<{kind}>({whole}{'ull' if whole >= 2**63 else 'll'})"
    if math.isnan(value):
        text = "from_bits(0x7fc00000u)"
    elif math.isinf(value):
        text = f"from_bits(0x{'ff' if value < 0 else '7f'}800000u)"
    elif kind == "float":
        return f"{value.hex()}f"
    else:
        return value.hex()
    return text if kind == "float" else f"static_cast<double>({text})"


def start(kind: FoldKind, dtype: str) -> str:
    """Print the initial value of a reduction; for a maximum, the least value of the type."""
    if kind in ("sum", "product"):
        return literal(float(kind == "product"), dtype)
    if dtype in _BITS:
        edge = 2 ** (_BITS[dtype] - 1)
        return _whole(-edge if kind == "max" else edge - 1, REGISTERS[dtype])
    if dtype in _UNSIGNED_BITS:
        return _whole(0 if kind == "max" else 2 ** _UNSIGNED_BITS[dtype] - 1, REGISTERS[dtype])
    return literal(-math.inf if kind == "max" else math.inf, dtype)


def _whole(value: int, kind: str) -> str:
    return f"static_cast<{kind}>({value % 2**64}ull)"


def called(
    function: str, operands: Sequence[int], numbers: Sequence[float], dtype: str = "float32"
) -> str:
    """Print the call of a function on registers and attributes."""
    arguments = [f"v{operand}" for operand in operands]
    arguments += [literal(number, dtype) for number in numbers]
    return f"{function}({', '.join(arguments)})"


def index(value: Poly) -> str:
    """Print a polynomial over loops and registers."""
    parts = []
    for monomial, coefficient in value.terms:
        factors = [_atom(part) for part in monomial]
        if coefficient != 1 or not factors:
            factors.append(str(coefficient))
        parts.append(" * ".join(factors))
    return " + ".join(parts) or "0"


def _atom(part: Atom) -> str:
    if part.kind == "symbol":
        return part.key
    if part.kind == "quotient":
        above, below = part.args
        if below.constant is None:
            raise ValueError(f"a quotient by {below}")
        return f"floor_div({index(above)}, {below.constant})"
    if part.kind == "choose":
        formula, then, otherwise = part.args
        return f"({condition(formula)} ? {index(then)} : {index(otherwise)})"
    raise ValueError(f"{part} is no index of literal sizes")


def condition(formula: Formula) -> str:
    """Print a formula as an expression."""
    match formula:
        case NonNegative(p):
            return f"({index(p)} >= 0)"
        case IsZero(p):
            return f"({index(p)} == 0)"
        case AllOf(parts):
            return f"({' && '.join(map(condition, parts)) or 'true'})"
        case AnyOf(parts):
            return f"({' || '.join(map(condition, parts)) or 'false'})"


def decomposed(flat: str, loops: Sequence[Loop], kind: str, indent: str) -> Iterator[str]:
    """Print the variables of loops, computed from the flat index ``flat``; the last is fastest."""
    left = flat
    for k, loop in reversed(list(enumerate(loops))):
        value = left if k == 0 else f"{left} % {loop.extent}"
        yield f"{indent}const {kind} {loop.variable.key} = {value};"
        if k:
            yield f"{indent}const {kind} {flat}_{k} = {left} / {loop.extent};"
            left = f"{flat}_{k}"


def block_lines(
    block: Block, indent: str, kind: str, loaded: Mapping[int, str] | None = None
) -> Iterator[str]:
    """Print the statements of a block.

    Args:
        block: a block; its reductions become loops.
        indent: indentation of each line.
        kind: the type of indices.
        loaded: expressions by register, for loads whose values are held elsewhere than in memory.
    """
    for one in block:
        yield from statement_lines(one, indent, kind, loaded or {})


def statement_lines(
    one: Statement, indent: str, kind: str, loaded: Mapping[int, str]
) -> Iterator[str]:
    """Print one statement."""
    match one:
        case Store():
            yield f"{indent}store(out{one.buffer} + ({index(one.place)}), v{one.value.number});"
            return
        case Let():
            text = _function(one)
        case IndexValue():
            text = index(one.value)
        case Load():
            text = loaded.get(one.result.number, f"load(in{one.buffer} + ({index(one.place)}))")
        case Branch() | Fold():
            register = REGISTERS[one.result.dtype]
            begin = f" = {start(one.kind, one.result.dtype)}" if isinstance(one, Fold) else ""
            yield f"{indent}{register} v{one.result.number}{begin};"
            inner = (
                _branch(one, indent, kind) if isinstance(one, Branch) else _fold(one, indent, kind)
            )
            yield from inner
            return
    yield f"{indent}const {REGISTERS[one.result.dtype]} v{one.result.number} = {text};"


def _function(one: Let) -> str:
    operands = [value.number for value in one.operands]
    dtype = one.operands[0].dtype if one.operands else one.result.dtype
    if one.function == NUMBER:
        return literal(one.numbers[0], dtype)
    if one.function == "Cast":
        return f"Cast<{REGISTERS[one.result.dtype]}>(v{operands[0]})"
    return called(one.function, operands, one.numbers, dtype)


def _branch(one: Branch, indent: str, kind: str) -> Iterator[str]:
    for opening, arm, value in (
        (f"if ({condition(one.condition)}) {{", one.then, one.then_value),
        ("} else {", one.otherwise, one.otherwise_value),
    ):
        yield f"{indent}{opening}"
        yield from block_lines(arm, indent + "  ", kind)
        yield f"{indent}  v{one.result.number} = v{value.number};"
    yield f"{indent}}}"


def _fold(one: Fold, indent: str, kind: str) -> Iterator[str]:
    inner = indent
    for loop in one.loops:
        name = loop.variable.key
        yield f"{inner}for ({kind} {name} = 0; {name} < {loop.extent}; {name}++) {{"
        inner += "  "
    yield from fold_step(one, inner, kind, f"v{one.result.number}")
    for k in reversed(range(len(one.loops))):
        yield f"{indent}{'  ' * k}}}"


def fold_step(one: Fold, indent: str, kind: str, total: str) -> Iterator[str]:
    """Print one iteration of a reduction, which updates a total."""
    parts = one.where.parts if isinstance(one.where, AllOf) else (one.where,)
    inner = indent
    if parts:
        yield f"{indent}if ({condition(one.where)}) {{"
        inner += "  "
    yield from block_lines(one.block, inner, kind)
    yield f"{inner}{total} = {FOLDS[one.kind]}({total}, v{one.value.number});"
    if parts:
        yield f"{indent}}}"
