"""Construction of programs from nodes: index functions are composed, values placed in loops.

An output element is a term over elements of operands; an operand that the region computes itself is
replaced by its own term. Each value is computed in the outermost loop in which all that it depends
on is defined, so the mean of a row is computed once for the row. Forms, strides and views affect
addresses only.

It is long because one pass over index functions has a case for each kind of term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.index.integers import (
    FALSE,
    TRUE,
    Atom,
    Formula,
    Poly,
    atom,
    poly,
    polynomials,
    substitute,
)
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    Choice,
    Constant,
    IndexTensor,
    Inverse,
    Parameter,
    Plus,
    Premises,
    Read,
    Reduce,
    Scalar,
    Times,
)
from eqsat_opt.ir.ops.index.scalars import Whole as WholeTerm
from eqsat_opt.ir.values.types import FLOATS, WHOLE_RANGES, numpy_dtype
from eqsat_opt.runtime.backends.generated.by_hand import BY_HAND, Multiplied, SubstitutedTerm
from eqsat_opt.runtime.backends.generated.intervals import remaining
from eqsat_opt.runtime.backends.generated.kernel import NUMBER
from eqsat_opt.runtime.backends.generated.memory_order import (
    found_tile,
    in_memory_order,
    steps_of,
)
from eqsat_opt.runtime.backends.generated.program import (
    Block,
    Branch,
    Fold,
    FoldKind,
    IndexValue,
    KernelProgram,
    KernelValue,
    Let,
    Load,
    Loop,
    LoopNest,
    Memory,
    Schedule,
    Statement,
    Store,
)
from eqsat_opt.runtime.backends.generated.stable import stabilised
from eqsat_opt.runtime.backends.generated.term_translator import Index, TermTranslator, Unfit

__all__ = ["HALVES", "TRUTHS", "built"]

TRUTHS = frozenset(
    ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "Not")
) | {"IsNaN"}
"""Functions whose values are booleans."""

HALVES = {"float16": "RoundHalf", "bfloat16": "RoundBrain"}
"""Rounding functions by type, for types with registers of float32; results are rounded by them."""

_MOST_STATEMENTS = 4_000
_WARP = 32

Target = Literal["gpu", "cpu"]

Register = KernelValue | float
"""Typed register, or a number that takes the type of the other operands."""


def built(
    graph: Graph,
    nodes: Sequence[Node],
    outputs: Sequence[str],
    strides: Mapping[str, Sequence[int]] | None = None,
    target: Target = "gpu",
    aligned_bytes: Mapping[str, int] = MappingProxyType({}),
) -> KernelProgram:
    """Build the program of some nodes.

    Args:
        graph: a typed graph; all shapes of the region are literal.
        nodes: the nodes of the region, in order.
        outputs: values that they define and that the program writes.
        strides: strides by axis, in elements, of values that are not dense in the order of ONNX;
            they may be negative.
        target: the kind of device for which loops are ordered.
        aligned_bytes: known alignments of the addresses of values that are read or written.

    Raises:
        Unfit: the nodes have no program.
    """
    try:
        return _Building(
            graph, nodes, outputs, strides or {}, target=target, aligned_bytes=aligned_bytes
        ).run()
    except (IllTyped, EqsatError, OverflowError) as error:
        raise Unfit(str(error)) from error
    except RecursionError as error:
        raise Unfit("its operators stand too deep within one another") from error


@dataclass(eq=False)
class _Scope:
    """A scope of statements, with its loops and the values that are known in it.

    Attributes:
        parent: the scope around it.
        variables: loop variables, and registers used in indices, that are defined in this scope.
        depth: number of folds around it.
        is_guarded: whether it runs only if some condition holds.
        block: its statements.
        known: registers of the values that it computes.
    """

    parent: _Scope | None
    variables: set[Atom]
    depth: int = 0
    is_guarded: bool = False
    block: list[Statement] = field(default_factory=list)
    known: dict[Any, Register] = field(default_factory=dict)

    def home(self, symbols: frozenset[Atom]) -> _Scope:
        """Return the outermost scope that defines the symbols, without leaving a guarded one."""
        scope = self
        while scope.parent and not scope.is_guarded and symbols.isdisjoint(scope.variables):
            scope = scope.parent
        return scope

    def find(self, key: Any) -> Register | None:
        scope: _Scope | None = self
        while scope is not None:
            if key in scope.known:
                return scope.known[key]
            scope = scope.parent
        return None

    @property
    def level(self) -> int:
        return 0 if self.parent is None else self.parent.level + 1


class _Building(TermTranslator[_Scope, Register]):
    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        strides: Mapping[str, Sequence[int]],
        target: Target,
        aligned_bytes: Mapping[str, int],
    ) -> None:
        super().__init__(graph)
        self.aligned_bytes = aligned_bytes
        self.strides, self.outputs, self.target = strides, outputs, target
        self.tensors = {node.output: self.indexed(node) for node in nodes}
        self.moving = {node.output for node in nodes if get_op(node.op).is_moving}
        self.reads: dict[str, int] = {}
        self.scope_of: dict[int, _Scope] = {}
        self.extents: dict[Atom, int] = {}
        self.count = 0
        self.dtypes: list[str] = []

    def applied(
        self, op: str, operands: Sequence[IndexTensor], attrs: Mapping[str, Any]
    ) -> IndexTensor:
        if op in BY_HAND:
            return BY_HAND[op](operands, attrs, Premises())
        return super().applied(op, operands, attrs)

    # Nests ---------------------------------------------------------------------------------------

    def run(self) -> KernelProgram:
        groups: dict[tuple[int, ...], list[tuple[int, str]]] = {}
        for number, name in enumerate(self.outputs):
            groups.setdefault(self.shape(name), []).append((number, name))
        nests = [self._nest(shape, group) for shape, group in groups.items() if 0 not in shape]
        return KernelProgram(
            tuple(self._memory(name) for name in self.reads),
            tuple(self._memory(name) for name in self.outputs),
            tuple(nests),
        )

    def _memory(self, name: str) -> Memory:
        steps = [s * (e - 1) for s, e in zip(self._strides(name), self.shape(name), strict=True)]
        low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
        return Memory(name, self._dtype(name), low, high)

    def _nest(self, shape: tuple[int, ...], group: Sequence[tuple[int, str]]) -> LoopNest:
        loops = [Loop(Atom(f"i{k}"), extent) for k, extent in enumerate(shape) if extent > 1]
        axes = {loop.variable: loop.extent for loop in loops}
        index = tuple(
            atom(Atom(f"i{k}")) if extent > 1 else poly(0) for k, extent in enumerate(shape)
        )
        self.extents.update(axes)
        _, whole = self._blocks(index, group, None, frozenset(axes))
        rows = self._rows(whole, frozenset(axes))
        if rows is None and self.target == "cpu":
            rows = frozenset(loop.variable for loop in loops[:-1])
        if rows is None:
            tile = found_tile(whole, loops)
            schedule: Schedule = "tile" if tile else "element"
            nest = LoopNest(
                schedule, rows=(), head=(), loops=tuple(loops), block=tuple(whole), tile=tile
            )
            return in_memory_order(nest, self._widest)
        head, block = self._blocks(index, group, rows, frozenset(axes) - rows)
        nest = LoopNest(
            "row",
            rows=tuple(loop for loop in loops if loop.variable in rows),
            head=tuple(head),
            loops=tuple(loop for loop in loops if loop.variable not in rows),
            block=tuple(block),
        )
        return nest if self.target == "cpu" else in_memory_order(nest, self._widest)

    def _widest(self, one: Load | Store) -> int:
        """Return the number of elements that the alignment allows to access at once; 0 if unknown.

        The alignment is that of the buffer's beginning.
        """
        name = self.outputs[one.buffer] if isinstance(one, Store) else [*self.reads][one.buffer]
        return self.aligned_bytes.get(name, 0) // numpy_dtype(self._dtype(name)).itemsize

    def _blocks(
        self,
        index: Index,
        group: Sequence[tuple[int, str]],
        rows: frozenset[Atom] | None,
        inner: frozenset[Atom],
    ) -> tuple[list[Statement], list[Statement]]:
        """Build the head, of statements that depend on rows alone, and the block of all others.

        Without rows the head is empty.
        """
        self.count = 0
        head = _Scope(None, set(rows or ()))
        block = _Scope(head, set(inner), is_guarded=rows is None)
        for number, name in group:
            value = self.element(block, name, index)
            block.block.append(
                Store(number, self._place(name, index), self._register(block, value))
            )
        return head.block, block.block

    def _rows(self, block: Sequence[Statement], loops: frozenset[Atom]) -> frozenset[Atom] | None:
        """Return the loops around reductions that a block of threads shares; ``None`` for none.

        A row must have many elements to reduce, which no other row reads; otherwise a thread for
        each element is better.
        """
        found: frozenset[Atom] | None = None
        for fold in (one for one in block if isinstance(one, Fold)):
            free = self._needed(fold.block) & loops
            if fold.where != TRUE or fold.size < (_WARP if self.target == "gpu" else 2):
                continue
            if not self._is_of_row(fold, free):
                continue
            found = free if found is None else found | free
        return found

    def _needed(self, block: Block) -> frozenset[Atom]:
        """Return the index variables that the statements of a block use, nested ones included."""
        return frozenset(s for one in _statements(block) for s in _symbols_of(one)) & frozenset(
            self.extents
        )

    def _is_of_row(self, fold: Fold, free: frozenset[Atom]) -> bool:
        wanted = free | {loop.variable for loop in fold.loops}
        loads = [one.place for one in _statements(fold.block) if isinstance(one, Load)]
        if self.target == "gpu":
            return any(wanted <= place.symbols() for place in loads)
        last = fold.loops[-1].variable
        return any(wanted <= p.symbols() and abs(steps_of(p).get(last, 0)) == 1 for p in loads)

    # Registers -----------------------------------------------------------------------------------

    def _value(self, scope: _Scope, dtype: str) -> KernelValue:
        self.count += 1
        if self.count > _MOST_STATEMENTS:
            raise Unfit("the region is too large")
        value = KernelValue(self.count, dtype)
        self.scope_of[value.number] = scope
        return value

    def _dtype(self, name: str) -> str:
        type_ = self.graph.tensor_type(name)
        assert type_ is not None
        if type_.dtype not in FLOATS and type_.dtype not in WHOLE_RANGES:
            raise Unfit(f"no kernel has elements of {type_.dtype}")
        return type_.dtype

    def _let(
        self, scope: _Scope, dtype: str, function: str, operands: Any = (), numbers: Any = ()
    ) -> KernelValue:
        key = (dtype, function, operands, tuple(float(n).hex() for n in numbers))
        found = scope.find(key)
        if isinstance(found, KernelValue):
            return found
        value = self._value(scope, dtype)
        scope.block.append(Let(value, function, operands, tuple(numbers)))
        scope.known[key] = value
        return value

    def number(self, place: _Scope, value: float) -> Register:
        return float(value)

    def _register(self, scope: _Scope, value: Register, dtype: str = "") -> KernelValue:
        """Return a value in a register of a type, by default of the type of the operator."""
        wanted = dtype or self.dtypes[-1] if self.dtypes or dtype else ""
        if not isinstance(value, KernelValue):
            assert wanted
            number = _as_element(float(value), wanted)
            if wanted in HALVES:
                number = float(np.asarray(number, numpy_dtype(wanted)))
            return self._let(scope.home(frozenset()), wanted, NUMBER, numbers=(number,))
        if not wanted or value.dtype == wanted or (not dtype and value.dtype != "index"):
            return value
        return self._let(self.scope_of[value.number], wanted, "Cast", (value,))

    def emit(
        self, place: _Scope, function: str, operands: tuple[Register, ...], numbers: Any = ()
    ) -> Register:
        numbers_only = [one for one in operands if not isinstance(one, KernelValue)]
        if function in _FOLDABLE and len(numbers_only) == len(operands):
            with suppress(ZeroDivisionError):
                return _FOLDABLE[function](*numbers_only)
        strong = [o.dtype for o in operands if isinstance(o, KernelValue) and o.dtype != "index"]
        if function == "Where":
            condition, *values = operands
            typed = [o.dtype for o in values if isinstance(o, KernelValue) and o.dtype != "index"]
            dtype = typed[0] if typed else self._weak(values)
            assert isinstance(condition, KernelValue)
            registers = (condition, *(self._register(place, o, dtype) for o in values))
            return self._let(self._deepest(place, registers), dtype, function, registers)
        if function == "Pow":
            return self._power(place, *operands)
        dtype = strong[0] if strong else self._weak(operands)
        registers = tuple(self._register(place, o, dtype) for o in operands)
        if function in ("Div", "Sqrt") and dtype == "index":
            dtype = self.dtypes[-1]
            registers = tuple(self._register(place, o, dtype) for o in registers)
        if dtype not in FLOATS and numbers:
            numbers = tuple(_as_element(n, dtype) for n in numbers)
        result = "bool" if function in TRUTHS else dtype
        return self._let(
            self._deepest(place, registers), result, function, registers, numbers=numbers
        )

    def _weak(self, operands: Sequence[Register]) -> str:
        """Return the type of untyped operands: an index if all are whole, else the operator's."""
        whole = all(isinstance(o, KernelValue) or float(o).is_integer() for o in operands)
        return "index" if whole else self.dtypes[-1]

    def _deepest(self, place: _Scope, registers: Sequence[KernelValue]) -> _Scope:
        scopes = [self.scope_of[one.number] for one in registers]
        return max(scopes, key=lambda scope: scope.level, default=place)

    def _power(self, place: _Scope, base: Register, exponent: Register) -> Register:
        """Emit a power in the type of the base, as the registry defines it."""
        left = self._register(place, base)
        if left.dtype in FLOATS:
            right = self._register(place, exponent, left.dtype)
        elif isinstance(exponent, KernelValue) and exponent.dtype in FLOATS:
            wide = self._register(place, left, "float64")
            right = self._register(place, exponent, "float64")
            scope = self._deepest(place, (wide, right))
            return self._register(
                place, self._let(scope, "float64", "Pow", (wide, right)), left.dtype
            )
        else:
            right = self._register(place, exponent, "int64")
        scope = self._deepest(place, (left, right))
        return self._let(scope, left.dtype, "Pow", (left, right))

    # Terms ---------------------------------------------------------------------------------------

    def attribute(self, value: float) -> float:
        return value

    def scalar(self, place: _Scope, term: Scalar) -> Register:
        return super().scalar(place, stabilised(term))

    def called(
        self, place: _Scope, name: str, attrs: Mapping[str, Any], args: Sequence[Scalar]
    ) -> Register:
        if name == "Cast":
            return self._register(place, self.scalar(place, args[0]), str(attrs["to"]))
        if name in TRUTHS or name == "Where":
            return self.emit(place, name, tuple(self.scalar(place, one) for one in args))
        return super().called(place, name, attrs, args)

    def element(self, place: _Scope, name: str, index: Index) -> Register:
        key = (name, index)
        found = place.find(key)
        if found is not None:
            return found
        tensor = self.tensors.get(name)
        if tensor is None:
            return self._loaded(place, name, index)
        dtype = self._dtype(name)
        self.dtypes.append(dtype)
        value = self._register(place, self.scalar(place, tensor.at(index)), dtype)
        if dtype in HALVES and name not in self.moving:
            value = self._let(self.scope_of[value.number], dtype, HALVES[dtype], (value,))
        self.dtypes.pop()
        self.scope_of[value.number].known[key] = value
        return value

    def _strides(self, name: str) -> Sequence[int]:
        shape = self.shape(name)
        dense = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return self.strides.get(name, dense)

    def _place(self, name: str, index: Index) -> Poly:
        total = poly(0)
        for position, stride in zip(index, self._strides(name), strict=True):
            total = total + position * stride
        return total

    def _loaded(self, place: _Scope, name: str, index: Index) -> KernelValue:
        buffer = self.reads.setdefault(name, len(self.reads))
        where = self._place(name, index)
        scope = place.home(where.symbols())
        key = (buffer, where)
        found = scope.find(key)
        if isinstance(found, KernelValue):
            return found
        value = self._value(scope, self._dtype(name))
        scope.block.append(Load(value, buffer, where))
        scope.known[key] = value
        return value

    def choice(self, place: _Scope, term: Choice) -> Register:
        condition = remaining(term.condition, self.extents)
        if condition in (TRUE, FALSE):
            return self.scalar(place, term.then if condition == TRUE else term.otherwise)
        scope = place.home(_symbols(condition) | _free(term.then) | _free(term.otherwise))
        found = scope.find(term)
        if found is not None:
            return found
        arms = [_Scope(scope, set(), scope.depth, is_guarded=True) for _ in range(2)]
        values = [
            self.scalar(arm, one)
            for arm, one in zip(arms, (term.then, term.otherwise), strict=True)
        ]
        typed = [v.dtype for v in values if isinstance(v, KernelValue) and v.dtype != "index"]
        dtype = typed[0] if typed else self.dtypes[-1]
        then, otherwise = (
            self._register(arm, v, dtype) for arm, v in zip(arms, values, strict=True)
        )
        result = self._value(scope, dtype)
        scope.block.append(
            Branch(
                result,
                condition,
                then=tuple(arms[0].block),
                then_value=then,
                otherwise=tuple(arms[1].block),
                otherwise_value=otherwise,
            )
        )
        scope.known[term] = result
        return result

    def other(self, place: _Scope, term: Any) -> Register:
        match term:
            case WholeTerm(value):
                return self._whole(place, value)
            case Reduce(kind, bound, where, body):
                return self._reduced(place, kind, bound, where, body=body)
            case Multiplied(bound, body):
                return self._reduced(place, "product", bound, TRUE, body=body)
            case SubstitutedTerm(variable, number, extent, chosen):
                found = self._register(place, self.scalar(place, number), "int64")
                scope = self.scope_of[found.number]
                here = self._let(scope, "int64", "Modulo", (found,), numbers=(float(extent),))
                scope.variables.add(here.atom)
                self.extents[here.atom] = extent
                return self.scalar(place, _replaced(chosen, {variable: atom(here.atom)}))
        return super().other(place, term)

    def _whole(self, place: _Scope, value: Poly) -> Register:
        if value.constant is not None:
            return float(value.constant)
        scope = place.home(value.symbols())
        found = scope.find(value)
        if found is not None:
            return found
        result = self._value(scope, "index")
        scope.block.append(IndexValue(result, value))
        scope.known[value] = result
        return result

    def _reduced(
        self,
        place: _Scope,
        kind: FoldKind,
        bound: Sequence[tuple[Atom, Poly]],
        where: Formula,
        body: Scalar,
    ) -> Register:
        inside = frozenset(variable for variable, _ in bound)
        scope = place.home((_symbols(where) | _free(body)) - inside)
        loops = []
        names: dict[Atom, Poly] = {}
        for k, (variable, extent) in enumerate(bound):
            named = Atom(f"k{scope.depth}_{k}")
            if extent.constant is None:
                raise Unfit("a reduction over an extent that is no number")
            loops.append(Loop(named, extent.constant))
            names[variable] = atom(named)
        body = _replaced(body, names)
        key = (kind, tuple(loops), substitute(where, names), body)
        found = scope.find(key)
        if found is not None:
            return found
        outside = {loop.variable: self.extents.get(loop.variable) for loop in loops}
        self.extents.update({loop.variable: loop.extent for loop in loops})
        condition = remaining(substitute(where, names), self.extents)
        inner = _Scope(
            scope, set(outside), scope.depth + 1, is_guarded=condition != TRUE or not _all(loops)
        )
        value = self.scalar(inner, body)
        dtype = value.dtype if isinstance(value, KernelValue) else self._weak([value])
        register = self._register(inner, value, dtype)
        self.extents.update({v: e for v, e in outside.items() if e is not None})
        result = self._value(scope, dtype)
        scope.block.append(
            Fold(
                result,
                kind,
                tuple(loops),
                condition,
                block=tuple(inner.block),
                value=register,
            )
        )
        scope.known[key] = result
        return result


def _all(loops: Sequence[Loop]) -> bool:
    return all(loop.extent > 0 for loop in loops)


_FOLDABLE: Mapping[str, Callable[..., float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Neg": lambda a: -a,
}
"""Functions of numbers that are evaluated while the kernel is built."""


def _as_element(value: float, dtype: str) -> float:
    """Convert an attribute to an element type; whole numbers are clamped to the type's range."""
    if dtype in FLOATS or dtype == "index":
        return value
    low, end = WHOLE_RANGES[dtype]
    if math.isnan(value):
        raise Unfit(f"NaN is no {dtype}")
    return low if value < low else end - 1 if value > end - 1 else float(int(value))


def _statements(block: Block) -> list[Statement]:
    found: list[Statement] = []
    for one in block:
        found.append(one)
        if isinstance(one, Fold):
            found += _statements(one.block)
        elif isinstance(one, Branch):
            found += _statements(one.then) + _statements(one.otherwise)
    return found


def _symbols_of(one: Statement) -> frozenset[Atom]:
    match one:
        case Load(_, _, place) | Store(_, place):
            return place.symbols()
        case IndexValue(_, value):
            return value.symbols()
        case Branch(_, condition):
            return _symbols(condition)
        case Fold():
            return _symbols(one.where)
    return frozenset()


def _symbols(formula: Formula) -> frozenset[Atom]:
    return frozenset(s for p in polynomials(formula) for s in p.symbols())


def _free(term: Any) -> frozenset[Atom]:
    """Return the index variables on which a term depends."""
    match term:
        case Read(_, index):
            return frozenset(s for i in index for s in i.symbols())
        case WholeTerm(value):
            return value.symbols()
        case Constant() | Parameter():
            return frozenset()
        case Plus(parts) | Times(parts) | Call(_, _, parts):
            return frozenset(s for part in parts for s in _free(part))
        case Inverse(operand):
            return _free(operand)
        case Choice(condition, then, otherwise):
            return _symbols(condition) | _free(then) | _free(otherwise)
        case Reduce(_, bound, where, body):
            return (_symbols(where) | _free(body)) - {variable for variable, _ in bound}
        case Multiplied(bound, body):
            return _free(body) - {variable for variable, _ in bound}
        case SubstitutedTerm(variable, number, _, chosen):
            return _free(number) | (_free(chosen) - {variable})
    raise Unfit(f"no kernel has a {type(term).__name__}")


def _replaced(term: Any, values: Mapping[Atom, Poly]) -> Any:
    """Return a term with index variables replaced."""

    def all_replaced(terms: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(_replaced(one, values) for one in terms)

    match term:
        case Read(name, index):
            return Read(name, tuple(substitute(i, values) for i in index))
        case WholeTerm(value):
            return WholeTerm(substitute(value, values))
        case Plus(parts):
            return Plus(all_replaced(parts))
        case Times(parts):
            return Times(all_replaced(parts))
        case Call(function, attrs, args):
            return Call(function, attrs, all_replaced(args))
        case Inverse(operand):
            return Inverse(_replaced(operand, values))
        case Choice(condition, then, otherwise):
            return Choice(substitute(condition, values), *all_replaced((then, otherwise)))
        case Reduce(kind, bound, where, body):
            outer = _without(values, bound)
            return Reduce(kind, bound, substitute(where, outer), _replaced(body, outer))
        case Multiplied(bound, body):
            return Multiplied(bound, _replaced(body, _without(values, bound)))
        case SubstitutedTerm(variable, number, extent, chosen):
            return SubstitutedTerm(
                variable, _replaced(number, values), extent, _replaced(chosen, values)
            )
    return term


def _without(
    values: Mapping[Atom, Poly], bound: Sequence[tuple[Atom, Poly]]
) -> Mapping[Atom, Poly]:
    inner = {variable for variable, _ in bound}
    return {variable: value for variable, value in values.items() if variable not in inner}
