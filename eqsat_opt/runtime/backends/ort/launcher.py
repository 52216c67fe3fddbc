"""Launches in onnxruntime: a session for each, bound once to the memory of the plan.

A body may be a whole graph. onnxruntime reads and writes dense tensors only, so strided tensors are
packed into the workspace before the session runs, and unpacked from it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.runtime.backends.launching import Bound, Launcher
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_version
from eqsat_opt.runtime.backends.ort.values import to_ort_value
from eqsat_opt.runtime.backends.shared.session_models import operand_names, session_model
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import ALIGNMENT_BYTES, Buffer, Launch

__all__ = ["WITHOUT_SPINNING", "OrtLauncher", "Segment", "segment_model"]

_OPTIONS = OrtOptions(threads=1, spinning=False)


class OrtLauncher(Launcher):
    """Launcher of sessions on one thread, unless the algorithm asks for more.

    Idle threads of several sessions would take each other's cores. So they spin only if one session
    is the whole plan, as in `eqsat_opt.session`.
    """

    def version(self) -> str:
        """Return the version of onnxruntime."""
        return f"onnxruntime {ort_version()}"

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """Return the bytes of a dense copy of each strided operand and result."""
        total = 0
        for name, const in _used(launch):
            buffer = buffers[name]
            if not const and not buffer.is_dense:
                total += _aligned(prod(buffer.dims) * buffer.itemsize)
        return total

    def build(self, launch: Launch, bound: Bound) -> Segment:
        """Build the session on this memory.

        Raises:
            RuntimeFailed: onnxruntime refuses the body, its weights are too large for one session,
                or the algorithm is unknown.
        """
        options = _options(launch)
        try:
            return Segment(launch, bound, segment_model(launch, bound.reads), options)
        except EqsatError as error:
            raise RuntimeFailed(f"launch {launch.name!r}: {error}") from error


_MOST_THREADS = 1024

WITHOUT_SPINNING = "without spinning"
"""Words after the number of threads in the algorithm of a session that is not the only one of its
plan: spinning idle threads would take the cores of the next launch."""


def _options(launch: Launch) -> OrtOptions:
    """Return the options of a launch's algorithm: ``default``, or a number of threads."""
    if launch.algorithm == "default":
        return _OPTIONS
    count, _, rest = launch.algorithm.partition(" ")
    unit, _, spinning = rest.partition(" ")
    is_known = unit == "threads" and spinning in ("", WITHOUT_SPINNING)
    if not is_known or not count.isdecimal() or not 1 <= int(count) <= _MOST_THREADS:
        raise RuntimeFailed(
            f"launch {launch.name!r}: ort has no algorithm {launch.algorithm!r}; it has 'default' "
            f"and '2 threads', '2 threads {WITHOUT_SPINNING}' and so on"
        )
    return OrtOptions(threads=int(count), spinning=not spinning)


_MOST_BYTES = 2_000_000_000
"""Largest size of the weights of one session; protobuf messages are limited to 2 GiB."""


def _require_room(launch: Launch, reads: Sequence[Array]) -> None:
    operands = zip(launch.body.operands, reads, strict=True)
    held = sum(array.nbytes for operand, array in operands if operand.const)
    if held > _MOST_BYTES:
        raise RuntimeFailed(
            f"launch {launch.name!r} has weights of {held} bytes, more than one launch of "
            "onnxruntime can hold; plan with another backend"
        )


def _used(launch: Launch) -> list[tuple[str, bool]]:
    """Return the buffers of a launch, and whether each is a constant, which a session holds."""
    reads = zip(launch.reads, (operand.const for operand in launch.body.operands), strict=True)
    return [*reads, *((name, False) for name in launch.writes)]


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, eq=False)
class _Copy:
    target: Array
    source: Array

    def __call__(self) -> None:
        np.copyto(self.target, self.source)


def segment_model(launch: Launch, reads: Sequence[Array]) -> onnx.ModelProto:
    """Build the model that the session of a launch runs.

    Args:
        launch: the launch.
        reads: the operands of the launch; the constants among them become part of the model.

    Raises:
        RuntimeFailed: the weights are too large for one session.
    """
    _require_room(launch, reads)
    return session_model(launch, reads)


class Segment:
    """A session of a launch on its memory.

    Args:
        launch: the launch.
        bound: the memory of the launch.
        model: the model that computes it, with the names of `segment_model`.
        options: the options of the session.

    Raises:
        RuntimeFailed: onnxruntime refuses the model.
    """

    def __init__(
        self, launch: Launch, bound: Bound, model: onnx.ModelProto, options: OrtOptions
    ) -> None:
        self.name = launch.name
        session = OrtSession(model.SerializeToString(), options)
        self._native = session.native
        self._workspace, self._used = bound.workspace, 0
        self._before: list[_Copy] = []
        self._after: list[_Copy] = []
        self._values: list[Any] = []  # a binding points into their memory without owning it
        self._binding = self._native.io_binding()
        types = {v.name: v.type for v in (*self._native.get_inputs(), *self._native.get_outputs())}
        for name, array in zip(operand_names(launch), bound.reads, strict=True):
            if name in types:  # constants are in the model
                value = self._value(self._dense(array, self._before, reading=True), types[name])
                self._binding.bind_ortvalue_input(name, value)
        first: dict[str, Array] = {}
        for name, array in zip(launch.body.to_graph().outputs, bound.writes, strict=True):
            if name in first:
                self._after.append(_Copy(array, first[name]))
                continue
            dense = self._dense(array, self._after, reading=False)
            first[name] = dense
            self._binding.bind_ortvalue_output(name, self._value(dense, types[name]))

    def _dense(self, array: Array, copies: list[_Copy], *, reading: bool) -> Array:
        """Return the array, or a dense part of the workspace in its place."""
        if array.flags.c_contiguous:
            return array
        begin, end = self._used, self._used + array.nbytes
        self._used = begin + _aligned(array.nbytes)
        packed = self._workspace[begin:end].view(array.dtype).reshape(array.shape)
        copies.append(_Copy(packed, array) if reading else _Copy(array, packed))
        return packed

    def _value(self, array: Array, type_name: str) -> Any:
        value = to_ort_value(array, type_name)
        if array.size and value.data_ptr() != array.ctypes.data:
            raise RuntimeFailed(f"onnxruntime does not take {type_name} where it lies")
        self._values.append((array, value))
        return value

    def __call__(self) -> None:
        for copy in self._before:
            copy()
        try:
            self._native.run_with_iobinding(self._binding)
        except Exception as error:  # onnxruntime raises unrelated types
            raise RuntimeFailed(f"launch {self.name!r} failed in onnxruntime: {error}") from error
        for copy in self._after:
            copy()
