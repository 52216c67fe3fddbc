"""Pattern terms, symbolic sizes and conditions: plain data that every reader of a rule interprets.

Nothing here is an opaque function, so one rule prints as an egglog rule, matches on a graph,
evaluates on arrays and renders as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops import get_op, is_known

__all__ = [
    "MAP",
    "Apply",
    "AttrPattern",
    "Condition",
    "Expr",
    "Function",
    "Size",
    "Term",
    "Var",
    "applied",
    "concat",
    "distinct",
    "far",
    "follows",
    "is_float",
    "near",
    "offset",
    "ops",
    "parts",
    "real",
    "shown",
    "slice_",
    "sqrt",
]

MAP = "Map"
"""Pseudo-operator of patterns: any elementwise unary function, bound by name."""

SizeKind = Literal[
    "literal", "attr", "dim", "rank", "dtype", "+", "-", "*", "//", "item", "/", "sqrt", "real"
]
ConditionKind = Literal[
    "==", "!=", "<", "<=", "same-shape", "distinct", "follows", "is-float", "near", "far"
]


def _arithmetic(kind: SizeKind, swapped: bool = False) -> Callable[[Expr, Size], Expr]:
    """Return an operator of expressions; ``swapped`` exchanges its two operands."""

    def combine(self: Expr, other: Size) -> Expr:
        return Expr(kind, (expr(other), self) if swapped else (self, expr(other)))

    return combine


@dataclass(frozen=True, eq=False)
class Expr:
    """A symbolic attribute or size: literal, attribute variable, extent, or arithmetic on those.

    ``==`` and ``<`` build conditions, so expressions compare by identity elsewhere.
    """

    kind: SizeKind
    args: tuple[Any, ...]

    __add__, __radd__ = _arithmetic("+"), _arithmetic("+")
    __sub__, __rsub__ = _arithmetic("-"), _arithmetic("-", swapped=True)
    __mul__, __rmul__ = _arithmetic("*"), _arithmetic("*")
    __truediv__, __rtruediv__ = _arithmetic("/"), _arithmetic("/", swapped=True)
    __floordiv__, __rfloordiv__ = _arithmetic("//"), _arithmetic("//", swapped=True)

    def __mod__(self, other: Size) -> Expr:
        return self - self // other * other

    def __rmod__(self, other: Size) -> Expr:
        return expr(other) % self

    def __neg__(self) -> Expr:
        return 0 - self

    def __getitem__(self, index: Size) -> Expr:
        """Return element ``index`` of a list attribute."""
        return Expr("item", (self, index))

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition("==", (self, expr(other)))

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition("!=", (self, expr(other)))

    def __lt__(self, other: Size) -> Condition:
        return Condition("<", (self, expr(other)))

    def __le__(self, other: Size) -> Condition:
        return Condition("<=", (self, expr(other)))

    def __gt__(self, other: Size) -> Condition:
        return Condition("<", (expr(other), self))

    def __ge__(self, other: Size) -> Condition:
        return Condition("<=", (expr(other), self))

    __hash__ = object.__hash__

    def leaves(self) -> Iterator[Expr]:
        """Yield every attribute variable, extent, rank and element type in this expression."""
        if self.kind in ("attr", "dim", "rank", "dtype"):
            yield self
            return
        for arg in self.args:
            if isinstance(arg, Expr):
                yield from arg.leaves()

    def __str__(self) -> str:
        match self.kind:
            case "literal" | "attr":
                return str(self.args[0])
            case "dim":
                return f"{self.args[0]}.dim({self.args[1]})"
            case "rank" | "dtype":
                return f"{self.args[0]}.{self.kind}"
            case "item":
                return f"{self.args[0]}[{self.args[1]}]"
            case "sqrt":
                return f"sqrt({self.args[0]})"
            case "real":
                return str(self.args[0])
            case _:
                return f"({self.args[0]} {self.kind} {self.args[1]})"


Size = float | Expr


def expr(value: object) -> Expr:
    """Lift a literal to an expression."""
    return value if isinstance(value, Expr) else Expr("literal", (value,))


AttrPattern = Expr | tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Condition:
    """A guard on sizes or operands, with the reason that ``explain`` shows when it fails."""

    kind: ConditionKind
    args: tuple[Any, ...]
    reason: str = ""

    def because(self, reason: str) -> Condition:
        """Return the same condition with a reason, which reports show."""
        return replace(self, reason=reason)

    def __bool__(self) -> bool:
        raise RuleError(
            "a condition of a rule is symbolic; return it from the rule instead of testing it"
        )

    def __str__(self) -> str:
        if self.kind in ("same-shape", "distinct", "follows"):
            return f"{self.kind}({', '.join(map(str, self.args))})"
        if self.kind == "is-float":
            return f"{self.args[0]} is floating point"
        if self.kind in ("near", "far"):
            relation = "≈" if self.kind == "near" else "≉"
            return f"{self.args[0]} {relation} {self.args[1]} (relative tolerance {self.args[2]})"
        return f"{self.args[0]} {self.kind} {self.args[1]}"


@dataclass(frozen=True, eq=False)
class Term:
    """A pattern: a variable or an operator applied to patterns."""

    def __add__(self, other: Term) -> Term:
        return Apply("Add", (self, other), {})

    def __sub__(self, other: Term) -> Term:
        return Apply("Sub", (self, other), {})

    def __mul__(self, other: Term) -> Term:
        return Apply("Mul", (self, other), {})

    def __truediv__(self, other: Term) -> Term:
        return Apply("Div", (self, other), {})

    def __matmul__(self, other: Term) -> Term:
        return Apply("MatMul", (self, other), {})

    def _meets(self, other: object) -> Term:
        raise _no_operand(other)

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rmatmul__ = _meets

    def walk(self) -> Iterator[Term]:
        """Yield this term and all terms in it, operands first."""
        yield self

    def variables(self) -> set[str]:
        """Return the names of the tensor variables."""
        return {t.name for t in self.walk() if isinstance(t, Var)}


class _Shape:
    """The shape of a variable, for ``x.shape == y.shape`` in a rule."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        assert isinstance(other, _Shape)
        return Condition("same-shape", (self.name, other.name))

    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Var(Term):
    """A tensor variable; ``const`` demands a compile-time constant."""

    name: str
    const: bool = False

    def dim(self, axis: Size) -> Expr:
        """Return the extent along ``axis``."""
        return Expr("dim", (self.name, expr(axis)))

    @property
    def rank(self) -> Expr:
        """The number of axes."""
        return Expr("rank", (self.name,))

    @property
    def dtype(self) -> Expr:
        """The element type, for a literal that meets the tensor."""
        return Expr("dtype", (self.name,))

    @property
    def shape(self) -> _Shape:
        """The whole shape, to compare with another."""
        return _Shape(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Apply(Term):
    """An operator of the registry, or :data:`MAP` with its function as attribute ``f``."""

    op: str
    args: tuple[Term, ...]
    attrs: Mapping[str, AttrPattern]

    def __post_init__(self) -> None:
        for arg in self.args:
            if not isinstance(arg, Term):
                raise _no_operand(arg)

    def walk(self) -> Iterator[Term]:
        """Yield the terms in the operands, and then this term."""
        for arg in self.args:
            yield from arg.walk()
        yield self

    def __str__(self) -> str:
        infix = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "MatMul": "@"}.get(self.op)
        if infix:
            return f"({self.args[0]} {infix} {self.args[1]})"
        if self.op == MAP:
            return f"{self.attrs['f']}({self.args[0]})"
        attrs = [f"{k}={shown(v)}" for k, v in self.attrs.items()]
        return f"{self.op}({', '.join([*map(str, self.args), *attrs])})"


def _no_operand(value: object) -> RuleError:
    return RuleError(
        f"{value} is no operand of a rule; a number beside a tensor x is "
        f"ops.Scalar(value={value}, dtype=x.dtype)"
        if isinstance(value, int | float)
        else f"{value!r} is no operand of a rule; give tensors and operators on them"
    )


def shown(value: object) -> str:
    """Return a value as text; a list of values is put in parentheses."""
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Function:
    """A variable that represents any elementwise unary function."""

    name: str

    def __call__(self, operand: Term) -> Term:
        return Apply(MAP, (operand,), {"f": Expr("attr", (self.name,))})


class _Ops:
    """The builder of patterns such as ``ops.Conv(x, w, strides=s, …)``, checked by the registry."""

    def __getattr__(self, name: str) -> Callable[..., Term]:
        if name.startswith("_"):
            raise AttributeError(name)
        if not is_known(name):
            raise RuleError(
                f"unknown operator {name!r}; "
                "the registry in eqsat_opt.ir.ops lists what rules may use"
            )
        op = get_op(name)

        def build(*args: Term, **attrs: object) -> Term:
            if not op.arity[0] <= len(args) <= op.arity[1]:
                raise RuleError(
                    f"{name} takes {op.arity[0]} to {op.arity[1]} operands, not {len(args)}"
                )
            if set(attrs) != set(op.attrs):
                raise RuleError(
                    f"{name} needs exactly the attributes {sorted(op.attrs)}, not {sorted(attrs)}"
                )
            patterns: dict[str, AttrPattern] = {
                key: tuple(expr(v) for v in value)
                if isinstance(value := attrs[key], tuple)
                else expr(value)
                for key in op.attrs
            }
            return Apply(name, args, patterns)

        return build


ops = _Ops()


def applied(roots: Iterable[Term]) -> Iterator[Apply]:
    """Return the operators of some terms, operands first; a shared one comes once for each use."""
    return (term for root in roots for term in root.walk() if isinstance(term, Apply))


def parts(value: AttrPattern) -> tuple[Expr, ...]:
    """Return the entries of a list attribute, or the attribute itself as the only entry."""
    return value if isinstance(value, tuple) else (value,)


def offset(expression: Expr) -> tuple[Expr, int]:
    """Split an expression into another one and a literal that is added to it."""
    added, base = 0, expression
    while base.kind in ("+", "-") and base.args[1].kind == "literal":
        added += base.args[1].args[0] * (1 if base.kind == "+" else -1)
        base = base.args[0]
    if base.kind == "+" and base.args[0].kind == "literal":
        return base.args[1], added + base.args[0].args[0]
    return base, added


def concat(x: Term, y: Term, axis: Size) -> Term:
    """Return the binary concatenation, as the e-graph holds it."""
    return ops.Concat(x, y, axis=axis)


def slice_(x: Term, axis: Size, lo: Size, hi: Size) -> Term:
    """Return ``x[lo:hi]`` along ``axis``."""
    return ops.Slice(x, axis=axis, lo=lo, hi=hi)


def follows(first: Var, second: Var) -> Condition:
    """Return the condition that ``second`` comes after ``first`` in the graph.

    Siblings then merge in one order only, so growth is linear.
    """
    return Condition("follows", (first.name, second.name))


def distinct(x: Var, y: Var) -> Condition:
    """Return the condition that two operands are different values."""
    return Condition("distinct", (x.name, y.name))


def is_float(x: Var) -> Condition:
    """Return the condition that the elements are floating point numbers."""
    return Condition("is-float", (x.name,))


def near(value: Size, target: Size, tolerance: float = 1e-6) -> Condition:
    """Return the condition that a float is ``target`` up to a relative tolerance.

    Constants of a model may have been rounded.
    """
    return Condition("near", (expr(value), expr(target), tolerance))


def far(value: Size, target: Size, tolerance: float = 1e-6) -> Condition:
    """Return the opposite condition of :func:`near`."""
    return Condition("far", (expr(value), expr(target), tolerance))


def sqrt(value: Expr) -> Expr:
    """Return the square root of a positive float."""
    return Expr("sqrt", (value,))


def real(value: Expr) -> Expr:
    """Return an extent as a float; a symbolic one has no such value."""
    return Expr("real", (value,))
