"""The C++ source of kernels. Only numbers and known names of a kernel enter it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eqsat_opt.runtime.backends.generated.host import HostKernel
from eqsat_opt.runtime.backends.generated.kernel import (
    LOAD,
    NUMBER,
    Access,
    FloatKernel,
    Nest,
    RegisterStep,
)
from eqsat_opt.runtime.backends.generated.printing import called, literal

__all__ = ["DOMAIN", "plan_source", "source"]

DOMAIN = "eqsat_opt.regions"
"""Domain of the operators that the source defines."""

_GRAIN_WORK = 50_000
"""Least work of a thread, in additions."""

_WIDTH = 64
"""Granularity, in iterations, at which a single loop is divided among threads."""


def source(kernels: Sequence[FloatKernel]) -> str:
    """Return a translation unit that registers each kernel as an operator of its name.

    Args:
        kernels: distinct kernels, each of which passes :meth:`FloatKernel.check`.
    """
    lines = ['#include "region.h"', "", "namespace eqsat {", "namespace {", ""]
    for i, kernel in enumerate(kernels):
        lines += _kernel(i, kernel)
    lines += ["const Operator operators[] = {"]
    lines += [
        f"  operator_of<{len(kernel.inputs)}, {len(kernel.outputs)}>(region{i}),"
        for i, kernel in enumerate(kernels)
    ]
    lines += [
        "};",
        "",
        "}  // namespace",
        "}  // namespace eqsat",
        "",
        'extern "C" __attribute__((visibility("default"))) eqsat::Status* RegisterCustomOps(',
        "    eqsat::SessionOptions* options, const eqsat::ApiBase* base) {",
        f'  return eqsat::register_all(options, base, "{DOMAIN}", eqsat::operators,',
        f"                             {len(kernels)});",
        "}",
    ]
    return "\n".join(lines) + "\n"


def plan_source(kernels: Sequence[FloatKernel], programs: Sequence[HostKernel] = ()) -> str:
    """Return a translation unit in which each kernel is a function of its name.

    The function takes a list of pointers, to inputs and then to outputs.

    Args:
        kernels: distinct kernels, each of which passes :meth:`FloatKernel.check`.
        programs: distinct programs.
    """
    functions = "typed.h" if programs else "functions.h"
    lines = [f'#include "{functions}"', '#include "calls.h"', "", "namespace eqsat {"]
    lines += ["namespace {", ""]
    for i, kernel in enumerate(kernels):
        for k, nest in enumerate(kernel.nests):
            lines += _nest(f"nest{i}_{k}", nest)
    for program in programs:
        lines += [f"void {program.name}(void* const* p) {{", program.body, "}"]
    lines += ["", "}  // namespace", "}  // namespace eqsat", ""]
    for i, kernel in enumerate(kernels):
        n_inputs = len(kernel.inputs)
        lines += [f"EQSAT_CALL int {kernel.name}(void* data) {{"]
        lines += ["  const float* const* in = static_cast<const float* const*>(data);"]
        lines += [f"  float* const* out = static_cast<float* const*>(data) + {n_inputs};"]
        for k, nest in enumerate(kernel.nests):
            lines += [f"  eqsat::nest{i}_{k}(in, out, 0, {_outer(nest)});"]
        lines += ["  return 0;", "}"]
    for program in programs:
        lines += [f"EQSAT_CALL int {program.name}(void* data) {{"]
        lines += [f"  eqsat::{program.name}(static_cast<void* const*>(data));"]
        lines += ["  return 0;", "}"]
    return "\n".join(lines) + "\n"


def _kernel(i: int, kernel: FloatKernel) -> Iterator[str]:
    for k, nest in enumerate(kernel.nests):
        yield from _nest(f"nest{i}_{k}", nest)
    yield from _shapes(f"in{i}", kernel.inputs)
    yield from _shapes(f"out{i}", kernel.outputs)
    rows = (f"{{nest{i}_{k}, {_outer(n)}, {_grain(n)}}}" for k, n in enumerate(kernel.nests))
    yield f"const Nest nests{i}[] = {{{', '.join(rows)}}};"
    yield f"const int64_t reach{i}[] = {{{', '.join(map(str, kernel.reach)) or '0'}}};"
    yield (
        f'const Region region{i} = {{"{kernel.name}", in{i}, reach{i}, {len(kernel.inputs)}, '
        f"out{i}, {len(kernel.outputs)}, nests{i}, {len(kernel.nests)}}};"
    )
    yield ""


def _shapes(name: str, shapes: Sequence[Sequence[int]]) -> Iterator[str]:
    for k, shape in enumerate(shapes):
        yield f"const int64_t {name}_{k}[] = {{{', '.join(map(str, shape)) or '0'}}};"
    rows = (f"{{{name}_{k}, {len(shape)}}}" for k, shape in enumerate(shapes))
    yield f"const Shape {name}[] = {{{', '.join(rows)}}};"


def _outer(nest: Nest) -> int:
    return nest.extents[0] if nest.extents else 1


def _grain(nest: Nest) -> int:
    """Return the number of iterations of the outermost loop that are worth a thread."""
    grain = math.ceil(_GRAIN_WORK * _outer(nest) / nest.work)
    if len(nest.extents) == 1:
        grain = math.ceil(grain / _WIDTH) * _WIDTH
    return min(grain, _outer(nest))


def _nest(name: str, nest: Nest) -> Iterator[str]:
    loads = [step.access for step in nest.steps if step.access is not None]
    yield f"void {name}(const float* const* in, float* const* out, int64_t begin, int64_t end) {{"
    for buffer in sorted({access.buffer for access in loads}):
        yield f"  const float* __restrict in{buffer} = in[{buffer}];"
    for buffer in sorted({access.buffer for access, _ in nest.stores}):
        yield f"  float* __restrict out{buffer} = out[{buffer}];"
    extents: Sequence[int] = nest.extents or (1,)
    for k, extent in enumerate(extents):
        first, last = ("begin", "end") if not k else ("0", str(extent))
        # A nest reads no element that it writes, and writes none twice.
        if k == len(extents) - 1:
            yield "#pragma GCC ivdep"
        yield f"{'  ' * (k + 1)}for (int64_t i{k} = {first}; i{k} < {last}; i{k}++) {{"
    indent = "  " * (len(extents) + 1)
    for k, step in enumerate(nest.steps):
        yield f"{indent}const float v{k} = {_expression(step)};"
    for access, register in nest.stores:
        yield f"{indent}out{access.buffer}[{_address(access)}] = v{register};"
    for k in reversed(range(len(extents))):
        yield f"{'  ' * (k + 1)}}}"
    yield "}"


def _expression(step: RegisterStep) -> str:
    if step.function == LOAD:
        assert step.access is not None
        return f"in{step.access.buffer}[{_address(step.access)}]"
    if step.function == NUMBER:
        return literal(step.numbers[0])
    return called(step.function, step.operands, step.numbers)


def _address(access: Access) -> str:
    terms = [
        f"i{k}" if stride == 1 else f"i{k} * {stride}"
        for k, stride in enumerate(access.strides)
        if stride
    ]
    if access.offset or not terms:
        terms.append(str(access.offset))
    return " + ".join(terms)
