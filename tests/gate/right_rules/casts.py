"""Casts that are exact, and truth values as numbers."""

from eqsat_opt.rules import Sides, Tensor, Term, is_float, ops, rule


def _number(c: Term) -> Term:
    return ops.Cast(c, to="float32")


@rule("casts/by-a-wider-type")
def by_a_wider_type(x: Tensor) -> Sides:
    """A wider type holds every number of a narrower one."""
    return ops.Cast(ops.Cast(x, to="float64"), to="float32"), _number(x), is_float(x)


@rule("casts/twice-the-same")
def twice_the_same(x: Tensor) -> Sides:
    """What has a type keeps it."""
    wide = ops.Cast(x, to="float64")
    return ops.Cast(wide, to="float64"), wide, is_float(x)


@rule("casts/of-a-positive-part")
def of_a_positive_part(x: Tensor) -> Sides:
    """A cast keeps signs and order."""
    return ops.Cast(ops.Relu(x), to="float64"), ops.Relu(ops.Cast(x, to="float64")), is_float(x)


@rule("casts/of-a-negation")
def of_a_negation(c: Tensor) -> Sides:
    """Not c is 1 - c."""
    return _number(ops.Not(c)), ops.Shift(ops.Neg(_number(c)), offset=1.0)


@rule("casts/of-a-disjunction")
def of_a_disjunction(a: Tensor, b: Tensor) -> Sides:
    """Either is the greater."""
    return _number(ops.Or(a, b)), ops.Max(_number(a), _number(b))


@rule("casts/there-and-back")
def there_and_back(a: Tensor) -> Sides:
    """A truth value is one of two numbers."""
    return ops.Cast(_number(ops.Not(a)), to="bool"), ops.Not(a)


@rule("casts/chosen-one")
def chosen_one(c: Tensor) -> Sides:
    """1 where it holds and 0 elsewhere."""
    one, nothing = (ops.Scalar(value=value, dtype="float32") for value in (1.0, 0.0))
    return ops.Where(c, one, nothing), _number(c)
