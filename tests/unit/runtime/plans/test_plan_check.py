"""Regions of bytes, the order of launches, and what is refused as unsafe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.plan.byte_regions import ByteRegion, covers, overlap, region, union
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.order import happens_before, linear_extension
from eqsat_opt.runtime.plan.plan import Buffer, Launch, Literal, Plan, Port, Workspace

# ** regions **

_TENSORS = st.integers(0, 3).flatmap(
    lambda rank: st.tuples(
        st.integers(0, 30),
        st.lists(st.integers(0, 3), min_size=rank, max_size=rank),
        st.lists(st.integers(0, 20), min_size=rank, max_size=rank),
        st.sampled_from((1, 2, 4)),
    )
)


def bytes_of(offset: int, dims: list[int], strides: list[int], itemsize: int) -> set[int]:
    places = (
        offset + sum(i * s for i, s in zip(index, strides, strict=True))
        for index in np.ndindex(*dims)
    )
    return {place + byte for place in places for byte in range(itemsize)}


def members(found: ByteRegion) -> set[int]:
    pairs = zip(found.starts, found.ends, strict=True)
    return {byte for begin, end in pairs for byte in range(begin, end)}


@given(_TENSORS, _TENSORS)
def test_regions_are_exact(
    a: tuple[int, list[int], list[int], int], b: tuple[int, list[int], list[int], int]
) -> None:
    first, second = region(*a), region(*b)
    one, other = bytes_of(*a), bytes_of(*b)
    assert members(first) == one
    assert first.size_bytes == len(one)
    assert (first.starts[1:] > first.ends[:-1]).all()
    hit = overlap(first, second)
    assert (hit is not None) == bool(one & other)
    if hit is not None:
        assert hit[0] == min(one & other)
        assert set(range(*hit)) <= one & other
    assert covers(first, second) == (other <= one)
    assert members(union([first, second])) == one | other


def test_interleaved_channels_do_not_overlap() -> None:
    left = region(0, (4, 3), (24, 4), 4)
    right = region(12, (4, 3), (24, 4), 4)
    assert overlap(left, right) is None
    assert members(union([left, right])) == set(range(96))


# ** plans by hand **

VECTOR = TensorType("float32", (8,))
RELU = Kernel((Operand(VECTOR, False),), (Step("Relu", attributes(), (0,)),), (1,))
ADD = Kernel(
    (Operand(VECTOR, False), Operand(VECTOR, False)), (Step("Add", attributes(), (0, 1)),), (2,)
)


def vector(name: str, offset: int, base: str = "") -> Buffer:
    return Buffer(name, "float32", (8,), (1,), offset=offset, base=base)


def fork() -> Plan:
    """Two branches on two streams, and a join: x → a, x → b, (a, b) → y."""
    launches = (
        Launch("a", "numpy", RELU, "default", ("x",), ("a",), stream=0),
        Launch("b", "numpy", RELU, "default", ("x",), ("b",), stream=1, records=(0,)),
        Launch("y", "numpy", ADD, "default", ("a", "b"), ("y",), stream=0, waits=(0,)),
    )
    return Plan(
        target="cpu",
        precision=Precision.STRICT,
        sizes={},
        inputs=(Port("x", "x"),),
        outputs=(Port("y", "y"),),
        buffers=(vector("x", 0), vector("a", 256), vector("b", 512), vector("y", 768)),
        constants={},
        launches=launches,
        arena_bytes=1024,
        versions={"numpy": "any"},
    )


def changed(plan: Plan, number: int, **changes: object) -> Plan:
    launches = list(plan.launches)
    launches[number] = replace(launches[number], **changes)  # type: ignore[arg-type]
    return replace(plan, launches=tuple(launches))


def moved(plan: Plan, name: str, **changes: object) -> Plan:
    buffers = tuple(
        replace(b, **changes) if b.name == name else b  # type: ignore[arg-type]
        for b in plan.buffers
    )
    return replace(plan, buffers=buffers)


def test_a_fork_is_safe() -> None:
    order = check_plan(fork())
    assert order.is_before(0, 2)
    assert order.is_before(1, 2)
    assert not order.is_before(0, 1)
    assert not order.is_before(1, 0)
    assert order.concurrent_with(0).tolist() == [False, True, False]
    assert {tuple(linear_extension(order, seed)) for seed in range(20)} == {(0, 1, 2), (1, 0, 2)}


_REFUSED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a wait is gone": (lambda p: changed(p, 2, waits=()), "does not wait for 'b' on stream 1"),
    "a wait is gone though the end waits": (
        lambda p: replace(changed(p, 2, waits=()), joins=(0,)),
        "nothing orders 'b' and 'y', which both use bytes 512 to 543",
    ),
    "an event is not recorded": (lambda p: changed(p, 1, records=()), "event 0, which nobody"),
    "an event is recorded twice": (lambda p: changed(p, 0, records=(0,)), "recorded twice"),
    "the end waits for nothing": (lambda p: replace(p, joins=(7,)), "event 7, which nobody"),
    "a circle": (
        lambda p: changed(changed(p, 1, waits=(1,)), 2, records=(1,)),
        "wait for each other in a circle",
    ),
    "a launch waits for itself": (lambda p: changed(p, 1, waits=(0,)), "circle"),
    "an event is recorded too late": (
        lambda p: replace(p, launches=(p.launches[0], p.launches[2], p.launches[1])),
        "submitted after it",
    ),
    "branches write to one place": (
        lambda p: moved(p, "b", offset=272),
        "nothing orders 'a' and 'b', which both use bytes 272 to 287",
    ),
    "a result lies on an operand": (lambda p: moved(p, "y", offset=256), "for two things"),
    "a value is overwritten while it is needed": (
        lambda p: changed(moved(p, "b", offset=0), 0, stream=1),
        "for two things",
    ),
    "a value is read before it is written": (
        lambda p: replace(p, launches=(p.launches[1], p.launches[2], p.launches[0])),
        "a part of 'a' is read by 'y' before anybody has written it",
    ),
    "a workspace lies on a value": (
        lambda p: changed(p, 1, workspace=Workspace(256, 16)),
        "nothing orders 'a' and 'b'",
    ),
    "a workspace lies on an operand": (
        lambda p: changed(p, 0, workspace=Workspace(0, 16)),
        "for two things",
    ),
    "a workspace leaves the arena": (
        lambda p: changed(p, 0, workspace=Workspace(1020, 16)),
        "up to byte 1036 of an arena of 1024",
    ),
    "a buffer leaves the arena": (
        lambda p: moved(p, "y", offset=1000),
        "ends at byte 1032 of 1024",
    ),
    "an offset amid an element": (lambda p: moved(p, "y", offset=770), "amid an element"),
    "elements in one place": (lambda p: moved(p, "y", strides=(0,)), "several elements"),
    "a negative stride": (lambda p: moved(p, "y", strides=(-1,)), "negative"),
    "an unknown buffer": (lambda p: changed(p, 0, reads=("z",)), "no buffer"),
    "other extents": (lambda p: moved(p, "a", dims=(7,)), "takes 'a' for float32"),
    "another element type": (lambda p: moved(p, "a", dtype="int32"), "takes 'a' for float32"),
    "a string": (lambda p: moved(p, "a", dtype="string"), "which no memory holds"),
    "a view into a view": (
        lambda p: moved(moved(p, "b", base="a", offset=0), "y", base="b", offset=0),
        "view into a view",
    ),
    "a view into what makes no sense": (
        lambda p: moved(moved(p, "y", strides=()), "a", base="y", offset=0),
        "another number of strides",
    ),
    "a view into nothing": (lambda p: moved(p, "y", base="z"), "is not there"),
    "two launches of one name": (lambda p: changed(p, 0, name="b"), "two launches are called 'b'"),
    "an input that is a view": (
        lambda p: moved(p, "x", base="y", offset=0),
        "arena memory of its own",
    ),
    "an output without a buffer": (lambda p: replace(p, outputs=(Port("y", "q"),)), "no buffer"),
    "a missing operand": (lambda p: changed(p, 2, reads=("a",)), "1 operands"),
    "no constant": (
        lambda p: replace(p, constants={"a": Literal((1.0,))}),
        "constant",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_not_safe_is_refused(name: str) -> None:
    change, message = _REFUSED[name]
    with pytest.raises(PlanError, match=message):
        check_plan(change(fork()))


def test_a_byte_is_written_once() -> None:
    plan = fork()
    again = Launch("again", "numpy", RELU, "default", ("x",), ("a",))
    plan = replace(plan, launches=(plan.launches[0], again, *plan.launches[1:]))
    with pytest.raises(PlanError, match="already hold a part of 'a'"):
        check_plan(plan)


def test_memory_is_reused_only_when_it_is_free() -> None:
    chain = replace(
        fork(),
        launches=(
            Launch("a", "numpy", RELU, "default", ("x",), ("a",)),
            Launch("b", "numpy", RELU, "default", ("a",), ("b",)),
            Launch("y", "numpy", RELU, "default", ("b",), ("y",)),
        ),
    )
    check_plan(moved(chain, "b", offset=0))  # x is not needed any more
    check_plan(moved(chain, "y", offset=256))  # nor is a
    kept = replace(chain, outputs=(Port("y", "y"), Port("a", "a")))
    with pytest.raises(PlanError, match="for the value 'a' and the value 'y'"):
        check_plan(moved(kept, "y", offset=256))


def test_parts_of_one_buffer_are_apart() -> None:
    """Two branches write the halves of one buffer, row by row."""
    whole = Buffer("c", "float32", (2, 8), (8, 1), offset=256)
    half = TensorType("float32", (2, 4))
    body = Kernel((Operand(half, False),), (Step("Relu", attributes(), (0,)),), (1,))
    parts = [
        Buffer(n, "float32", (2, 4), (8, 1), offset=16 * i, base="c") for i, n in enumerate("ab")
    ]
    plan = replace(
        fork(),
        buffers=(Buffer("x", "float32", (2, 4), (4, 1)), whole, *parts),
        launches=(
            Launch("a", "numpy", body, "default", ("x",), ("a",)),
            Launch("b", "numpy", body, "default", ("x",), ("b",), stream=1, records=(0,)),
        ),
        joins=(0,),
        outputs=(Port("y", "c"),),
    )
    check_plan(plan)
    with pytest.raises(PlanError, match="nothing orders 'a' and 'b'"):
        check_plan(moved(plan, "b", offset=12))
    with pytest.raises(PlanError, match="a part of 'c' is read by the outputs before"):
        check_plan(replace(plan, launches=plan.launches[:1], joins=()))


@given(st.data())
def test_clocks_are_reachability(data: st.DataObject) -> None:
    """Against paths over streams and events, for random schedules."""
    n = data.draw(st.integers(1, 7))
    launches = []
    for number in range(n):
        events = data.draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        launches.append(
            Launch(
                f"l{number}", "numpy", RELU, "default", ("x",), ("a",),
                stream=data.draw(st.integers(0, 2)), waits=tuple(sorted(events)), records=(number,),
            )
        )  # fmt: skip
    plan = replace(fork(), launches=tuple(launches))
    order = happens_before(plan)
    reach = np.zeros((n, n), bool)
    for second in range(n):
        for first in range(second):
            same = launches[first].stream == launches[second].stream
            if same or first in launches[second].waits:
                reach[:, second] |= reach[:, first]
                reach[first, second] = True
    for first, second in permutations(range(n), 2):
        assert order.is_before(first, second) == reach[first, second]
    for seed in range(5):
        extension = linear_extension(order, seed)
        assert sorted(extension) == list(range(n))
        place = {number: i for i, number in enumerate(extension)}
        assert all(place[a] < place[b] for a, b in np.argwhere(reach))
