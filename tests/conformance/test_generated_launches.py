"""Launches that are generated for this processor: every operator against the registry.

Pointwise operators of float32 are compared one by one in ``test_generated.py``; what is compared
here are reductions, windows, products, movements of other types, in every form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import TensorType, numpy_dtype, require_static
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.generated.eligible import LEFT_OUT, is_eligible
from eqsat_opt.runtime.backends.generated.launcher import GeneratedLauncher
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.plan.plan import Buffer, Launch, dense_strides
from tests.cuda_host.cases import (
    DTYPES,
    FORMS,
    LOOPED,
    Case,
    cases,
    formed,
    operands_of,
    with_dtype,
)
from tests.cuda_host.chains import CHAINS, chain, evaluated
from tests.cuda_host.harness import node_graph
from tests.cuda_host.judging import difference

if why := compiler_missing():
    pytest.skip(why, allow_module_level=True)

Array = NDArray[Any]


def body_of(case: Case) -> Kernel:
    operands = tuple(Operand(t, False) for t in case.types)
    step = Step(case.op, attributes(**case.attrs), tuple(range(len(operands))))
    return Kernel(operands, (step,), (len(operands),))


def failures(drawn: Iterator[tuple[Case, str]]) -> dict[str, str]:
    """What a launch of each case gives wrongly; all are compiled together."""
    launcher = GeneratedLauncher()
    launches: list[tuple[Case, Launch, Bound]] = []
    buffers: dict[str, Buffer] = {}
    for i, (case, form) in enumerate(drawn):
        arrays = [formed(x, form) for x in operands_of(case)]
        result = formed(
            np.zeros(require_static(case.result).shape, numpy_dtype(case.result.dtype)), form
        )
        names = [f"{i}_{k}" for k in range(len(arrays) + 1)]
        for name, x in zip(names, [*arrays, result], strict=True):
            strides = tuple(stride // x.itemsize for stride in x.strides)
            buffers[name] = Buffer(name, str(x.dtype), x.shape, strides)
        reads, writes = tuple(names[:-1]), (names[-1],)
        launch = Launch(f"{i}", "generated", body_of(case), "default", reads=reads, writes=writes)
        bound = Bound(tuple(arrays), (result,), np.empty(0, np.uint8))
        launches.append((case, launch, bound))
    launcher.prepare([launch for _, launch, _ in launches], buffers)
    found = {}
    for case, launch, bound in launches:
        (result,) = bound.writes
        result[...] = result.dtype.type(77 if result.dtype.kind in "iub" else "nan")
        launcher.build(launch, bound)()
        if wrong := difference(case, bound.reads, result):
            found[f"{case} {launch.name}"] = wrong
    return found


def launched(jobs: Sequence[tuple[Kernel, Sequence[Array]]]) -> list[list[Array]]:
    """What launches of dense memory give; all are compiled together."""
    launcher, every = GeneratedLauncher(), []
    buffers: dict[str, Buffer] = {}
    for number, (body, operands) in enumerate(jobs):
        reads = [np.ascontiguousarray(x) for x in operands]
        shapes = [body.required_types()[i].shape for i in body.outputs]
        writes = [np.full(shape, np.nan, np.float32) for shape in shapes]
        names = [f"{number}_{i}" for i in range(len(reads) + len(writes))]
        for name, x in zip(names, [*reads, *writes], strict=True):
            buffers[name] = Buffer(name, "float32", x.shape, dense_strides(x.shape))
        launch = Launch(
            f"{number}", "generated", body, "default",
            reads=tuple(names[: len(reads)]), writes=tuple(names[len(reads) :]),
        )  # fmt: skip
        every.append((launch, Bound((*reads,), (*writes,), np.empty(0, np.uint8))))
    launcher.prepare([launch for launch, _ in every], buffers)
    for launch, bound in every:
        launcher.build(launch, bound)()
    return [list(bound.writes) for _, bound in every]


def structured() -> Sequence[str]:
    return [name for name in LOOPED if get_op(name).kind not in ("pointwise", "movement")]


def test_reductions_windows_and_products_agree_with_the_registry() -> None:
    drawn = [
        (case, FORMS[i % len(FORMS)])
        for op in structured()
        for i, case in enumerate(cases(op))
        if i < 2
    ]
    drawn += [(next(cases(op)), "backwards") for op in ("Add", "Transpose", "Concat", "Tanh")]
    assert failures(iter(drawn)) == {}


@pytest.mark.slow
def test_every_operator_element_type_and_form() -> None:
    drawn = [(case, form) for op in LOOPED for case in cases(op) for form in FORMS]
    for op in LOOPED:
        for case in cases(op):
            found = (with_dtype(case, dtype) for dtype in DTYPES)
            drawn += [(one, "dense") for one in found if one is not None and one != case]
    assert {get_op(case.op).name for case, _ in drawn} == set(LOOPED)
    assert failures(iter(drawn)) == {}


def test_several_operators_are_one_kernel() -> None:
    rng = np.random.default_rng(0)
    jobs = []
    for body in map(chain, CHAINS):
        shapes = [require_static(operand.type).shape for operand in body.operands]
        jobs.append((body, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]))
    for name, found, (body, operands) in zip(CHAINS, launched(jobs), jobs, strict=True):
        for one, expected in zip(found, evaluated(body, operands), strict=True):
            assert np.abs(one - expected).max() <= 1e-6 * np.abs(expected).max(), name


def test_special_values_stay_what_they_are() -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 1000.0, -1000.0]
    rng = np.random.default_rng(0)
    x = rng.choice(np.array(special + [1.0] * 30, np.float32), (12, 40))
    x[0], x[1], x[2] = 1000, -np.inf, np.inf
    x[3:5] = np.abs(rng.standard_normal((2, 40)))
    type_ = TensorType("float32", x.shape)
    drawn = [
        Case("Softmax", (type_,), {"axis": 1}),
        Case("LogSoftmax", (type_,), {"axis": 1}),
        Case("ReduceMax", (type_,), {"axes": (1,), "keepdims": 0}),
        Case("ReduceMin", (type_,), {"axes": (0,), "keepdims": 0}),
        Case("ReduceSum", (type_,), {"axes": (1,), "keepdims": 1}),
    ]
    for case, (found,) in zip(drawn, launched([(body_of(c), [x]) for c in drawn]), strict=True):
        with np.errstate(all="ignore"):
            expected = get_op(case.op).eval_fn(FLOAT, [x], case.attrs)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-30, err_msg=case.op)


def test_sums_over_any_axes_and_over_nothing() -> None:
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(2, 1, 3, 2, 1, 2, 3)[:rank] for rank in range(1, 8)]
    jobs, sums = [], []
    for shape in [*shapes, (0, 5), (5, 0), (0, 0)]:
        x = rng.standard_normal(shape).astype(np.float32)
        axes = tuple(range(len(shape) % 2, len(shape), 2))
        case = Case("ReduceSum", (TensorType("float32", shape),), {"axes": axes, "keepdims": 0})
        if axes:
            jobs.append((body_of(case), [x]))
            sums.append(x.astype(np.float64).sum(axes))
    for (found,), expected in zip(launched(jobs), sums, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_what_is_left_out_has_a_reason() -> None:
    """Every other operator is offered, of float32 where it takes it."""
    offered = {op for op in LOOPED for case in cases(op) if is_offered(case)}
    others = {"And", "Or", "Xor", "Not", "IsNaN", "Where", "Cast", "Equal"}
    others |= {"Greater", "Less", "GreaterOrEqual", "LessOrEqual"}
    assert set(LOOPED) - offered == others | LEFT_OUT.keys()


def is_offered(case: Case) -> bool:
    graph = node_graph(case.op, case.types, case.attrs)
    return is_eligible(graph, graph.nodes, graph.outputs)


def test_long_products_are_the_business_of_others() -> None:
    sides = TensorType("float32", (512, 512))
    assert not is_offered(Case("MatMul", (sides, sides), {}))
    assert is_offered(Case("MatMul", (TensorType("float32", (8, 512)), sides), {}))
