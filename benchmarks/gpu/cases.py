"""Uses of all operators, as plans of one launch each, and the kernels that tell a device's figures.

The uses are those that tests run on a processor: every operator of the registry, every element type
that it has, operands with gaps and in other orders of their axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.gpu.kernels import alone
from benchmarks.gpu.prepared import KernelPlan, Way, encoded
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.values.forms import PLAIN
from eqsat_opt.ir.values.types import StaticType, TensorType, require_static
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.plan.files import plan_to_json
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, Launch, dense_strides
from tests.cuda_host.cases import DTYPES, Case, cases, formed, operands_of, with_dtype
from tests.cuda_host.chains import CHAINS, chain

__all__ = ["operator_cases", "probes"]

FORMS = "dense", "gaps", "reordered"
"""Of operands in memory; a plan has no negative strides."""

_NOT_IN_CUPY = "bfloat16"

_PRODUCTS: Sequence[tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...]]] = tuple(
    (epilogue, shapes, steps)
    for epilogue, steps in {
        "alone": (), "bias": ("Add",), "relu": ("Relu",), "bias, relu": ("Add", "Relu"),
    }.items()
    for shapes in (((9, 12), (12, 7)), ((2, 3, 4, 12), (3, 12, 7)), ((64, 256), (256, 96)))
)  # fmt: skip
"""Epilogues of cuBLASLt, each on one product and on several."""

_COPIED, _SIDE = 1 << 24, 4096
"""Elements that a probe reads and writes, rows and columns of the factors of another one."""


def operator_cases(target: str) -> Iterator[KernelPlan]:
    """Chains of operators, products with epilogues, all uses of operators; the usual ones first."""
    for number, (name, plan) in enumerate(_all(target), start=1):
        yield replace(plan, name=f"case {number}: {name}")


def _all(target: str) -> Iterator[tuple[str, KernelPlan]]:
    yield from _chains(target)
    yield from _products(target)
    for form in FORMS:
        for op in sorted(OPS):
            for case in cases(op):
                yield from _case(case, form, target)
    for op in sorted(OPS):
        for changed in _retyped(next(cases(op))):
            yield from _case(changed, FORMS[0], target)


def probes(target: str) -> tuple[KernelPlan, ...]:
    """A copy, a product, a kernel that does next to nothing, and a product with a Gelu."""
    wide, one, square = (
        TensorType("float32", shape) for shape in ((_COPIED,), (1,), (_SIDE, _SIDE))
    )
    bodies = {
        "copy": ("cuda", _body([wide], [("Relu", (0,))])),
        "product": ("cublaslt", _body([square, square], [("MatMul", (0, 1))])),
        "empty": ("cuda", _body([one], [("Relu", (0,))])),
        "gelu": ("cublaslt", _product_with_gelu()),
    }
    return tuple(_plain(name, target, backend, body) for name, (backend, body) in bodies.items())


def _body(types: Sequence[TensorType], steps: Sequence[tuple[str, tuple[int, ...]]]) -> Kernel:
    operands = tuple(Operand(type_, False) for type_ in types)
    made = tuple(Step(op, attributes(), read) for op, read in steps)
    return Kernel(operands, made, (len(operands) + len(made) - 1,))


def _product_with_gelu() -> Kernel:
    """Of so little depth that results lie where the forms of Gelu differ most."""
    shapes = (64, 4), (4, 96), (96,)
    operands = tuple(Operand(TensorType("float32", shape), False) for shape in shapes)
    steps = (
        Step("MatMul", attributes(), (0, 1)),
        Step("Add", attributes(), (3, 2)),
        Step("Gelu", attributes(approximate="none"), (4,)),
    )
    return Kernel(operands, steps, (5,))


def _retyped(case: Case) -> Iterator[Case]:
    """The same of all other element types that it has."""
    for dtype in DTYPES:
        changed = with_dtype(case, dtype)
        if changed is not None and changed != case and dtype != _NOT_IN_CUPY:
            yield changed


def _case(case: Case, form: str, target: str) -> Iterator[tuple[str, KernelPlan]]:
    operands = [formed(x, form) for x in operands_of(case)]
    names = [f"v{i}" for i in range(len(operands))]
    buffers = {name: _buffer(name, x) for name, x in zip(names, operands, strict=True)}
    result = require_static(case.result)
    buffers["y"] = Buffer("y", result.dtype, result.shape, dense_strides(result.shape))
    step = Step(case.op, attributes(**case.attrs), tuple(range(len(operands))))
    body = Kernel(tuple(Operand(t, False) for t in case.types), (step,), (len(operands),))
    made = _planned("", target, "cuda", body, buffers=buffers, reads=names)
    if made is not None:
        values = {f"x{i}": encoded(x) for i, x in enumerate(operands)}
        yield (
            f"{case.op} {result.dtype}, {form}",
            replace(made, values=values),
        )


def _chains(target: str) -> Iterator[tuple[str, KernelPlan]]:
    for name in CHAINS:
        yield name, _plain(name, target, "cuda", chain(name))


def _products(target: str) -> Iterator[tuple[str, KernelPlan]]:
    for epilogue, shapes, steps in _PRODUCTS:
        types = [TensorType("float32", shape) for shape in shapes]
        if "Add" in steps:
            types.append(TensorType("float32", shapes[1][-1:]))
        made: list[tuple[str, tuple[int, ...]]] = [("MatMul", (0, 1))]
        last = len(types)
        for op in steps:
            made.append((op, (last, 2) if op == "Add" else (last,)))
            last += 1
        extents = "x".join(map(str, shapes[0]))
        yield (
            f"product {epilogue}, {extents}",
            _plain(epilogue, target, "cublaslt", _body(types, made)),
        )


def _plain(name: str, target: str, backend: str, body: Kernel) -> KernelPlan:
    """A kernel on dense memory."""
    types = body.required_types()
    names = [f"v{i}" for i in range(len(body.operands))]
    buffers = {n: _dense(n, type_) for n, type_ in zip(names, types, strict=False)}
    buffers |= {f"y{k}": _dense(f"y{k}", types[i]) for k, i in enumerate(body.outputs)}
    made = _planned(name, target, backend, body, buffers=buffers, reads=names)
    assert made is not None, f"{backend} has no kernel {name}"
    return made


def _planned(
    name: str,
    target: str,
    backend: str,
    body: Kernel,
    *,
    buffers: dict[str, Buffer],
    reads: Sequence[str],
) -> KernelPlan | None:
    """A plan of one launch; nothing where the backend has no kernel for it."""
    writes = tuple(one for one in buffers if one not in reads)
    algorithm = "heuristic" if backend == "cublaslt" else "default"
    launch = Launch("it", backend, body, algorithm, reads=tuple(reads), writes=writes)
    launcher = load_launcher(backend)
    try:
        launcher.prepare([launch], buffers)
    except EqsatError:
        return None
    plan = alone(launch, buffers, target, launcher.version())
    return KernelPlan(name, plan_to_json(plan), (Way(algorithm),))


def _buffer(name: str, x: Array) -> Buffer:
    strides = tuple(stride // x.itemsize for stride in x.strides)
    return Buffer(name, str(x.dtype), x.shape, strides, form=PLAIN)


def _dense(name: str, type_: StaticType) -> Buffer:
    dims = type_.shape
    return Buffer(name, type_.dtype, dims, dense_strides(dims))
