"""TASO's rules as rules of this package, with all that TASO infers from tensors made explicit.

* A convolution's group follows from its operands: channels of the data over those of the weight.
* SAME padding is four numbers that follow from the kernel (stride 1), VALID is four zeros.
* Strides are the file's. Its kernel sizes are dropped, because TASO's matcher ignores them.
* A fused activation is an operator of its own.
* ``split`` cuts where its operand was concatenated; here it is a slice with both bounds.
* Elementwise operators take operands of equal shape.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from eqsat_opt.errors import RuleError
from eqsat_opt.proving.taso.reader import Side, TasoOp, TasoRule, Value, variable_names
from eqsat_opt.rules.extents import extent, seam
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import Apply, AttrPattern, Condition, Expr, Term, Var, expr, ops, slice_

__all__ = ["Groups", "to_rule"]


class Groups(enum.StrEnum):
    """The convolutions that the source of a rule matches."""

    ORDINARY = "ordinary"
    """Convolutions of one group only."""
    ANY = "any"
    """Convolutions of any number of groups, which TASO's matcher ignores."""


_EXTENT_OF_OPERAND = frozenset({"Add", "Mul", "Relu", "Sigmoid", "Tanh"})
_ACTIVATIONS = {"sigmoid": "Sigmoid", "relu": "Relu", "tanh": "Tanh"}
_KERNEL_AXES = (2, 3)


class _Conversion:
    """The conversion of one side after the other; conditions come from the source alone."""

    def __init__(self, rule: TasoRule, groups: Groups, kernel: int | None) -> None:
        self.rule = rule
        self.groups = groups
        self.kernel = kernel
        self.names = variable_names(rule)
        self.kinds: dict[str, str] = {}
        self.when: list[Condition] = []
        self.ranks: dict[str, int] = {}
        self.pads: dict[str, tuple[Expr, ...]] = {}

    # Operands ------------------------------------------------------------------------------------

    def variable(self, number: int) -> Var:
        name = self.names[number]
        self.kinds.setdefault(name, "Tensor")
        return Var(name)

    def integer(self, prefix: str) -> Expr:
        name = f"{prefix}{sum(kind == 'Int' for kind in self.kinds.values()) + 1}"
        self.kinds[name] = "Int"
        return Expr("attr", (name,))

    def side(self, side: Side, values: Sequence[Value], *, is_source: bool) -> list[Term]:
        """Build the terms of some values of a side; a value that is read twice is built once."""
        built: dict[Value, Term] = {}

        def term(value: Value) -> Term:
            if value not in built:
                if value.op < 0:
                    built[value] = self.variable(value.op)
                else:
                    op = side[value.op]
                    operands = [term(operand) for operand in op.operands]
                    built[value] = self.apply(op, value.output, operands, is_source=is_source)
            return built[value]

        return [term(value) for value in values]

    def apply(self, op: TasoOp, output: int, operands: Sequence[Term], *, is_source: bool) -> Term:
        first = operands[0]
        result: Term
        match op.kind:
            case "conv":
                result = self.convolution(op, *operands, is_source=is_source)
            case "matmul":
                result = ops.MatMul(*operands)
                self.rank(operands, 2)
            case "concat":
                self.rank(operands, op.parameters["rank"])
                return ops.Concat(*operands, axis=op.parameters["axis"])
            case "split":
                axis = op.parameters["axis"]
                cut = seam(first, axis)
                bounds = (expr(0), cut) if output == 0 else (cut, extent(first, axis))
                return slice_(first, axis, *bounds)
            case "ewadd" | "ewmul":
                if is_source:
                    self.equal_shapes(*operands)
                return ops.Add(*operands) if op.kind == "ewadd" else ops.Mul(*operands)
            case activation:
                return getattr(ops, _ACTIVATIONS[activation])(first)  # type: ignore[no-any-return]
        if op.activation != "none":
            return getattr(ops, _ACTIVATIONS[op.activation])(result)  # type: ignore[no-any-return]
        return result

    def convolution(self, op: TasoOp, x: Term, w: Term, *, is_source: bool) -> Term:
        strides = op.parameters["stride_h"], op.parameters["stride_w"]
        if strides != (1, 1) and op.pad == "same":
            raise RuleError(
                f"rule {self.rule.number} pads to SAME at stride {strides[0]}, "
                "which depends on the extent of the data"
            )
        self.rank((x, w), 4)
        pads: AttrPattern = tuple(expr(0) for _ in range(4))
        if op.pad == "same":
            pads = self.same_pads(w, is_source=is_source)
        group: Expr = extent(x, 1) // extent(w, 1)
        if is_source:
            group = expr(1) if self.groups is Groups.ORDINARY else self.integer("g")
        return ops.Conv(x, w, strides=strides, pads=pads, dilations=(1, 1), group=group)

    def same_pads(self, w: Term, *, is_source: bool) -> tuple[Expr, ...]:
        kernel = [extent(w, axis) for axis in _KERNEL_AXES]
        if self.kernel is not None:
            if is_source:
                self.when += [size == self.kernel for size in kernel]
            return tuple(expr(p) for p in ((self.kernel - 1) // 2,) * 2 + (self.kernel // 2,) * 2)
        same = *((k - 1) // 2 for k in kernel), *(k // 2 for k in kernel)
        return self.matched_pads(same) if is_source else same

    def matched_pads(self, same: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return variables for pads of the source, with conditions that they equal ``same``."""
        key = str([str(pad) for pad in same])
        if key not in self.pads:
            self.pads[key] = tuple(self.integer("p") for _ in same)
            for variable, pad in zip(self.pads[key], same, strict=True):
                self.when.append((variable == pad).because("SAME padding"))
        return self.pads[key]

    # Ranks and shapes ----------------------------------------------------------------------------

    def rank(self, terms: Sequence[Term], rank: int) -> None:
        for term in terms:
            for name in term.variables():
                self.ranks.setdefault(name, rank)

    def equal_shapes(self, x: Term, y: Term) -> None:
        """Add the conditions under which two operands of the source have one shape."""
        same = _of_shape(x), _of_shape(y)
        if isinstance(same[0], Var) and isinstance(same[1], Var):
            if same[0].name != same[1].name:
                self.when.append(same[0].shape == same[1].shape)
            return
        for axis in range(min(self.rank_of(x), self.rank_of(y))):
            left, right = extent(x, axis), extent(y, axis)
            if str(left) != str(right):
                self.when.append(left == right)

    def rank_of(self, term: Term) -> int:
        return max(self.ranks.get(name, 0) for name in term.variables())

    def conditions(self) -> tuple[Condition, ...]:
        ranks = [Var(name).rank == rank for name, rank in self.ranks.items()]
        seen: dict[str, Condition] = {}
        for condition in (*ranks, *self.when):
            seen.setdefault(str(condition), condition)
        return tuple(seen.values())


def _of_shape(term: Term) -> Term:
    """Return a term below that has the same shape, a variable if there is one."""
    while isinstance(term, Apply) and term.op in _EXTENT_OF_OPERAND:
        term = term.args[0]
    return term


def to_rule(rule: TasoRule, groups: Groups = Groups.ORDINARY, kernel: int | None = None) -> Rule:
    """Convert ``rule`` to a rule of this package, read from left to right.

    With ``kernel``, the kernels have that size: a rule that is wrong at one size is wrong, and its
    counterexample is smaller.

    Raises:
        RuleError: the rule uses something that cannot be made explicit.
    """
    conversion = _Conversion(rule, groups, kernel)
    lhs = conversion.side(rule.source, [pair.source for pair in rule.outputs], is_source=True)
    when = conversion.conditions()
    rhs = conversion.side(rule.target, [pair.target for pair in rule.outputs], is_source=False)
    suffix = "" if groups is Groups.ORDINARY else "-any-group"
    suffix += "" if kernel is None else f"-kernel-{kernel}"
    return Rule(
        name=f"taso/{rule.number}{suffix}", lhs=tuple(lhs), rhs=tuple(rhs), when=when,
        kinds=tuple(sorted(conversion.kinds.items())), numerics=Numerics.REASSOCIATE,
        phase=Phase.EXPLORE, bidirectional=False, doc=f"Rule {rule.number} of TASO's file.",
    )  # fmt: skip
