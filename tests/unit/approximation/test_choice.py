"""The choice is the optimum: nothing that keeps the limits takes less time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_opt.approximation.choice import (
    EXACT,
    Held,
    HeldForm,
    KernelOption,
    Option,
    floats_us,
    select_within,
)

_F, _RUN, _STATIC = HeldForm.FLOATS, HeldForm.RUN_RANGE, HeldForm.STATIC_RANGE
_TIMES = st.integers(0, 20).map(float)
_SQUARES = st.tuples(*[st.integers(0, 9).map(float)] * 2)


@st.composite
def chains(draw: st.DrawFn) -> tuple[KernelOption, ...]:
    """Draw a chain of two operators, each in floats and in some of the other forms."""
    options = st.lists(st.tuples(_TIMES, _SQUARES), max_size=2)
    kernels: list[KernelOption] = []
    for read, made in itertools.pairwise(("x", "y", "z")):
        kernels.append(KernelOption((made, _F), ((read, _F),), (Option(EXACT, draw(_TIMES)),)))
        kernels.append(KernelOption((read, _RUN), ((read, _F),), (Option(EXACT, draw(_TIMES)),)))
        rounding = Option(EXACT, draw(_TIMES), draw(_SQUARES))
        kernels.append(KernelOption((read, _STATIC), ((read, _F),), (rounding,)))
        kernels.append(KernelOption((made, _F), ((made, _STATIC),), (Option(EXACT, draw(_TIMES)),)))
        for form in (_RUN, _STATIC):
            found = tuple(
                Option(f"{form.name} {number}", *one) for number, one in enumerate(draw(options))
            )
            if found:
                result = (made, _F if form is _RUN else _STATIC)
                kernels.append(KernelOption(result, ((read, form),), found))
    return tuple(kernels)


def _least_time(
    kernels: Sequence[KernelOption], needed: Sequence[str], limits: tuple[float, float]
) -> float:
    """Try all choices of a kernel and an option for each value and form."""
    picks: dict[Held, list[tuple[KernelOption, Option] | None]] = {}
    for kernel in kernels:
        picks.setdefault(kernel.makes, [None]).extend((kernel, one) for one in kernel.options)
    best = math.inf
    for choice in itertools.product(*picks.values()):
        taken = dict(zip(picks, choice, strict=True))
        used = _used(taken, [(name, _F) for name in needed])
        if used is None:
            continue
        totals = [sum(one.square(i) for _, one in used) for i in range(2)]
        if all(total <= limit for total, limit in zip(totals, limits, strict=True)):
            best = min(best, sum(one.time_us for _, one in used))
    return best


def _used(
    taken: Mapping[Held, tuple[KernelOption, Option] | None], needed: Sequence[Held]
) -> list[tuple[KernelOption, Option]] | None:
    """Return the kernels of a choice that are needed; ``None`` if one is missing or in a circle."""
    done: dict[Held, bool] = {}
    used: list[tuple[KernelOption, Option]] = []

    def visit(held: Held) -> bool:
        if held not in taken:
            return held[1] is _F
        if held in done:
            return done[held]
        done[held] = False
        pick = taken[held]
        if pick is None or not all(map(visit, pick[0].reads)):
            return False
        used.append(pick)
        done[held] = True
        return True

    return used if all(map(visit, needed)) else None


@settings(max_examples=25, deadline=None)
@given(
    chains(),
    st.sampled_from((("z",), ("y", "z"))),
    st.tuples(*[st.sampled_from((0.0, 3.0, 8.0, math.inf))] * 2),
)
def test_nothing_within_the_limits_is_faster(
    kernels: tuple[KernelOption, ...], needed: tuple[str, ...], limits: tuple[float, float]
) -> None:
    found = select_within(kernels, needed, limits, time_limit_s=10)
    assert found.time_us == pytest.approx(_least_time(kernels, needed, limits), abs=1e-6)
    assert found.bound_us <= found.time_us + 1e-9
    assert all(square <= limit + 1e-9 for square, limit in zip(found.squares, limits, strict=True))


def _operator(read: str, made: str, form: HeldForm) -> tuple[KernelOption, KernelOption]:
    result = (made, _F if form is _RUN else _STATIC)
    return (
        KernelOption((made, _F), ((read, _F),), (Option(EXACT, 5.0),)),
        KernelOption(result, ((read, form),), (Option("int8", 1.0, (0.0,)),)),
    )


def test_readers_share_a_conversion() -> None:
    rows = KernelOption(("x", _RUN), (("x", _F),), (Option(EXACT, 6.0),))
    alone = (*_operator("x", "a", _RUN), rows)
    both = (*alone, *_operator("x", "b", _RUN))
    assert select_within(alone, "a", [1.0], time_limit_s=5).chosen == {}
    found = select_within(both, "ab", [1.0], time_limit_s=5)
    assert (found.chosen, found.time_us, found.squares) == (
        dict.fromkeys("ab", "int8"),
        8.0,
        (0.0,),
    )
    assert floats_us(both) == 10.0


def test_a_chain_converts_at_its_ends_only() -> None:
    ends = (
        KernelOption(("x", _STATIC), (("x", _F),), (Option(EXACT, 3.0),)),
        KernelOption(("y", _F), (("y", _STATIC),), (Option(EXACT, 3.0),)),
        KernelOption(("z", _F), (("z", _STATIC),), (Option(EXACT, 3.0),)),
    )
    one = (*_operator("x", "y", _STATIC), *ends)
    two = (*one, *_operator("y", "z", _STATIC))
    assert select_within(one, "y", (), time_limit_s=5).chosen == {}
    found = select_within(two, "z", (), time_limit_s=5)
    assert (found.chosen, found.time_us) == (dict.fromkeys("yz", "int8"), 8.0)
