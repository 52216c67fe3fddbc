"""Launches of our own kernels, called by address on memory of the plan; onnxruntime is not loaded.

The kernels are products with constant weights of two axes, and normalisations of rows, in float32.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import number_of
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.launching import Bound, Launcher
from eqsat_opt.runtime.backends.native.library import library_digest, library_path
from eqsat_opt.runtime.devices.calls import CALL_ALL, NativeCall
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Launch

__all__ = ["NativeLauncher", "can_run"]

_NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization"})


def can_run(body: Kernel) -> bool:
    """Return whether there is a kernel for a body.

    A body has to be a single operator in float32, with constant weights and no empty tensor.
    """
    if len(body.steps) != 1 or body.outputs != (len(body.operands),):
        return False
    (step,), operands = body.steps, body.operands
    if step.operands != tuple(range(len(operands))):
        return False
    types = [one.type for one in operands]
    if any(type_.dtype != "float32" or 0 in type_.shape for type_ in types):
        return False
    if any(one.const != (i > 0) for i, one in enumerate(operands)) or not types[0].rank:
        return False
    last = types[0].shape[-1]
    if step.op == "MatMul":
        return types[1].rank == 2
    if step.op in _NORMALIZATIONS:
        axis = number_of(step.attrs, "axis") % types[0].rank
        return axis == types[0].rank - 1 and all(one.shape == (last,) for one in types[1:])
    return False


class NativeLauncher(Launcher):
    """Launcher of the kernels in the library that eqsat-opt is installed with."""

    def version(self) -> str:
        """Return the version of the library; another version may round differently."""
        return f"native {library_digest() or 'not compiled'}"

    def build(self, launch: Launch, bound: Bound) -> NativeCall | _Packed:
        """Build the kernel on this memory, with packed weights.

        Raises:
            RuntimeFailed: there is no such kernel, or none on this machine.
        """
        if launch.algorithm != "default" or not can_run(launch.body):
            raise RuntimeFailed(
                f"launch {launch.name!r}: native has no kernel {launch.algorithm!r} for "
                f"{launch.body.name}; plan again with another backend"
            )
        data, *weights = bound.reads
        (result,) = bound.writes
        # The kernels need rows without gaps.
        source, target = _dense(data), _dense(result)
        call = _called(launch, source, weights, target)
        if source is data and target is result:
            return call
        return _Packed(call, (source, data), (result, target))


class _Packed:
    """A kernel between copies from and to tensors with gaps."""

    def __init__(
        self, call: NativeCall, before: tuple[Array, Array], after: tuple[Array, Array]
    ) -> None:
        self.name = call.name
        self._call, self._before, self._after = call, before, after

    def __call__(self) -> None:
        np.copyto(*self._before)
        self._call()
        np.copyto(*self._after)


def _dense(array: Array) -> Array:
    return array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)


def _called(launch: Launch, data: Array, weights: Sequence[Array], result: Array) -> NativeCall:
    library = _library()
    (step,) = launch.body.steps
    if step.op == "MatMul":
        kind = "product"
        panels = _panels(weights[0])
        rows, (depth, columns) = prod(data.shape[:-1]), weights[0].shape
        made = library.eqsat_product(
            rows, depth, columns, data.ctypes.data, panels.address, result.ctypes.data
        )
        keep: tuple[Any, ...] = (data, panels, result)
    else:
        kind = "normalization"
        scale, *shift = (np.ascontiguousarray(one) for one in weights)
        size = data.shape[-1]
        addresses = [one.ctypes.data for one in (data, scale, *shift)]
        made = library.eqsat_normalization(
            data.size // size,
            size,
            step.op == "LayerNormalization",
            number_of(step.attrs, "epsilon"),
            (ctypes.c_void_p * 3)(*addresses, *[None] * (3 - len(addresses))),
            result.ctypes.data,
        )
        keep = (data, scale, *shift, result)
    if not made:
        raise RuntimeFailed(f"launch {launch.name!r}: there is no memory for packed weights")
    run, call_all = (
        ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        for name in (f"eqsat_run_{kind}", CALL_ALL)
    )
    assert run is not None
    assert call_all is not None
    call = NativeCall(launch.name, run, made, call_all, keep=keep)
    weakref.finalize(call, getattr(library, f"eqsat_free_{kind}"), made)
    return call


class _Panels:
    """Packed weights; consecutive products share them, so that they stay in the caches."""

    def __init__(self, weights: Array) -> None:
        self.weights = weights  # keeps the address from being reused
        library, dense = _library(), np.ascontiguousarray(weights)
        self.address = library.eqsat_weights(*dense.shape, dense.ctypes.data)
        if not self.address:
            raise RuntimeFailed("there is no memory for packed weights")
        weakref.finalize(self, library.eqsat_free_weights, self.address)


_packed: weakref.WeakValueDictionary[tuple[Any, ...], _Panels] = weakref.WeakValueDictionary()


def _panels(weights: Array) -> _Panels:
    """Return the panels of a constant, which is never written to."""
    key = weights.ctypes.data, weights.shape, weights.strides
    panels = _packed.get(key)
    if panels is None:
        panels = _packed[key] = _Panels(weights)
    return panels


@cache
def _library() -> Any:
    """Load the library, and declare the types of the functions that plans call.

    Raises:
        RuntimeFailed: there is no library for this machine.
    """
    library = ctypes.CDLL(library_path())
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    library.eqsat_product.argtypes = (size, size, size, pointer, pointer, pointer)
    library.eqsat_normalization.argtypes = (
        size, size, ctypes.c_int, ctypes.c_float, pointer, pointer,
    )  # fmt: skip
    library.eqsat_weights.argtypes = (size, size, pointer)
    for kind in ("weights", "product", "normalization"):
        getattr(library, f"eqsat_{kind}").restype = pointer
        getattr(library, f"eqsat_free_{kind}").argtypes = (pointer,)
        getattr(library, f"eqsat_free_{kind}").restype = None
    return library
