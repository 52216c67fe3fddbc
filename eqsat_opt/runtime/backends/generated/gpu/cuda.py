"""CUDA C++ of programs: one kernel for each nest of loops, of literal extents.

The text is self-contained: NVRTC, which compiles it on the machine that runs it, has no headers. A
pointer is to the element of index 0 of a tensor; with negative strides, elements precede it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eqsat_opt.ir.ops.index.integers import Atom, atom, substitute
from eqsat_opt.runtime.backends.generated.memory_order import changing_with
from eqsat_opt.runtime.backends.generated.printing import (
    FOLDS,
    REGISTERS,
    STORED,
    block_lines,
    decomposed,
    fold_step,
    index,
    start,
    statement_lines,
)
from eqsat_opt.runtime.backends.generated.program import (
    Fold,
    KernelProgram,
    Load,
    Loop,
    LoopNest,
    Schedule,
    Statement,
    Store,
    Tile,
)

__all__ = ["Geometry", "cuda_kernels", "cuda_source"]

_WARP = 32
_THREADS = 256
_TILE = 32
_TILE_ROWS = 8
"""Number of rows of a tile that are read at a time, one by each warp."""
_INT_END = 2**31


@dataclass(frozen=True)
class Geometry:
    """Parameters of the launch of a kernel.

    Attributes:
        name: name of the function; its arguments are pointers to all tensors that the program
            reads, then to all that it writes.
        blocks, threads: sizes of the grid and of a block, each of one dimension.
        is_cooperative: whether the threads of a block wait for one another.
    """

    name: str
    blocks: int
    threads: int
    is_cooperative: bool


@cache
def _prelude() -> str:
    """Return the functions of elements, without includes, which NVRTC cannot resolve."""
    folder = Path(__file__).parents[1] / "src"
    texts = [(folder / name).read_text("utf-8") for name in ("functions.h", "typed.h")]
    return re.sub(r'(?m)^#(pragma once|include ").*\n', "", "\n".join(texts)) + _OF_THREADS


_OF_THREADS = """
namespace eqsat {

// Elements that are read and written together.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

template <int N, class T> EQSAT_INLINE Pack<T, N> read_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T> EQSAT_INLINE Pack<T, N> no_pack(const T*) { return {}; }
template <int N, class T> EQSAT_INLINE void write_pack(T* p, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

// Of the thread whose number in the warp differs in the bits of the mask.
template <class T> EQSAT_INLINE T neighbour(T value, int mask) {
  if constexpr (sizeof(T) < 4) {
    return static_cast<T>(__shfl_xor_sync(0xffffffffu, static_cast<int>(value), mask));
  } else {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
}

}  // namespace eqsat
"""


def cuda_source(texts: Sequence[str]) -> str:
    """Return a translation unit of some kernels."""
    return "\n".join([_prelude(), "namespace eqsat {", "", *texts, "}  // namespace eqsat", ""])


def cuda_kernels(name: str, program: KernelProgram) -> tuple[str, tuple[Geometry, ...]]:
    """Return the source of a program's kernels, which can run in any order, and their geometries.

    Args:
        name: prefix of the names of the functions.
        program: the program to print.
    """
    lines: list[str] = []
    launches = []
    for k, nest in enumerate(program.nests):
        geometry = _geometry(f"{name}_{k}", nest)
        launches.append(geometry)
        arguments = [f"const {STORED[m.dtype]}* in{i}" for i, m in enumerate(program.reads)]
        arguments += [f"{STORED[m.dtype]}* out{i}" for i, m in enumerate(program.writes)]
        head = f'extern "C" __global__ void __launch_bounds__({geometry.threads}) {geometry.name}('
        lines += [head, f"    {', '.join(arguments)}) {{"]
        lines += _PRINTERS[nest.schedule](nest, geometry, _index_type(program, nest))
        lines += ["}", ""]
    return "\n".join(lines), tuple(launches)


def _index_type(program: KernelProgram, nest: LoopNest) -> str:
    """Return the type of indices that holds all numbers of threads and all addresses."""
    far = max((max(m.high, -m.low) for m in (*program.reads, *program.writes)), default=0)
    count = (nest.row_count + 1) * (nest.row_size + _TILE**2)
    return "int" if max(2 * far, count) < _INT_END - _THREADS else "Index"


def _geometry(name: str, nest: LoopNest) -> Geometry:
    if nest.schedule == "element":
        blocks = math.ceil(nest.row_size / nest.lanes / _THREADS)
        return Geometry(name, blocks, _THREADS, is_cooperative=False)
    if nest.schedule == "row":
        widest = max([one.size for one in nest.head if isinstance(one, Fold)] + [nest.row_size])
        threads = min(_THREADS, math.ceil(widest / _WARP) * _WARP)
        return Geometry(name, nest.row_count, threads, is_cooperative=True)
    if nest.schedule == "column":
        *outer, last = nest.rows
        blocks = math.prod(row.extent for row in outer) * math.ceil(last.extent / _WARP)
        return Geometry(name, blocks, _THREADS, is_cooperative=True)
    assert nest.tile is not None
    extents = [
        math.ceil(loop.extent / _TILE) if _is_tiled(loop, nest.tile) else loop.extent
        for loop in nest.loops
    ]
    return Geometry(name, math.prod(extents), _TILE * _TILE_ROWS, is_cooperative=True)


def _is_tiled(loop: Loop, tile: Tile) -> bool:
    return loop.variable in (tile.read, tile.write)


def _element(nest: LoopNest, geometry: Geometry, kind: str) -> Iterator[str]:
    yield f"  const {kind} t = static_cast<{kind}>(blockIdx.x) * {_THREADS} + threadIdx.x;"
    yield f"  if (t >= {nest.row_size // nest.lanes}) return;"
    if nest.lanes > 1:
        yield from _packed(nest, kind)
        return
    yield from decomposed("t", nest.loops, kind, "  ")
    yield from block_lines(nest.block, "  ", kind)


def _packed(nest: LoopNest, kind: str) -> Iterator[str]:
    """Print a thread that takes several iterations of the last loop.

    Packs of elements are read and written at once, and computed element by element.
    """
    *outer, last = nest.loops
    lanes, variable = nest.lanes, last.variable
    first = Atom(f"{variable.key}_first")
    pack = Atom(f"{variable.key}_pack")
    yield from decomposed("t", [*outer, Loop(pack, last.extent // lanes)], kind, "  ")
    yield f"  const {kind} {first.key} = {pack.key} * {lanes};"
    changing = changing_with(variable, nest.block)
    inside: list[Statement] = []
    loaded, wholes = {}, {}
    for one in nest.block:
        if isinstance(one, Load | Store) and variable in one.place.symbols():
            begin = index(substitute(one.place, {variable: atom(first)}))
            if isinstance(one, Load):
                name = f"pack{one.result.number}"
                yield f"  const auto {name} = read_pack<{lanes}>(in{one.buffer} + ({begin}));"
                loaded[one.result.number] = f"load({name}.at + lane)"
            else:
                wholes[one.buffer] = begin
                yield f"  auto whole{one.buffer} = no_pack<{lanes}>(out{one.buffer});"
            inside.append(one)
        elif isinstance(one, Store) or one.result.atom in changing:
            inside.append(one)
        else:
            yield from statement_lines(one, "  ", kind, {})
    yield "#pragma unroll"
    yield f"  for (int lane = 0; lane < {lanes}; lane++) {{"
    yield f"    const {kind} {variable.key} = {first.key} + lane;"
    for one in inside:
        if isinstance(one, Store):
            yield f"    store(whole{one.buffer}.at + lane, v{one.value.number});"
        else:
            yield from statement_lines(one, "    ", kind, loaded)
    yield "  }"
    for buffer, begin in wholes.items():
        yield f"  write_pack(out{buffer} + ({begin}), whole{buffer});"


def _row(nest: LoopNest, geometry: Geometry, kind: str) -> Iterator[str]:
    """Print a block of threads per row: all threads reduce, then compute the row's elements."""
    threads = geometry.threads
    yield f"  const {kind} r = static_cast<{kind}>(blockIdx.x);"
    yield from decomposed("r", nest.rows, kind, "  ")
    for one in nest.head:
        if isinstance(one, Fold):
            yield from _shared_fold(one, threads, kind)
        else:
            yield from statement_lines(one, "  ", kind, {})
    if not nest.loops:
        yield "  if (threadIdx.x) return;"
        yield from block_lines(nest.block, "  ", kind)
        return
    yield f"  for ({kind} t = threadIdx.x; t < {nest.row_size}; t += {threads}) {{"
    yield from decomposed("t", nest.loops, kind, "    ")
    yield from block_lines(nest.block, "    ", kind)
    yield "  }"


def _column(nest: LoopNest, geometry: Geometry, kind: str) -> Iterator[str]:
    """Print a thread per row: a warp has adjacent rows, and each warp a share of the reduction.

    Threads beyond the last row repeat that row, since all have to reach the barriers.
    """
    *outer, last = nest.rows
    part = Atom(f"{last.variable.key}_part")
    squares = [*outer, Loop(part, math.ceil(last.extent / _WARP))]
    yield f"  const {kind} r = static_cast<{kind}>(blockIdx.x);"
    yield from decomposed("r", squares, kind, "  ")
    yield f"  const int lane = threadIdx.x % {_WARP}, warp = threadIdx.x / {_WARP};"
    place = f"{part.key} * {_WARP} + lane"
    yield f"  const bool is_beyond = {place} >= {last.extent};"
    yield f"  const {kind} {last.variable.key} = is_beyond ? {last.extent - 1} : {place};"
    warps = geometry.threads // _WARP
    for one in nest.head:
        if not isinstance(one, Fold):
            yield from statement_lines(one, "  ", kind, {})
            continue
        total, register = f"v{one.result.number}", REGISTERS[one.result.dtype]
        join, shared = FOLDS[one.kind], f"shared{one.result.number}"
        yield from _share(one, "warp", warps, kind)
        yield f"  __shared__ {register} {shared}[{warps}][{_WARP}];"
        yield f"  {shared}[warp][lane] = {total};"
        yield "  __syncthreads();"
        yield f"  {total} = {shared}[0][lane];"
        yield f"  for (int w = 1; w < {warps}; w++) {total} = {join}({total}, {shared}[w][lane]);"
    yield "  if (warp || is_beyond) return;"
    yield from block_lines(nest.block, "  ", kind)


def _share(one: Fold, first: str, step: int, kind: str) -> Iterator[str]:
    """Print a thread's share of a reduction: every ``step``-th iteration, from ``first`` on."""
    total, flat = f"v{one.result.number}", f"t{one.result.number}"
    yield f"  {REGISTERS[one.result.dtype]} {total} = {start(one.kind, one.result.dtype)};"
    yield f"  for ({kind} {flat} = {first}; {flat} < {one.size}; {flat} += {step}) {{"
    yield from decomposed(flat, one.loops, kind, "    ")
    yield from fold_step(one, "    ", kind, total)
    yield "  }"


def _shared_fold(one: Fold, threads: int, kind: str) -> Iterator[str]:
    """Print a reduction by a block of threads: by thread, then by warp, then by block."""
    total, register = f"v{one.result.number}", REGISTERS[one.result.dtype]
    join = FOLDS[one.kind]
    yield from _share(one, "threadIdx.x", threads, kind)
    yield f"  for (int mask = {_WARP // 2}; mask; mask >>= 1)"
    yield f"    {total} = {join}({total}, neighbour({total}, mask));"
    warps = threads // _WARP
    if warps > 1:
        shared = f"shared{one.result.number}"
        yield f"  __shared__ {register} {shared}[{warps}];"
        yield f"  if (threadIdx.x % {_WARP} == 0) {shared}[threadIdx.x / {_WARP}] = {total};"
        yield "  __syncthreads();"
        yield f"  {total} = {shared}[0];"
        yield f"  for (int w = 1; w < {warps}; w++) {total} = {join}({total}, {shared}[w]);"


def _tile(nest: LoopNest, geometry: Geometry, kind: str) -> Iterator[str]:
    """Print squares of two loops, read in the order of one loop and written in that of the other.

    They are kept in shared memory in between. An additional column avoids bank conflicts.
    """
    tile = nest.tile
    assert tile is not None
    loads = [one for one in nest.block if isinstance(one, Load) and one.result.number in tile.loads]
    for one in loads:
        name = f"tile{one.result.number}"
        yield f"  __shared__ {REGISTERS[one.result.dtype]} {name}[{_TILE}][{_TILE + 1}];"
    extents = {loop.variable: loop.extent for loop in nest.loops}
    squares = [
        Loop(Atom(f"begin_{loop.variable.key}"), math.ceil(loop.extent / _TILE))
        if _is_tiled(loop, tile)
        else loop
        for loop in nest.loops
    ]
    yield f"  const {kind} b = static_cast<{kind}>(blockIdx.x);"
    yield from decomposed("b", squares, kind, "  ")
    yield f"  const int lane = threadIdx.x % {_TILE};"
    read, write = tile.read, tile.write
    for fast, slow, place, body in (
        (read, write, "[s][lane]", None),
        (write, read, "[lane][s]", nest.block),
    ):
        yield f"  for (int s = threadIdx.x / {_TILE}; s < {_TILE}; s += {_TILE_ROWS}) {{"
        yield f"    const {kind} {fast.key} = begin_{fast.key} * {_TILE} + lane;"
        yield f"    const {kind} {slow.key} = begin_{slow.key} * {_TILE} + s;"
        yield f"    if ({fast.key} < {extents[fast]} && {slow.key} < {extents[slow]}) {{"
        if body is None:
            for one in loads:
                loaded = f"load(in{one.buffer} + ({index(one.place)}))"
                yield f"      tile{one.result.number}{place} = {loaded};"
        else:
            kept = {one.result.number: f"tile{one.result.number}{place}" for one in loads}
            yield from block_lines(body, "      ", kind, kept)
        yield "    }"
        yield "  }"
        if body is None:
            yield "  __syncthreads();"


_PRINTERS: Mapping[Schedule, Callable[[LoopNest, Geometry, str], Iterator[str]]] = {
    "element": _element,
    "row": _row,
    "column": _column,
    "tile": _tile,
}
