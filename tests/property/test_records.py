"""Operators compute on records of errors what they compute on numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.proving.checks import bounds
from eqsat_opt.proving.numbers.evaluation import Step
from tests.property.test_index_semantics import PROPOSERS, Generator

_IMAGE = (1, 2, 3, 4)
_RESIZED = {
    "coordinates": "half_pixel", "rounding": "floor", "sizes": (), "up": (1, 1, 2, 2),
    "down": (1, 1, 1, 1),
}  # fmt: skip
_OTHERS: tuple[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]], ...] = (
    *(
        ("CumSum", (_IMAGE,), {"axis": 2, "exclusive": exclusive, "reverse": reverse})
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    ("Mod", (_IMAGE, _IMAGE), {"fmod": 1}),
    ("Range", ((), (), ()), {"shape": (4,)}),
    ("ReduceProd", (_IMAGE,), {"axes": (1, 3), "keepdims": 1}),
    ("Resize", (_IMAGE,), {**_RESIZED, "mode": "linear"}),
    ("Resize", (_IMAGE,), {**_RESIZED, "mode": "nearest"}),
    ("Clamp", (_IMAGE, (), ()), {}),
    ("PRelu", (_IMAGE, (4,)), {}),
    ("Cast", (_IMAGE,), {"to": "float32"}),
)
"""Operators, shapes and attributes that `PROPOSERS` does not propose."""


def _values(op: str, seed: int) -> tuple[Any, Any] | None:
    """Return the numbers of records and those of floating point; ``None`` without a type."""
    generator = Generator(seed)
    leaf = generator.leaf(generator.shape(generator.between(0, 4)))
    try:
        operands, attrs = PROPOSERS[op](generator, leaf)
        generator.apply(op, operands, attrs)
    except IllTyped:
        return None
    pool = np.random.default_rng(seed).uniform(0.5, 2.0, 7).astype(np.float32)
    given = [
        one.array % 3 == 0
        if one.type.dtype == "bool"
        else one.array
        if op == "Gather" and place == 1
        else pool[one.array % 7]
        for place, one in enumerate(operands)
    ]
    return _both(op, given, attrs)


def _both(op: str, given: list[Any], attrs: Any) -> tuple[Any, Any]:
    domain = bounds._BoundedDomain("float32", np.asarray([2.0**-24]))
    codes = [
        domain.stored(domain.exactly(np.asarray(one, np.float64)[..., None]), one.shape)
        for one in given
    ]
    with np.errstate(all="ignore"):
        found = domain.rows(domain.step(Step(op, attrs, ()), codes)).value[..., 0]
        return found, np.asarray(get_op(op).eval_fn(FLOAT, given, attrs))


@pytest.mark.parametrize("op", sorted(PROPOSERS))
def test_records_hold_the_numbers(op: str) -> None:
    pairs = [pair for seed in range(12) if (pair := _values(op, seed)) is not None]
    assert pairs
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected.astype(np.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("op", "shapes", "attrs"), _OTHERS)
def test_records_of_other_operators_hold_the_numbers(
    op: str, shapes: tuple[tuple[int, ...], ...], attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(3)
    given = [rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in shapes]
    found, expected = _both(op, given, attrs)
    np.testing.assert_allclose(found, expected.astype(np.float64), rtol=1e-5)
