"""The real nvmath-python and CuPy, without a GPU: cuBLASLt alone is replaced, by NumPy.

Arrays of CuPy are made of memory of the host, which no driver is asked for. So what nvmath-python
demands of matrices, options and algorithms is what it demands on a GPU, and what it tells cuBLASLt
of them decides what is computed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

__all__ = ["HostCublasLt", "HostDevice", "on_host"]


def on_host(array: NDArray[Any]) -> Any:
    """An array of CuPy in the memory of one of NumPy."""
    import cupy

    low = np.lib.array_utils.byte_bounds(array)[0]
    memory = cupy.cuda.UnownedMemory(low, max(array.nbytes, 1), array, 0)
    place = cupy.cuda.MemoryPointer(memory, array.ctypes.data - low)
    return cupy.ndarray(array.shape, array.dtype, place, array.strides)


class HostDevice:
    """What runners ask of a device."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.streams: list[int] = []

    def on_stream(self, number: int) -> str:
        self.streams.append(number)
        return f"stream {number}"


class _Told:
    """Attributes that a descriptor was given, by its number."""

    every: dict[int, _Told]

    def __init__(self, number: int) -> None:
        self.__dict__ = self.every.setdefault(number, self).__dict__


class HostCublasLt:
    """cuBLASLt as far as products of matrices need it.

    Args:
        monkeypatch: with which it is put in place.

    Attributes:
        algorithms: number, tile and workspace in bytes of those that there are, best first.
        told: a line for each product that was computed.
        version: as it numbers itself.
    """

    MatmulDescInterface: Any
    MatrixLayoutInterface: Any
    MatmulPreferenceInterface: Any

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from nvmath.internal import utils
        from nvmath.linalg.advanced import matmulmod

        self.algorithms = [(7, 20, 1 << 10), (3, 635, 0)]
        self.told: list[dict[str, Any]] = []
        self.version = 130_400
        self._enums = matmulmod.cublaslt
        self._layouts: dict[int, Any] = {}
        self._numbers = iter(range(1, 1 << 20))
        self._is_called = False
        for module, name in (
            (matmulmod.matmul_desc_ifc, "MatmulDescInterface"),
            (matmulmod.matrix_layout_ifc, "MatrixLayoutInterface"),
            (matmulmod.matmul_pref_ifc, "MatmulPreferenceInterface"),
        ):
            kind = type(name, (_Told,), {"every": {}})
            monkeypatch.setattr(module, name, kind)
            setattr(self, name, kind)
        for name in (
            "get_version", "matmul", "matmul_algo_get_heuristic", "matmul_desc_create",
            "matmul_preference_create", "matrix_layout_create",
        ):  # fmt: skip
            monkeypatch.setattr(matmulmod.cublaslt, name, getattr(self, name))
        for name in ("matmul_desc_destroy", "matmul_preference_destroy", "matrix_layout_destroy"):
            monkeypatch.setattr(matmulmod.cublaslt, name, lambda _: None)
        monkeypatch.setattr(matmulmod, "get_handle", lambda _: 1)
        monkeypatch.setattr(utils, "device_ctx", lambda _: nullcontext())
        monkeypatch.setattr(utils, "cuda_call_ctx", self._call)
        monkeypatch.setattr(
            utils,
            "get_memory_limit_from_device_id",
            lambda limit, _: utils._get_memory_limit(limit, 1 << 37),
        )
        stream = SimpleNamespace(ctx=nullcontext(), obj=None, ptr=0, device_id=0)
        monkeypatch.setattr(utils, "get_or_create_stream", lambda *_: stream)
        config = matmulmod._algorithmmod
        monkeypatch.setattr(config, "AlgoConfigInterface", self._config)
        monkeypatch.setattr(config, "AlgoCapInterface", lambda _: None)

    @contextmanager
    def _call(self, stream: Any, blocking: Any = True, timing: bool = True) -> Iterator[Any]:
        yield None, SimpleNamespace(data=None)

    def _config(self, result: Any) -> Any:
        number = int(result._data["algo"]["data_"].reshape(-1)[0])
        tile = next(tile for one, tile, _ in self.algorithms if one == number)
        return SimpleNamespace(
            id=number, tile_id=tile, stages_id=0, splitk_num=1, reduction_scheme=0,
            cta_swizzling=0, custom_option=0,
        )  # fmt: skip

    # What nvmath-python calls --------------------------------------------------------------------

    def get_version(self) -> int:
        return self.version

    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        number = next(self._numbers)
        told = self.MatmulDescInterface(number)
        told.epilogue, told.bias_pointer = self._enums.Epilogue.DEFAULT, 0
        return number

    def matmul_preference_create(self) -> int:
        return next(self._numbers)

    def matrix_layout_create(self, type: int, rows: int, cols: int, ld: int) -> int:
        number = next(self._numbers)
        told = self.MatrixLayoutInterface(number)
        told.dtype, told.rows, told.cols, told.ld = type, rows, cols, ld
        return number

    def matmul_algo_get_heuristic(
        self,
        handle: int,
        operation: int,
        a_layout: int,
        b_layout: int,
        c_layout: int,
        d_layout: int,
        preference: int,
        requested: int,
        results: int,
        count: int,
    ) -> None:
        room = self.MatmulPreferenceInterface(preference).max_workspace_bytes
        kind = self._enums.matmul_heuristic_result_dtype
        memory = (ctypes.c_char * (kind.itemsize * requested)).from_address(results)
        found = np.frombuffer(memory, kind)
        fitting = [one for one in self.algorithms if one[2] <= room][:requested]
        for place, (number, _, size) in enumerate(fitting):
            found[place]["algo"]["data_"].reshape(-1)[0] = number
            found[place]["workspace_size"] = size
        ctypes.c_int.from_address(count).value = len(fitting)

    def matmul(
        self,
        handle: int,
        operation: int,
        alpha: int,
        a: int,
        a_layout: int,
        b: int,
        b_layout: int,
        beta: int,
        c: int,
        c_layout: int,
        d: int,
        d_layout: int,
        algorithm: int,
        workspace: int,
        workspace_bytes: int,
        stream: int,
    ) -> None:
        told = self.MatmulDescInterface(operation)
        one = ctypes.c_float.from_address(alpha).value, ctypes.c_float.from_address(beta).value
        assert one == (1.0, 0.0)
        assert (c, c_layout) == (d, d_layout)
        y = self._matrix(d, d_layout)
        value: Any = self._matrix(a, a_layout).astype("f8") @ self._matrix(b, b_layout).astype("f8")
        epilogue = self._enums.Epilogue(told.epilogue)
        if "BIAS" in epilogue.name:
            # By row of a result that lies by columns, packed (documentation of cuBLASLt).
            order = self.MatrixLayoutInterface(d_layout).order
            assert order == self._enums.Order.COL, "no bias of rows that are contiguous"
            shape = (y.shape[0], 1)
            value = value + _at(told.bias_pointer, shape, (1, 1), y.dtype).astype("f8")
        if "RELU" in epilogue.name:
            value = np.maximum(value, 0)
        y[...] = value
        self.told.append(
            {
                "compute": told.compute_type.name,
                "workspace": (workspace, workspace_bytes),
                "algorithm": ctypes.c_uint64.from_address(algorithm).value,
                "epilogue": epilogue.name,
                "batches": self.MatrixLayoutInterface(d_layout).batch_count,
            }
        )

    def _matrix(self, pointer: int, number: int) -> NDArray[Any]:
        """A matrix as a layout tells it, or batches of them."""
        told = self.MatrixLayoutInterface(number)
        is_by_columns = told.order == self._enums.Order.COL
        assert told.ld >= (told.rows if is_by_columns else told.cols)
        strides = (1, told.ld) if is_by_columns else (told.ld, 1)
        dtype = {"CUDA_R_32F": "float32", "CUDA_R_16F": "float16"}[told.dtype.name]
        if told.batch_count == 1:
            return _at(pointer, (told.rows, told.cols), strides, dtype)
        dims = told.batch_count, told.rows, told.cols
        return _at(pointer, dims, (told.strided_batch_offset, *strides), dtype)


def _at(pointer: int, dims: Sequence[int], strides: Sequence[int], dtype: Any) -> NDArray[Any]:
    kind = np.dtype(dtype)
    span = sum((d - 1) * s for d, s in zip(dims, strides, strict=True)) + 1
    memory = (ctypes.c_char * (span * kind.itemsize)).from_address(pointer)
    steps = [s * kind.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, kind), dims, steps)
