"""Operators compute on codes of terms what they compute on numbers."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.domains import FieldDomain
from eqsat_opt.proving.checks.rounding import InOrderDomain
from eqsat_opt.proving.numbers.terms import OPAQUE, TermDomain
from tests.property.test_index_semantics import PROPOSERS, Generator


def values_of_equal_terms_agree(op: str, seed: int) -> bool | None:
    """Whether an operator does to codes of terms what it does to numbers, of which many are alike.

    ``None`` where it does not type.
    """
    generator = Generator(seed)
    leaf = generator.leaf(generator.shape(generator.between(0, 4)))
    try:
        operands, attrs = PROPOSERS[op](generator, leaf)
        generator.apply(op, operands, attrs)
    except IllTyped:
        return None
    few = [operand.array % 3 for operand in operands]
    pool = np.random.default_rng(seed).standard_normal(3).astype(np.float32)
    floats = [
        o == 0 if v.type.dtype == "bool" else pool[o] for o, v in zip(few, operands, strict=True)
    ]
    for name, domain, numbers in (
        ("float", InOrderDomain(), floats),
        ("exact", FieldDomain(), [o + 5 for o in few]),
    ):
        evaluate_on = get_op(op).eval_fn
        with np.errstate(all="ignore"):
            terms = TermDomain(name).variable("x", (3,))
            codes = np.asarray(evaluate_on(TermDomain(name), [terms[o] for o in few], attrs))
            values = np.asarray(evaluate_on(domain, numbers, attrs))
        assert codes.shape == values.shape
        for code in np.unique(codes):
            alike = values[codes == code]
            if not np.array_equal(alike, np.broadcast_to(alike[0], alike.shape), equal_nan=True):
                return False
    return True


@pytest.mark.parametrize("op", sorted({*PROPOSERS} - OPAQUE))
def test_equal_terms_have_equal_values(op: str) -> None:
    held = [values_of_equal_terms_agree(op, seed) for seed in range(20)]
    assert False not in held
    assert held.count(True) >= 3


def test_an_operator_that_reads_numbers_itself_has_no_terms() -> None:
    assert "ReduceMin" in OPAQUE
    assert False in [values_of_equal_terms_agree("ReduceMin", seed) for seed in range(20)]
