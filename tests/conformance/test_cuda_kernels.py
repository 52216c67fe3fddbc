"""CUDA kernels of every operator, run on a CPU: element types, strides, schedules, barriers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsat_opt.ir.values.types import StaticType, TensorType, numpy_dtype, require_static
from eqsat_opt.runtime.backends.generated.building import built
from eqsat_opt.runtime.backends.generated.gpu.cuda import Geometry, cuda_source
from eqsat_opt.runtime.backends.generated.program import KernelProgram, Memory
from tests.cuda_host import nvrtc
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
from tests.cuda_host.harness import Compiled, Kernel, compiled, missing, node_graph
from tests.cuda_host.judging import difference

if why := missing():
    pytest.skip(why, allow_module_level=True)

Array = NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """A node whose operands and result stand in memory in some form."""

    case: Case
    form: str
    kernel: Kernel
    operands: Sequence[Array]
    result: Array

    def run(self, library: Compiled, seed: int = 1) -> str:
        """Fill the result; why that failed, or nothing."""
        self.result[...] = self.result.dtype.type(77 if self.result.dtype.kind in "iub" else "nan")
        arrays = {f"x{i}": x for i, x in enumerate(self.operands)} | {"y": self.result}
        memories = (*self.kernel.program.reads, *self.kernel.program.writes)
        return library.run(self.kernel, [arrays[m.name].ctypes.data for m in memories], seed)

    def difference(self) -> str:
        """How the result differs from what the registry evaluates, if it does."""
        return difference(self.case, self.operands, self.result)


def trial(name: str, case: Case, form: str) -> Trial:
    operands = [formed(x, form) for x in operands_of(case)]
    dtype = numpy_dtype(case.result.dtype)
    result = formed(np.zeros(require_static(case.result).shape, dtype), form)
    return placed(name, case, form, operands, result=result)


def placed(name: str, case: Case, form: str, operands: Sequence[Array], *, result: Array) -> Trial:
    """A trial on arrays where they lie."""
    graph = node_graph(case.op, case.types, case.attrs)
    arrays = {f"x{i}": x for i, x in enumerate(operands)} | {"y": result}
    strides = {k: [s // x.itemsize for s in x.strides] for k, x in arrays.items()}
    aligned = {k: math.gcd(16, x.ctypes.data) for k, x in arrays.items()}
    program = built(graph, graph.nodes, graph.outputs, strides, aligned_bytes=aligned)
    return Trial(case, form, Kernel.of(name, program), operands, result=result)


def of_float32() -> Iterator[tuple[Case, str]]:
    """All operators; the forms take turns."""
    for op in LOOPED:
        for i, case in enumerate(cases(op)):
            yield case, FORMS[i % len(FORMS)]


def grid() -> Iterator[tuple[Case, str]]:
    """All operators in all forms, and of all element types."""
    for op in LOOPED:
        for case in cases(op):
            for form in FORMS:
                yield case, form
            for dtype in DTYPES:
                changed = with_dtype(case, dtype)
                if changed is not None and changed != case:
                    yield changed, "dense"


def of_few_types() -> Iterator[tuple[Case, str]]:
    """One case of most operators, of an element type each; the types take turns."""
    for k, op in enumerate(LOOPED):
        case = next(cases(op))
        found = [one for dtype in DTYPES if (one := with_dtype(case, dtype)) and one != case]
        if found:
            yield found[k % len(found)], "dense"


def trials(drawn: Iterator[tuple[Case, str]]) -> list[Trial]:
    return [trial(f"kernel{i}", case, form) for i, (case, form) in enumerate(drawn)]


def failures(made: Sequence[Trial], library: Compiled) -> dict[str, str]:
    found = {}
    for one in made:
        fault = one.run(library) or one.difference()
        if fault:
            found[f"{one.case} {one.form}"] = fault
    return found


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Trial], Compiled]:
    made = trials(iter([*of_float32(), *of_few_types()]))
    return made, compiled([one.kernel for one in made], tmp_path_factory.mktemp("cuda"))


def test_every_operator_agrees_with_the_registry(some: tuple[list[Trial], Compiled]) -> None:
    made, library = some
    assert {one.case.op for one in made} == set(LOOPED)
    assert failures(made, library) == {}


@pytest.mark.slow
def test_every_element_type_and_form(tmp_path: Path) -> None:
    made = trials(grid())
    assert failures(made, compiled([one.kernel for one in made], tmp_path)) == {}


def test_several_operators_are_one_kernel(tmp_path: Path) -> None:
    bodies = {name: chain(name) for name in CHAINS}
    made = {}
    for i, (name, body) in enumerate(bodies.items()):
        graph = body.to_graph()
        made[name] = Kernel.of(f"chain{i}", built(graph, graph.nodes, graph.outputs))
    library = compiled(list(made.values()), tmp_path)
    rng = np.random.default_rng(0)
    for name, body in bodies.items():
        shapes = [require_static(operand.type).shape for operand in body.operands]
        operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        types = body.required_types()
        results = [np.full(types[i].shape, np.nan, np.float32) for i in body.outputs]
        program = made[name].program
        arrays = {f"x{i}": x for i, x in enumerate(operands)}
        pointers = [arrays[m.name].ctypes.data for m in program.reads]
        fault = library.run(made[name], pointers + [y.ctypes.data for y in results])
        assert fault == "", name
        for found, expected in zip(results, evaluated(body, operands), strict=True):
            assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max(), name


def test_every_schedule_is_used(some: tuple[list[Trial], Compiled]) -> None:
    schedules = {nest.schedule for one in some[0] for nest in one.kernel.program.nests}
    assert schedules == {"element", "row", "column", "tile"}


def test_rows_that_numbers_name_are_read_without_a_tile(tmp_path: Path) -> None:
    """Their place is known only when the number was read."""
    types = (TensorType("float32", (8, 16, 16)), TensorType("int32", ()))
    case = Case("Gather", types, {"axis": 0})
    x, number = operands_of(case)
    turned = x.transpose(0, 2, 1).copy().transpose(0, 2, 1)
    result = np.zeros((16, 16), np.float32)
    one = placed("gathered", case, "turned", [turned, number], result=result)
    assert failures([one], compiled([one.kernel], tmp_path)) == {}


# ** packs **


def aligned(array: Array, first: int = 0) -> Array:
    """A copy whose element of a number is at a multiple of 64 bytes."""
    room = np.empty(array.size + 200, array.dtype)
    begin = (-room.ctypes.data % 64) // array.itemsize - first + 64 // array.itemsize
    found = room[begin : begin + array.size].reshape(array.shape)
    found[...] = array
    return found


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Trial], Compiled]:
    """Sums, or minima of truths, by where they lie."""
    made: dict[str, Trial] = {}

    def add(key: str, case: Case, operands: Sequence[Array], result: Array) -> None:
        made[key] = placed(f"packs{len(made)}", case, key, operands, result=result)

    for dtype in DTYPES:
        kind = StaticType(dtype, (2, 3, 16))
        case = Case("And" if dtype == "bool" else "Add", (kind, kind), {})
        x, y = operands_of(case)
        nothing = np.zeros(kind.shape, numpy_dtype(dtype))
        add(dtype, case, [aligned(x), aligned(y)], aligned(nothing))
        if dtype != "float32":
            continue
        add("result off", case, [aligned(x), aligned(y)], aligned(nothing, -1))
        add("operand off by two", case, [aligned(x), aligned(y, -2)], aligned(nothing))
        wide = aligned(np.zeros((2, 3, 24), np.float32))
        add("into a part", case, [aligned(x), aligned(y)], wide[..., 4:20])
        odd = aligned(np.zeros((2, 3, 23), np.float32))
        add("into an odd part", case, [aligned(x), aligned(y)], odd[..., 4:20])
        last_first = aligned(np.zeros((2, 16, 3), np.float32)).transpose(0, 2, 1)
        add("in another order", case, [formed_like(x, last_first), aligned(y)], aligned(nothing))
        for shape in ((16,), (3, 1), ()):
            small = Case("Add", (kind, TensorType(dtype, shape)), {})
            x, b = operands_of(small)
            add(f"broadcast {shape}", small, [aligned(x), aligned(b)], aligned(nothing))
    library = compiled([one.kernel for one in made.values()], tmp_path_factory.mktemp("packs"))
    return made, library


def formed_like(array: Array, other: Array) -> Array:
    """A copy with the strides of another array."""
    found = np.empty_like(other)
    found[...] = array
    return found


def test_packs_are_as_wide_as_memory_allows(packs: tuple[dict[str, Trial], Compiled]) -> None:
    made, library = packs
    assert failures([*made.values()], library) == {}
    lanes = {key: one.kernel.program.nests[0].lanes for key, one in made.items()}
    wide = {dtype: min(16 // numpy_dtype(dtype).itemsize, 8) for dtype in DTYPES}
    assert lanes == wide | {
        "result off": 1,
        "operand off by two": 2,
        "into a part": 4,
        "into an odd part": 1,
        "in another order": 1,
        "broadcast (16,)": 4,
        "broadcast (3, 1)": 4,
        "broadcast ()": 4,
    }


BARRIER = "__syncthreads();"


def without_each_barrier(one: Trial) -> Iterator[Trial]:
    """The trial once for each barrier of its kernel, which is gone."""
    parts = one.kernel.text.split(BARRIER)
    (launch,) = one.kernel.launches
    for i in range(1, len(parts)):
        name = f"{launch.name}_without_{i}"
        text = BARRIER.join(parts[:i]) + BARRIER.join(["", *parts[i:]])[len(BARRIER) :]
        kernel = Kernel(
            one.kernel.program,
            text.replace(f" {launch.name}(", f" {name}("),
            (replace(launch, name=name),),
        )
        yield replace(one, kernel=kernel)


def test_a_missing_barrier_is_caught(some: tuple[list[Trial], Compiled], tmp_path: Path) -> None:
    made, library = some
    # Of whole numbers the answer may be what shared memory happens to hold.
    waiting = [one for one in made if BARRIER in one.kernel.text and one.result.dtype.kind == "f"]
    mutants = [mutant for one in waiting for mutant in without_each_barrier(one)]
    assert len(mutants) == sum(one.kernel.text.count(BARRIER) for one in waiting)
    broken = compiled([mutant.kernel for mutant in mutants], tmp_path)
    for seed in range(8):
        assert not any(one.run(library, seed) or one.difference() for one in waiting)
    survivors = [
        f"{mutant.case} {mutant.kernel.launches[0].name}"
        for mutant in mutants
        if not any(mutant.run(broken, seed) or mutant.difference() for seed in range(8))
    ]
    assert survivors == []


ERRONEOUS = {
    "divergent": ("if (threadIdx.x < 32) __syncthreads();", "a thread left before a barrier"),
    "lonely": (
        "if (threadIdx.x != 3) __shfl_xor_sync(0xffffffffu, 1.0f, 1);",
        "a shuffle without all threads",
    ),
}


@pytest.mark.parametrize("name", ERRONEOUS)
def test_waiting_for_threads_that_do_not_come_is_a_fault(name: str, tmp_path: Path) -> None:
    statement, fault = ERRONEOUS[name]
    text = f'extern "C" __global__ void {name}(float* out0) {{ {statement} }}\n'
    kernel = Kernel(
        KernelProgram((), (Memory("y", "float32"),), ()), text, (Geometry(name, 1, 64, True),)
    )
    assert compiled([kernel], tmp_path).run(kernel, [0]).startswith(fault)


ARCHITECTURES = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


@pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing())
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_operator(
    architecture: str, some: tuple[list[Trial], Compiled], request: pytest.FixtureRequest
) -> None:
    """Each kernel for one architecture, with ``--slow`` for all."""
    step = 1 if request.config.getoption("--slow") else len(ARCHITECTURES)
    first = ARCHITECTURES.index(architecture) % step
    texts = [one.kernel.text for one in some[0][first::step]]
    assert nvrtc.cubin_bytes(cuda_source(texts), architecture)
