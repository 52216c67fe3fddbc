"""Products by the real nvmath-python, which tells cuBLASLt what this one computes on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.cublaslt.recorded import HEURISTIC, MARGIN_BYTES
from eqsat_opt.runtime.backends.cublaslt.running import CublasLtRunner
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.plan.plan import Buffer, Launch, Workspace, dense_strides
from tests.tools.nvmath_on_host import HostCublasLt, HostDevice, on_host

pytest.importorskip("cupy")
pytest.importorskip("nvmath.linalg.advanced")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> HostCublasLt:
    return HostCublasLt(monkeypatch)


def product(*types: TensorType, after: Sequence[str] = ()) -> Kernel:
    """``a @ b``, and the bias and the activation behind it."""
    count = len(types)
    steps = [Step("MatMul", (), (0, 1))]
    for op in after:
        last = count + len(steps) - 1
        steps.append(Step(op, attributes(), (last, 2) if op == "Add" else (last,)))
    return Kernel(
        tuple(Operand(one, False) for one in types), tuple(steps), (count + len(steps) - 1,)
    )


Strides = Sequence[Sequence[int] | None]


class Product:
    """A launch on memory of the host.

    Args:
        shapes: of a, b and the bias, if there is one.
        strides: of these and the result, in elements; dense by default.
    """

    def __init__(
        self,
        *shapes: tuple[int, ...],
        strides: Strides = (),
        after: Sequence[str] = (),
        dtype: str = "float32",
        algorithm: str = HEURISTIC,
        workspace_bytes: int = 0,
        precision: Precision = Precision.STRICT,
    ) -> None:
        body = product(*(TensorType(dtype, one) for one in shapes), after=after)
        result = body.required_types()[body.outputs[0]].shape
        names, dims = "abc"[: len(shapes)] + "y", (*shapes, result)
        steps = [*strides, *[None] * (len(dims) - len(strides))]
        self.arrays: dict[str, NDArray[Any]] = {}
        self.buffers: dict[str, Buffer] = {}
        draw = np.random.default_rng(0)
        for name, extents, given in zip(names, dims, steps, strict=True):
            chosen = tuple(dense_strides(extents) if given is None else given)
            span = sum((d - 1) * s for d, s in zip(extents, chosen, strict=True)) + 1
            room = np.full(span + 64, np.nan, dtype)
            begin = -room.ctypes.data // room.itemsize % 32  # of 128 bytes
            view = np.lib.stride_tricks.as_strided(
                room[begin:], extents, [s * room.itemsize for s in chosen]
            )
            if name != "y":
                view[...] = draw.standard_normal(extents)
            self.arrays[name] = view
            self.buffers[name] = Buffer(name, dtype, extents, chosen)
        self.launch = Launch(
            "one", "cublaslt", body, algorithm, tuple(names[:-1]), ("y",),
            Workspace(0, workspace_bytes), precision=precision,
        )  # fmt: skip
        self.workspace = np.zeros(workspace_bytes, np.uint8)

    def run(self) -> NDArray[Any]:
        """The result, after two runs."""
        runner = CublasLtRunner(HostDevice())  # type: ignore[arg-type]
        runner.prepare([self.launch], self.buffers)
        views = {name: on_host(one) for name, one in self.arrays.items()}
        bound = Bound(
            tuple(views[name] for name in self.launch.reads),
            (views["y"],),
            on_host(self.workspace),
        )
        call = runner.build(self.launch, bound)
        call()
        call()
        return self.arrays["y"]

    @property
    def wanted(self) -> NDArray[Any]:
        a, b = (self.arrays[name].astype(np.float64) for name in "ab")
        value: NDArray[Any] = a @ b
        for step in self.launch.body.steps[1:]:
            value = value + self.arrays["c"] if step.op == "Add" else np.maximum(value, 0)
        return value

    def agrees(self) -> bool:
        bound = 1e-5 if self.arrays["y"].dtype == np.float32 else 1e-2
        return bool(np.allclose(self.run(), self.wanted, rtol=bound, atol=bound))


EPILOGUES = {"DEFAULT": (), "RELU": ("Relu",), "BIAS": ("Add",), "RELU_BIAS": ("Add", "Relu")}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(library: HostCublasLt, name: str, dtype: str) -> None:
    after = EPILOGUES[name]
    bias = [(6,)] if "Add" in after else []
    assert Product((4, 8), (8, 6), *bias, after=after, dtype=dtype).agrees()
    assert {one["epilogue"] for one in library.told} == {name}


@pytest.mark.parametrize(
    ("precision", "dtype", "told"),
    [
        (Precision.STRICT, "float32", "COMPUTE_32F"),
        (Precision.TF32, "float32", "COMPUTE_32F_FAST_TF32"),
        (Precision.FP16, "float16", "COMPUTE_32F"),
    ],
)
def test_precisions(library: HostCublasLt, precision: Precision, dtype: str, told: str) -> None:
    assert Product((4, 8), (8, 6), dtype=dtype, precision=precision).agrees()
    assert {one["compute"] for one in library.told} == {told}


MATRICES = {
    "rows with gaps": [(4, 8), (8, 6), (12, 1), (7, 1), (9, 1)],
    "by columns": [(4, 8), (8, 6), (1, 5), (1, 8), (1, 6)],
    "one row": [(1, 8), (8, 6), (3, 1), (6, 1), (2, 1)],
    "one row by columns": [(1, 8), (8, 6), (1, 3), (6, 1), (1, 3)],
    "one column": [(4, 8), (8, 1), (8, 1), (1, 1), (1, 1)],
    "one column with gaps": [(4, 8), (8, 1), (8, 1), (5, 1), (7, 1)],
    "one column by columns": [(4, 8), (8, 1), (8, 1), (1, 9), (1, 9)],
    "one factor": [(4, 1), (1, 6), (1, 1), (6, 1), (6, 1)],
    "one factor with gaps": [(4, 1), (1, 6), (5, 3), (2, 1), (6, 1)],
    "one number": [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)],
    "one number anywhere": [(1, 1), (1, 1), (4, 7), (5, 9), (8, 3)],
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_that_lie_anyhow(library: HostCublasLt, name: str) -> None:
    a, b, *strides = MATRICES[name]
    assert Product(a, b, strides=strides).agrees()


@pytest.mark.parametrize("name", MATRICES)
def test_with_a_bias_they_lie_by_rows_or_are_refused(library: HostCublasLt, name: str) -> None:
    a, b, first, second, result = MATRICES[name]
    one = Product(a, b, (b[1],), strides=[first, second, None, result], after=["Add"])
    if result[1] == 1:
        assert one.agrees()
    else:
        with pytest.raises(RuntimeFailed, match="plan again"):
            one.run()


def test_a_bias_with_gaps_is_refused(library: HostCublasLt) -> None:
    one = Product((4, 8), (8, 6), (6,), strides=[None, None, (2,)], after=["Add"])
    with pytest.raises(RuntimeFailed, match="plan again"):
        one.run()
    assert Product((4, 8), (8, 6), (1, 6), strides=[None, None, (99, 1)], after=["Add"]).agrees()


@pytest.mark.parametrize(
    ("shapes", "after", "batches"),
    [
        ([(2, 3, 4, 8), (2, 3, 8, 6)], [], [6]),
        ([(2, 3, 5, 7), (2, 3, 7, 3)], [], [6]),  # of 60 bytes each
        ([(2, 3, 1, 7), (2, 3, 7, 1)], [], [6]),
        ([(2, 3, 4, 8), (8, 6)], [], [1]),  # rows of six
        ([(2, 3, 4, 8), (8, 6), (6,)], ["Add", "Relu"], [1]),
        ([(2, 3, 4, 8), (2, 3, 8, 6), (6,)], ["Add"], [1] * 6),  # a bias is told to one of them
        ([(2, 1, 4, 8), (3, 8, 8)], [], [1] * 6),  # no stride leads through the batches of either
        ([(4, 8), (5, 8, 6)], [], [1] * 5),
    ],
)
def test_products_of_batches(
    library: HostCublasLt, shapes: list[tuple[int, ...]], after: list[str], batches: list[int]
) -> None:
    assert Product(*shapes, after=after).agrees()
    assert [one["batches"] for one in library.told] == 2 * batches


def test_an_algorithm_runs_in_the_workspace_of_its_launch(library: HostCublasLt) -> None:
    """That of all which were found is asked for once, and lies where the plan has it."""
    names = {
        7: "algo7 tile=128x128 stages=UNDEFINED split=1:0 swizzle=0 option=0",
        3: "algo3 tile=635 stages=UNDEFINED split=1:0 swizzle=0 option=0",
    }
    for number, name in names.items():
        room = (1 << 10) + MARGIN_BYTES
        one = Product((4, 8), (8, 6), (6,), after=["Add"], algorithm=name, workspace_bytes=room)
        assert one.agrees()
        told = library.told[-1]
        assert told["algorithm"] == number
        assert told["workspace"] == (one.workspace.ctypes.data, room)


def test_what_there_is_not_is_refused(library: HostCublasLt) -> None:
    with pytest.raises(RuntimeFailed, match=r"no algorithm 'algo9' here .* 0 bytes .* plan again"):
        Product((4, 8), (8, 6), algorithm="algo9").run()
    library.algorithms = [(7, 20, 1 << 10)]
    with pytest.raises(RuntimeFailed, match="failed to find any suitable algorithm"):
        Product((4, 8), (8, 6)).run()
