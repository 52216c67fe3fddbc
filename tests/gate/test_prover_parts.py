"""The parts of the prover one by one, at the smallest terms at which a slip would tell."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from eqsat_opt.ir.ops.index.integers import (
    TRUE,
    Atom,
    Formula,
    Poly,
    at_least,
    atom,
    choose,
    equal,
    less,
    pick,
    poly,
    quotient,
)
from eqsat_opt.ir.ops.index.scalars import (
    ONE,
    Call,
    Choice,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Read,
    Reduce,
    Scalar,
    Sign,
    Times,
    Unindexed,
    Whole,
    bound,
)
from eqsat_opt.proving.proof import driver, prove
from eqsat_opt.proving.proof.axes.uneven import uneven_ranks
from eqsat_opt.proving.proof.axes.unions import Classes
from eqsat_opt.proving.proof.budget import Budget, OutOfWork
from eqsat_opt.proving.proof.definedness import undefined
from eqsat_opt.proving.proof.elements import Rounded, elements_of
from eqsat_opt.proving.proof.obligations import obligation
from eqsat_opt.proving.proof.sums.equality import reached, vanishes
from eqsat_opt.proving.proof.sums.factor_matching import equations_of, signature
from eqsat_opt.proving.proof.sums.from_terms import normalise
from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.normal import (
    Case,
    Extremum,
    Factor,
    Letter,
    Normal,
    Opaque,
    Power,
    negative,
    single,
)
from eqsat_opt.proving.proof.sums.powers import power
from eqsat_opt.proving.proof.sums.ranges import Range, range_of
from eqsat_opt.proving.proof.sums.signs import is_positive
from eqsat_opt.proving.typing.branching import Choices
from eqsat_opt.proving.typing.choices import Chooser, Decisions
from eqsat_opt.proving.typing.parameters import definitions, signs
from eqsat_opt.proving.typing.scenario import scenarios
from eqsat_opt.proving.typing.unify import Unifier
from eqsat_opt.proving.typing.values import Values
from eqsat_opt.rules import (
    Float,
    Func,
    Int,
    Ints,
    Rule,
    Sides,
    Tensor,
    Term,
    is_float,
    ops,
    real,
    rule,
)

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

AT, J, N, M = (atom(name) for name in "ijnm")
X, Y, Z = (Read(name, ()) for name in "xyz")
K, L = Parameter("k", "positive"), Parameter("l", "negative")
P = Parameter("p", "nonnegative")
HALF = Fraction(1, 2)


def _context(*assumed: Formula) -> Context:
    return Context(assumed, Budget(5.0))


def _number(value: int | Fraction) -> Constant:
    return Constant(Fraction(value))


def _minus(term: Scalar) -> Scalar:
    return Times((_number(-1), term))


def _call(name: str, *args: Scalar, **attrs: Any) -> Call:
    return Call(name, tuple(attrs.items()), args)


def _equal(left: Scalar, right: Scalar, *assumed: Formula) -> bool:
    return vanishes(normalise(left) + negative(normalise(right)), _context(*assumed))


def _proven(one: Rule) -> bool:
    return prove(one, time_limit_s=4.0).status == "proven"


# What is equal, and what is not ------------------------------------------------------------------

_LESS = less(AT, N)
_V, _W = bound("v"), bound("w")


def _sum(term: Scalar, extent: Poly, variable: Atom = _V, where: Formula = TRUE) -> Reduce:
    return Reduce("sum", ((variable, extent),), where, term)


def _greatest(kind: str, term: Scalar, extent: Poly, variable: Atom = _V) -> Any:
    return Reduce(kind, ((variable, extent),), TRUE, term)  # type: ignore[arg-type]


EQUAL: dict[str, tuple[Scalar, Scalar]] = {
    "negative": (Plus((X, _minus(X))), _number(0)),
    "product": (Times((Plus((X, Y)), Plus((X, _minus(Y))))),
                Plus((Times((X, X)), _minus(Times((Y, Y)))))),
    "power": (Times((X, Inverse(X))), ONE),
    "tanh": (_call("Tanh", X), Plus((_minus(ONE), Times((_number(2), Inverse(Plus((ONE, _call(
        "Exp", Times((_number(-2), X))))))))))),
    "hard-swish": (_call("HardSwish", X), Times((X, _call("Min", _call("Max", Plus((
        Times((_number(Fraction(1, 6)), X)), _number(HALF))), _number(0)), ONE)))),
    "clip": (_call("Clip", X, min=_number(-1), max=_number(1)),
             _call("Min", _call("Max", X, _number(-1)), ONE)),
    "clip-in-disorder": (_call("Clip", X, min=ONE, max=_number(-1)), _number(-1)),
    "abs": (_call("Abs", X), _call("Max", X, _minus(X))),
    "relu": (_call("Relu", X), _call("Max", X, _number(0))),
    "relu-square": (Times((_call("Relu", X), _call("Relu", X))), Times((_call("Relu", X), X))),
    "root": (Times((_call("Sqrt", K), _call("Sqrt", K))), K),
    "root-of-number": (_call("Sqrt", _number(12)), Times((_number(2), _call("Sqrt", _number(3))))),
    "root-of-fraction": (Times((_call("Sqrt", _number(Fraction(1, 3))), _number(3))),
                         _call("Sqrt", _number(3))),
    "root-of-scaled": (_call("Sqrt", Times((K, X))), Times((_call("Sqrt", K), _call("Sqrt", X)))),
    "root-of-scaled-sum": (_call("Sqrt", Plus((Times((K, X, X)), Y))),
                           Times((_call("Sqrt", K), _call("Sqrt", Plus((Times((X, X)),
                                                                       Times((Y, Inverse(K))))))))),
    "erf-odd": (_call("Erf", _minus(X)), _minus(_call("Erf", X))),
    "exp-of-sum": (_call("Exp", Plus((X, Y))), Times((_call("Exp", X), _call("Exp", Y)))),
    "exp-cancels": (Times((_call("Exp", X), _call("Exp", _minus(X)))), ONE),
    "root-of-exp": (_call("Sqrt", _call("Exp", X)), _call("Exp", Times((_number(HALF), X)))),
    "where-true": (_call("Where", _number(1), X, Y), X),
    "where-same": (_call("Where", Z, X, X), X),
    "choice": (Choice(_LESS, X, Y), Plus((Choice(_LESS, X, _number(0)),
                                          Choice(_LESS, _number(0), Y)))),
    "denominator": (Plus((Times((X, Inverse(Plus((X, Y))))), Times((Y, Inverse(Plus((X, Y))))))),
                    ONE),
    "denominator-squared": (
        Plus((Times((X, Inverse(Plus((X, Y))), Inverse(Plus((X, Y))))),
              Times((Y, Inverse(Plus((X, Y))), Inverse(Plus((X, Y))))))),
        Inverse(Plus((X, Y)))),
    "sum": (_sum(Read("x", (atom(_V),)), N), _sum(Read("x", (atom(_W),)), N, _W)),
    "sum-backwards": (_sum(Read("x", (atom(_V),)), N), _sum(Read("x", (N - 1 - atom(_W),)), N, _W)),
    "sum-of-one": (_sum(X, N), Times((Whole(N), X))),
    "sum-cut": (
        _sum(Read("x", (atom(_V),)), N),
        Plus((_sum(Read("x", (atom(_V),)), N, where=less(atom(_V), M)),
              _sum(Read("x", (atom(_V),)), N, where=at_least(atom(_V), M))))),
    "maximum": (_greatest("max", Read("x", (atom(_V),)), N),
                _greatest("max", Read("x", (N - 1 - atom(_W),)), N, _W)),
    "max-by-cases": (Plus((_call("Max", X, Y), _call("Min", X, Y))), Plus((X, Y))),
    "max-scaled": (_call("Max", Times((K, X)), Times((K, Y))), Times((K, _call("Max", X, Y)))),
    "max-opposite": (_call("Max", Times((L, X)), Times((L, Y))), Times((L, _call("Min", X, Y)))),
    "max-of-exp": (_call("Max", _call("Exp", X), _number(0)), _call("Exp", X)),
    "inverse-of-sum": (Inverse(_sum(Times((_number(2), Y, Read("x", (atom(_V),)))), N)),
                       Times((_number(HALF), Inverse(Y),
                              Inverse(_sum(Read("x", (atom(_V),)), N))))),
}  # fmt: skip
DIFFERENT: dict[str, tuple[Scalar, Scalar]] = {
    "read": (X, Y),
    "index": (Read("x", (AT, J)), Read("x", (AT, N))),
    "power": (Power_ := Inverse(Plus((X, Y))), Times((Power_, Power_))),
    "attributes": (_call("Elu", X, alpha=K), _call("Elu", X, alpha=L)),
    "extremum": (_greatest("max", Read("x", (atom(_V),)), N),
                 _greatest("min", Read("x", (atom(_V),)), N)),
    "range": (_sum(Read("x", (atom(_V),)), N), _sum(Read("x", (atom(_V),)), N + 1)),
    "maximum-of-more": (_greatest("max", Read("x", (atom(_V),)), N),
                        _greatest("max", Read("x", (atom(_V),)), N + 1)),
    "maximum-of-fewer": (_greatest("max", Read("x", (atom(_V),)), N + 1),
                         _greatest("max", Read("x", (atom(_V),)), N)),
    "shifted": (_sum(Read("x", (atom(_V),)), N), _sum(Read("x", (atom(_V) + 1,)), N)),
    "choice": (Choice(_LESS, X, Y), X),
    "choices": (Choice(_LESS, X, Y), Choice(_LESS, Y, X)),
    "guarded": (_sum(X, N, where=less(atom(_V), M)), _sum(X, N)),
    "guarded-product": (Times((_sum(X, N), _sum(Y, N, _W, less(atom(_W), M)))),
                        Times((_sum(X, N), _sum(Y, N, _W)))),
    "relu": (_call("Relu", X), X),
    "relu-of-more": (Times((_call("Max", _call("Max", X, Y), _number(0)),
                            _call("Max", _call("Max", X, Y), _number(0)))),
                     Times((_call("Max", _call("Max", X, Y), _number(0)), X))),
    "root-of-square": (_call("Sqrt", Times((X, X))), X),
    "root-of-product": (_call("Sqrt", Times((X, Y))), Times((_call("Sqrt", X), _call("Sqrt", Y)))),
    "root-of-negative": (_call("Sqrt", Times((L, X))), Times((_call("Sqrt", L), _call("Sqrt", X)))),
    "root-of-opposite": (_call("Sqrt", _minus(X)), _call("Sqrt", X)),
    "roots": (_call("Sqrt", _number(-4)), _call("Sqrt", _number(4))),
    "even-root": (_call("Pow", Times((X, X)), _number(HALF)), _call("Pow", X, _number(1))),
    "exponentials": (Times((_call("Exp", X), _call("Exp", X))), ONE),
    "root-of-even-power": (_call("Sqrt", _call("Pow", Plus((X, Y)), _number(-2))),
                           Inverse(Plus((X, Y)))),
    "roots-meet": (Times((_call("Sqrt", X), _call("Sqrt", X))), X),
    "square-of-maximum": (Times((_call("Max", X, Y), _call("Max", X, Y))),
                          Times((_call("Max", X, Y), X))),
    "other-truth": (Times((_call("Where", X, ONE, _number(0)), _call("Where", Y, ONE, _number(0)))),
                    _call("Where", Y, ONE, _number(0))),
    "truths": (Times((_call("Where", X, ONE, _number(0)), _call("Where", Y, ONE, _number(0)))),
               _call("Where", X, ONE, _number(0))),
    "maximum-of-negative": (_call("Max", Times((L, X)), Times((L, Y))),
                            Times((L, _call("Max", X, Y)))),
    "nonnegative": (_call("Max", P, ONE), ONE),
    "max-of-large": (_call("Max", _call("Exp", X), ONE), _call("Exp", X)),
    "sum-in-maximum": (_call("Max", _sum(Read("x", (atom(_V),)), N), Y),
                       _call("Max", _sum(Read("x", (N - atom(_V),)), N), Y)),
    "denominator": (Plus((Times((X, Inverse(Plus((X, Y))))), Y)), Plus((X, Y))),
    "sum-of-three": (_sum(Read("w", (atom(_V),)), poly(3)), Read("w", (poly(0),))),
    "sum-at-one": (_sum(Read("w", (atom(_V),)), N, where=equal(atom(_V), M)), Read("w", (M,))),
    "maximum-of-halves": (
        Reduce("max", ((_V, N),), TRUE,
               Choice(less(atom(_V), M), Read("w", (atom(_V),)), Read("z", (atom(_V),)))),
        Reduce("max", ((_V, N),), less(atom(_V), M), Read("w", (atom(_V),)))),
    "maximum-beside": (
        _call("Max", Y, Reduce("max", ((_V, N),), less(atom(_V), M), Read("w", (atom(_V),)))),
        _call("Max", Y, Y)),
    "picked": (_sum(Read("w", (pick(atom(_V), M),)), N), _sum(Read("w", (atom(_V),)), N)),
    "root-by-logarithm": (_call("Exp", Times((_number(HALF), _call("Log", X)))), _call("Sqrt", X)),
    "sum-of-maxima": (_sum(Times((_call("Max", X, Y), Read("w", (atom(_V),)))), N),
                      _sum(Times((_call("Max", X, Y), Read("w", (atom(_V),)))), N + 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_equal_is_found_to_be(name: str) -> None:
    assert _equal(*EQUAL[name], at_least(N, 1), at_least(M, 1), less(M, N))


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_not_taken_for_equal(name: str) -> None:
    assert not _equal(*DIFFERENT[name], at_least(N, 1), at_least(M, 1))


def test_what_looks_alike_has_one_signature() -> None:
    base = normalise(Plus((X, Y)))
    different: list[Factor] = [
        X, Y, Power(base, Fraction(-1)), Power(base, Fraction(-2)), Opaque("f", (), (base,)),
        Opaque("f", (("a", 1),), (base,)), Extremum("max", ()), Extremum("min", ()),
        Letter(Atom("n")), K, L,
    ]  # fmt: skip
    signatures = [frozenset(signature([factor]).items()) for factor in different]
    assert len(set(signatures)) == len(different)
    assert equations_of([(Read("x", (AT,)), Read("x", (J,)))]) == [AT - J]


def test_extrema_are_reached_at_all_points_only() -> None:
    x = single(Read("x", (AT,)))
    inside, beyond = Case((), (less(AT, N),), x), Case((), (less(AT, M),), x)
    assert reached(inside, [inside], _context())
    assert reached(inside, [beyond], _context(less(N, M)))
    assert not reached(inside, [beyond], _context(less(M, N)))
    assert not reached(inside, [], _context())


# Integers ----------------------------------------------------------------------------------------


def test_integers_follow_from_what_is_assumed() -> None:
    context = _context(at_least(N, 1), at_least(M, 2))
    assert context.entails(at_least(N + M, 3))
    assert not context.entails(at_least(N + M, 4))
    assert context.entails(at_least(N * M, N))
    assert not context.entails(at_least(N, N * M))
    assert context.entails(less(-N, 0))
    assert not context.entails(less(N, 1))
    assert not context.feasible(equal(N, 0))
    assert context.feasible(equal(N, 1))


def test_assumptions_last_as_long_as_their_block() -> None:
    context = _context(at_least(N, 1))
    with context.assuming([at_least(N, 5)]):
        assert context.entails(at_least(N, 5))
    assert not context.entails(at_least(N, 5))


def test_quotients_picks_and_choices_mean_what_they_say() -> None:
    context = _context(at_least(N, 2), at_least(AT, 0), less(AT, N))
    assert context.entails(equal(quotient(AT, N), 0))
    assert context.entails(equal(quotient(AT + N, N), 1))
    assert not context.entails(equal(quotient(AT, M), 0))
    assert context.entails(equal(pick(AT, N), AT))
    assert not context.entails(equal(pick(AT, M), AT))
    assert context.entails(equal(choose(less(J, AT), J, AT) - choose(less(J, AT), J, AT), 0))
    assert not context.entails(equal(choose(less(J, AT), J, AT), J))


def test_what_z3_leaves_open_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat_opt.proving.proof.sums import integers_z3, reals_z3

    monkeypatch.setattr(integers_z3, "_QUERY_LIMIT", 1)
    monkeypatch.setattr(reals_z3, "_QUERY_LIMIT", 1)
    context = _context(at_least(N, 1), at_least(M, N + 1), at_least(AT, M))
    assert not context.entails(at_least(3 * AT, 2 * N + M))
    assert not _equal(Times((K, _call("Max", X, Y))), _call("Max", Times((K, X)), Times((K, Z))))


def test_equations_are_solved_where_nothing_is_divided_by_zero() -> None:
    unknown = Unifier({}, {Atom("n")})
    assert unknown.solve([equal(N * AT, N * J)])
    assert unknown.value(Atom("i")) == J or unknown.value(Atom("j")) == AT
    other = Unifier({}, set())
    other.solve([equal(N * AT, N * J)])
    assert not other.values
    both = Unifier({}, {Atom("n"), Atom("m")})
    both.solve([equal(N * M, 1)])
    assert both.values == {Atom("n"): poly(1), Atom("m"): poly(1)}
    turned = Unifier({}, {Atom("n"), Atom("m")})
    turned.solve([equal(poly(1), N * M)])
    assert turned.values == both.values
    known, free = Unifier({}, {Atom("n"), Atom("m")}), Unifier({}, set())
    for one in (known, free):
        assert one.solve([equal(quotient(N, M) * M, N)])
    assert len(known.positive) == 3
    assert not free.positive
    facts = Unifier({}, {Atom("n")}).premises([])
    assert facts == [at_least(N, 1)]


# Signs -------------------------------------------------------------------------------------------


def _range(term: Scalar) -> Range:
    return range_of(term, lambda value: Range.POSITIVE if value == N else Range.ANY)


def test_ranges_are_those_of_all_operands() -> None:
    square, empty = Times((X, X)), less(atom(_V), M)
    for term, expected in (
        (_number(1), Range.POSITIVE), (_number(0), Range.NONNEGATIVE), (_number(-1), Range.ANY),
        (K, Range.POSITIVE), (P, Range.NONNEGATIVE), (L, Range.ANY), (Whole(N), Range.POSITIVE),
        (Plus((K, P)), Range.POSITIVE), (Plus((K, X)), Range.ANY), (square, Range.NONNEGATIVE),
        (Times((X, Y)), Range.ANY), (Inverse(P), Range.POSITIVE), (Inverse(X), Range.ANY),
        (Choice(_LESS, K, X), Range.ANY), (Choice(_LESS, K, P), Range.NONNEGATIVE),
        (_sum(K, N), Range.POSITIVE), (_sum(K, N, where=empty), Range.NONNEGATIVE),
        (Reduce("max", ((_V, N),), empty, K), Range.ANY),
        (_call("Exp", X), Range.POSITIVE), (_call("Relu", X), Range.NONNEGATIVE),
        (_call("Max", X, K), Range.POSITIVE), (_call("Min", X, K), Range.ANY),
        (_call("Where", X, K, Y), Range.ANY), (_call("Sin", X), Range.ANY),
    ):  # fmt: skip
        assert _range(term) is expected, term


def test_positive_is_what_is_positive_for_all_operands() -> None:
    def positive(term: Scalar) -> bool:
        return is_positive(normalise(term))

    assert positive(Plus((K, _call("Exp", X))))
    assert positive(Inverse(_call("Sqrt", X)))
    for term in (
        L, P, X, _minus(K), Plus((K, X)), Plus((K, _minus(K), _minus(K))), Whole(N),
        _call("Sqrt", X), Inverse(X), Choice(_LESS, K, _number(0)), _number(0),
    ):  # fmt: skip
        assert not positive(term), term
    assert is_positive(normalise(Whole(N)), lambda symbol: symbol == Atom("n"))


def _signs(condition: Any) -> dict[str, Sign]:
    @rule("right/signs")
    def one(x: Tensor, a: Float, b: Float) -> Sides:
        """For its conditions."""
        both = ops.Scale(ops.Scale(x, factor=a), factor=b)
        return both, ops.Scale(ops.Scale(x, factor=b), factor=a), condition(a, b)

    return signs(one)


def test_conditions_tell_signs() -> None:
    assert _signs(lambda a, _: a > 0.0) == {"a": "positive"}
    assert _signs(lambda a, _: a >= 0.0) == {"a": "nonnegative"}
    assert _signs(lambda a, _: a >= 1.0) == {"a": "positive"}
    assert _signs(lambda a, _: a < 0.0) == {"a": "negative"}
    assert _signs(lambda a, _: a <= 0.0) == {}
    assert _signs(lambda a, _: a <= -1.0) == {"a": "negative"}
    assert _signs(lambda a, _: a > -1.0) == {}


def _defined(condition: Any) -> dict[str, str]:
    @rule("right/definitions")
    def one(x: Tensor, a: Float, b: Float) -> Sides:
        """For its conditions."""
        both = ops.Scale(ops.Scale(x, factor=a), factor=b)
        return both, ops.Scale(ops.Scale(x, factor=b), factor=a), condition(a, b)

    return {name: str(value) for name, value in definitions(one)}


def test_conditions_tell_values() -> None:
    assert _defined(lambda a, b: a == 1.0 / b) == {"a": "(1.0 / b)"}
    assert _defined(lambda a, b: 1.0 - a == b * b)["a"] == "(1.0 - (b * b))"
    assert _defined(lambda a, b: a * 2.0 == b * b)["a"] == "((b * b) / 2.0)"
    # a b = c² solves for neither: both of a and c may be 0.
    assert _defined(lambda a, b: a * b == b * b) == {}
    (gap,) = _defined(lambda a, b: a <= b).values()
    assert "nonnegative" in gap
    (gap,) = _defined(lambda a, b: a < b).values()
    assert "positive" in gap


# Where sides are defined -------------------------------------------------------------------------


@rule("right/any")
def _any(x: Tensor, a: Float) -> Sides:
    """Whose condition tells nothing of 0."""
    return ops.Scale(x, factor=a), ops.Scale(x, factor=a), a != 1.0


@rule("right/nonzero")
def _nonzero(x: Tensor, a: Float) -> Sides:
    """Whose condition tells that a is not 0."""
    return ops.Scale(x, factor=a), ops.Scale(x, factor=a), a != 0.0


A = Parameter("a", "unknown")
_SHARE = Inverse(Plus((X, Y)))
_POLE = _call("Where", Z, Inverse(Plus((X, Y))), ONE)


@pytest.mark.parametrize(
    ("left", "right", "of", "expected"),
    [
        (X, Inverse(X), _any, "the right side divides"),
        (Inverse(X), Inverse(X), _any, ""),
        (X, Inverse(K), _any, ""),
        (X, Inverse(L), _any, ""),
        (X, Inverse(P), _any, "the right side divides"),
        (X, Inverse(A), _any, "the right side divides"),
        (X, Inverse(A), _nonzero, ""),
        (X, _call("Sqrt", X), _any, "the right side takes a root"),
        (_call("Sqrt", X), _call("Sqrt", X), _any, ""),
        (X, _call("Sqrt", Times((X, X))), _any, ""),
        (X, _call("Sqrt", _minus(Times((X, X)))), _any, "the right side takes a root"),
        (X, _call("Sqrt", Times((X, X, X))), _any, "the right side takes a root"),
        (X, _call("Log", P), _any, "the right side divides"),
        (_call("Sqrt", X), Inverse(X), _any, "the right side divides"),
        (_call("Max", Inverse(_call("Relu", X)), Y), X, _any, "the left side divides"),
        (_call("Where", Z, _call("Sqrt", X), Y), X, _any, "the left side takes a root"),
        (_call("Max", Inverse(X), Y), Inverse(X), _any, "the right side divides"),
        (_SHARE, _call("Sqrt", _call("Pow", Plus((X, Y)), _number(-2))), _any, ""),
        (_SHARE, _call("Sqrt", _SHARE), _any, "the right side takes a root"),
        (_POLE, X, _any, ""),
        (_POLE, Inverse(Plus((X, Y))), _any, "the right side divides"),
        (_call("Where", Z, Inverse(_call("Sin", X)), ONE), X, _any, "the left side divides"),
        (Choice(_LESS, Inverse(X), X), Choice(_LESS, X, Inverse(X)), _any,
         "the right side divides"),
        (_call("Where", _number(0), Inverse(X), X), Inverse(X), _any, "the right side divides"),
        (Reduce("max", ((_V, N),), TRUE, Inverse(Read("x", (atom(_V),)))), X, _any, ""),
        (Reduce("max", ((_V, N),), TRUE, Inverse(_call("Relu", Read("x", (atom(_V),))))), X, _any,
         "the left side divides"),
    ],
)  # fmt: skip
def test_a_side_needs_a_value_where_the_other_has_one(
    left: Scalar, right: Scalar, of: Rule, expected: str
) -> None:
    doubt = undefined(left, right, of, _context(at_least(N, 1))) or ""
    assert doubt.startswith(expected) if expected else not doubt


# What is enumerated ------------------------------------------------------------------------------


def test_every_combination_of_choices_is_met() -> None:
    def two(chooser: Chooser) -> tuple[str, str]:
        choices = Choices(chooser.choose)
        first = choices.pick("first", "abc")
        assert choices.pick("first", "abc") == first
        return first, choices.pick("second", "de")

    met = list(Decisions(two).core())
    assert met == [(a, b) for a in "abc" for b in "de"]


def test_work_is_counted() -> None:
    budget = Budget(0.01)

    def work() -> None:
        for _ in range(100):
            budget.step()

    with pytest.raises(OutOfWork):
        work()


def _scenarios(one: Rule, key: str) -> set[Any]:
    found = {str(scenario.choices.get(key)) for scenario in scenarios(one)}
    return found


@rule("right/reduced")
def _reduced(x: Tensor, k: Ints, d: Int) -> Sides:
    """Any axes, kept or not."""
    attrs = {"axes": k, "keepdims": d}
    return ops.ReduceSum(x, **attrs), ops.ReduceSum(x, **attrs), k[0] <= x.rank, x.rank == 2


@rule("right/pooled")
def _pooled(x: Tensor, c: Int, i: Int) -> Sides:
    """Any flags."""
    attrs = {
        "kernel": (2,), "strides": (2,), "pads": (0, 0), "dilations": (1,), "ceil": c,
        "count_include_pad": i,
    }  # fmt: skip
    return ops.AveragePool(x, **attrs), ops.AveragePool(x, **attrs), x.rank == 3


@rule("right/plain")
def _plain(x: Tensor) -> Sides:
    """Any rank."""
    return ops.Relu(x), ops.Relu(x)


@rule("right/padded")
def _padded(x: Tensor, a: Int, b: Int) -> Sides:
    """Of any sign."""
    return ops.Pad(x, pads=(a, b), value=0.0), ops.Pad(x, pads=(a, b), value=0.0), a < b


@rule("right/padded-by-list")
def _padded_by_list(x: Tensor, p: Ints) -> Sides:
    """Of any sign, too."""
    return ops.Pad(x, pads=p, value=0.0), ops.Pad(x, pads=p, value=0.0), x.rank == 1


def test_every_form_is_a_scenario() -> None:
    (listed,) = scenarios(_padded_by_list)
    assert at_least(atom("p[0]"), 1) not in listed.premises
    assert _scenarios(_plain, "rank x") == set("012345")
    assert _scenarios(_reduced, "d") == {"0", "1"}
    assert len(_scenarios(_reduced, "k")) == 4  # (0), (1), (0, 1) and, as one looks, (1, 0)
    assert _scenarios(_pooled, "c") == {"0", "1"}
    assert _scenarios(_pooled, "i") == {"0", "1"}
    (padded,) = scenarios(_padded)
    assert less(atom("a"), atom("b")) in padded.premises
    assert at_least(atom("a"), 1) not in padded.premises


def test_expressions_and_conditions_mean_what_they_say() -> None:
    x = Tensor("x")
    values = Values(_plain, ranks={"x": 2})
    n, m = values.value(x.dim(0)), values.value(x.dim(1))
    assert values.condition(x.dim(0) < x.dim(1)) == less(n, m)
    assert values.condition(x.dim(0) <= x.dim(1)) == at_least(m, n)
    assert values.condition(x.dim(0) == x.dim(1)) == equal(n, m)
    assert values.condition(x.dim(0) != x.dim(1)) != values.condition(x.rank == 2)
    assert values.value(x.dim(0) // x.dim(1)) == quotient(n, m)
    assert at_least(n, 1) in values.unifier.premises([])
    values.ranks["y"] = 2
    assert values.condition(x.shape == Tensor("y").shape) != values.condition(x.rank == 2)
    with pytest.raises(Unindexed):
        values.value(x.dim(0) // (x.dim(1) - 1))


# What is left to prove ---------------------------------------------------------------------------


def test_an_axis_that_is_read_alike_plays_no_part() -> None:
    def left(*reads: tuple[Poly, ...]) -> Normal:
        return obligation(tuple(p for r in reads for p in single(Read("x", r))), ()).sum

    def index(sum_: Normal) -> list[int]:
        return [len(f.index) for part in sum_ for f in part.factors if isinstance(f, Read)]

    assert index(left((AT, J), (AT, N))) == [1, 1]
    assert index(left((AT, J), (N, J + 1))) == [2, 2]
    summed = obligation(normalise(_sum(Read("x", (atom(_V),)), N)), ()).sum
    assert index(summed) == [1]


def test_assumptions_that_share_symbols_are_kept() -> None:
    facts = [less(AT, N), less(J, M), at_least(M, 1)]
    kept = obligation(single(Read("x", (AT,))) + single(Read("x", (N,))), facts)
    assert kept.assumptions == (less(AT, N),)
    (_, bare), (_, guarded) = kept.statements()
    assert (len(bare), len(guarded)) == (0, 1)


def test_powers_of_numbers_are_exact() -> None:
    twelve = normalise(_number(12))
    (root,) = power(twelve, HALF)
    assert root.coefficient == 2
    (inverse,) = power(twelve, Fraction(-1))
    assert inverse.coefficient == Fraction(1, 12)
    (third,) = power(normalise(_number(Fraction(1, 12))), HALF)
    assert third.coefficient == Fraction(1, 6)
    (kept,) = power(normalise(_number(-4)), HALF)
    assert kept.factors == (Power(normalise(_number(-1)), HALF),)


# Rules as a whole --------------------------------------------------------------------------------


@rule("wrong/second-root")
def _second_root(x: Tensor, y: Tensor) -> Sides:
    """The first equation holds, the second does not."""
    return (ops.Max(x, y), x + y), (ops.Max(y, x), x - y), x.shape == y.shape


def _nothing(x: Tensor) -> Term:
    """0, where x is not."""
    return ops.Reciprocal(x) - ops.Reciprocal(x)


@rule("wrong/backwards", bidirectional=True)
def _backwards(x: Tensor) -> Sides:
    """Right from left to right: where x is 0 the left side has no value, the right one has."""
    return ops.Relu(x) + _nothing(x), ops.Relu(x)


@rule("wrong/functions")
def _functions(f: Func, g: Func, x: Tensor) -> Sides:
    """Two functions are two."""
    return f(g(x)), g(f(x))


@rule("wrong/never")
def _never(x: Tensor) -> Sides:
    """It never types."""
    return ops.Relu(x), ops.Relu(x), x.rank == 2, x.rank == 3


@rule("wrong/other-domain")
def _other_domain(x: Tensor) -> Sides:
    """The right side has no value where x is 0."""
    return ops.Relu(x), ops.Relu(x) + _nothing(x), x.rank == 1


@rule("wrong/rank-as-number")
def _rank_as_number(x: Tensor) -> Sides:
    """Twice the rank is no place, and no number either."""
    return ops.Relu(x), ops.Shift(ops.Relu(x), offset=real(x.rank) * 0.0)


@rule("wrong/far-place")
def _far_place(x: Tensor) -> Sides:
    """It counts more axes than are tried."""
    return ops.Relu(x), ops.Relu(x), x.rank >= 1, x.rank != 6


@rule("wrong/nested-places")
def _nested_places(x: Tensor, p: Ints, i: Int) -> Sides:
    """A list at a place that comes from itself."""
    turned = ops.Transpose(ops.Softmax(x, axis=i), perm=p)
    return turned, turned, p[p[i]] <= x.rank


@rule("wrong/whole")
def _whole(x: Tensor) -> Sides:
    """Whole numbers that a quotient would round."""
    one = ops.Scalar(value=1.0, dtype="int64")
    return x / (one + one), x / (one + one)


@rule("wrong/made-whole")
def _made_whole(x: Tensor) -> Sides:
    """A half is not a whole number."""
    half = ops.Scalar(value=0.5, dtype="int64")
    return x + half, half + x


@rule("wrong/wide-bound")
def _wide_bound(x: Tensor, p: Ints, i: Int) -> Sides:
    """Ranks up to 9 are not all tried."""
    turned = ops.Transpose(ops.Softmax(x, axis=i), perm=p)
    return turned, turned, x.rank <= 9, p[p[i]] <= x.rank


@pytest.mark.parametrize(
    "one",
    [
        _second_root, _backwards, _functions, _never, _other_domain, _rank_as_number, _whole,
        _made_whole,
    ],
    ids=lambda one: one.name,
)  # fmt: skip
def test_no_proof_of_what_is_wrong_or_out_of_reach(one: Rule) -> None:
    assert not _proven(one)


@pytest.mark.parametrize("one", [_rank_as_number, _far_place, _nested_places, _wide_bound])
def test_ranks_that_instances_do_not_tell_of(one: Rule) -> None:
    assert uneven_ranks(one) is not None
    assert uneven_ranks(_plain) is None


def test_a_proof_says_of_which_elements_it_speaks() -> None:
    x, y = Tensor("x"), Tensor("y")

    def spoken(term: Term, *when: Any) -> str:
        @rule("right/elements")
        def one(x: Tensor, y: Tensor) -> Sides:
            """For its elements."""
            return term, term, *when

        return elements_of(one)

    assert spoken(x + y * x) == "elements of any type"
    assert spoken(ops.Max(x, y)) == "elements of any type"
    assert spoken(ops.Max(x, y) + x, is_float(x)) == "floating point elements"
    assert spoken(ops.Exp(x) / y) == "floating point elements"
    assert spoken(ops.Max(ops.Shift(x, offset=1.0), y)) == "floating point elements"
    one = ops.Scalar(value=1.0, dtype="int64")
    half = ops.Cast(one / (one + one), to="float32")
    for term in (ops.Max(x, y) + x, x / y, ops.Abs(x * y), half * ops.Exp(x)):
        with pytest.raises(Rounded):
            spoken(term)


def test_classes_keep_the_bounds_of_all_members() -> None:
    classes = Classes()
    classes.at_least("a", 2)
    classes.at_most("b", 5)
    classes.at_least("b", 1)
    classes.join("a", "b")
    assert classes.same("a", "b")
    assert not classes.same("a", "c")
    assert (classes.least("b"), classes.most("a")) == (2, 5)
    classes.at_most("a", 9)
    assert classes.most("b") == 5
    classes.join("c", "d")
    classes.join("d", "b")
    assert classes.same("c", "a")
    assert classes.least("c") == 2


def test_a_plain_rule_is_proven() -> None:
    assert _proven(_plain)


@rule("right/rare")
def _rare(x: Tensor) -> Sides:
    """Its conditions hold at large sizes only."""
    return ops.Relu(x), ops.Relu(x), x.dim(0) >= 40, x.rank == 1


def test_sizes_that_are_rare_occur() -> None:
    (rare,) = scenarios(_rare)
    assert driver._occurs(rare, _context(*rare.premises))


def test_what_is_known_rests_on_what_was_assumed() -> None:
    context, known = _context(), driver._Known()
    sum_ = normalise(Choice(less(AT, N), X, Y)) + negative(normalise(X))
    for _ in range(2):
        assert driver._proved(obligation(sum_, [less(AT, N)]), context, known)
        assert not driver._proved(obligation(sum_, [less(AT, N + 1)]), context, known)
