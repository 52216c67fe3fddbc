"""OpenVINO as a runtime of whole models on the CPU, in float32 and with as many threads as asked.

The package is loaded when a model is opened, without its telemetry, which writes to the home folder
and to the network as soon as the package is imported. Nothing is cached on the disk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from eqsat_opt.errors import RuntimeFailed, printable
from eqsat_opt.runtime.backends.openvino import NAME
from eqsat_opt.runtime.source import Feeds, ModelSource, Runtime, Setting, read_structure

__all__ = ["OpenVinoRuntime", "OpenVinoSession"]

_PACKAGE, _TELEMETRY = "openvino", "openvino_telemetry"

_CONFIGURATION = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": 1,
    # The default is bfloat16 if the processor has it.
    "INFERENCE_PRECISION_HINT": "f32",
    # In this mode products are not quantised at run time either.
    "EXECUTION_MODE_HINT": "ACCURACY",
    # Pinned threads would all wait for one core if another process pins its threads as well.
    "ENABLE_CPU_PINNING": False,
    "CACHE_DIR": "",
}

_TYPES = frozenset(
    {
        TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BOOL,
        TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
        TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
    }
)  # fmt: skip
"""Element types that OpenVINO takes and returns unchanged. It computes float64 in float32."""

_MOST_DETAIL = 300


class OpenVinoRuntime(Runtime):
    """Runtime that compiles models for the CPU, and refuses those with operators that it lacks."""

    name = NAME

    def missing(self) -> str:
        """Return a message if the package is not installed; empty if it is."""
        if find_spec(_PACKAGE) is None or not _version():
            return "openvino is not installed; install it with pip install 'eqsat-opt[openvino]'"
        return ""

    def facts(self) -> Mapping[str, str | int]:
        """Return the version of the package."""
        return {"openvino": _version()}

    def open(
        self,
        model: ModelSource,
        threads: int,
        setting: Setting,
        custom_ops: Sequence[str] = (),
    ) -> OpenVinoSession:
        """Compile a model.

        Raises:
            RuntimeFailed: the package is missing, or refuses the model, or a setting is given.
        """
        del custom_ops  # built for onnxruntime; a model that needs them is refused below
        if why := self.missing():
            raise RuntimeFailed(why)
        if setting:
            raise RuntimeFailed(f"OpenVINO has no setting {min(setting)!r}")
        return OpenVinoSession(model, threads)


class OpenVinoSession:
    """A model compiled by OpenVINO, with inputs and outputs by the names of the model.

    Raises:
        RuntimeFailed: OpenVINO refuses the model, or changes its inputs or outputs.
    """

    def __init__(self, model: ModelSource, threads: int) -> None:
        graph = read_structure(model).graph
        given = {one.name for one in graph.initializer}
        self._inputs = [value for value in graph.input if value.name not in given]
        self._outputs = list(graph.output)
        for value in (*self._inputs, *self._outputs):
            if value.type.tensor_type.elem_type not in _TYPES:
                raise RuntimeFailed(f"OpenVINO cannot take or return {value.name!r} as it is")
        openvino = _loaded()
        source = _source(model)
        try:
            core = openvino.Core()
            configuration = {**_CONFIGURATION, "INFERENCE_NUM_THREADS": threads}
            self._compiled = core.compile_model(core.read_model(source), "CPU", configuration)
            precision = self._compiled.get_property("INFERENCE_PRECISION_HINT")
            self._idle = [self._compiled.create_infer_request()]
        except Exception as error:  # OpenVINO raises RuntimeError for everything
            raise _failure("OpenVINO refuses the model", error) from error
        if precision != openvino.Type.f32:
            raise RuntimeFailed(f"OpenVINO would compute in {precision}, not in float32")
        self._tensor = openvino.Tensor
        self._ports = _ports(self._compiled.inputs, self._inputs, "inputs")
        _ports(self._compiled.outputs, self._outputs, "outputs", in_order=True)

    @property
    def input_names(self) -> Sequence[str]:
        """Inputs that have to be fed, in the model's order."""
        return tuple(value.name for value in self._inputs)

    @property
    def output_names(self) -> Sequence[str]:
        """Outputs, in the model's order."""
        return tuple(value.name for value in self._outputs)

    def run(self, feeds: Feeds) -> list[Any]:
        """Compute all outputs, in order, as fresh arrays.

        Raises:
            RuntimeFailed: an input is missing, unknown or does not fit, or a kernel failed.
        """
        if unknown := set(feeds) - set(self.input_names):
            raise RuntimeFailed(f"the model has no input {min(unknown)!r}")
        # A request serves one run at a time, and several threads may use a session.
        request = self._idle.pop() if self._idle else self._compiled.create_infer_request()
        try:
            self._bound(request, feeds)()
            tensors = [request.get_output_tensor(i) for i in range(len(self._outputs))]
            return [np.array(tensor.data) for tensor in tensors]
        finally:
            self._idle.append(request)

    def bind(self, feeds: Feeds) -> Callable[[], object]:
        """Fix the inputs, for runs that cost only a few µs of dispatch and return nothing.

        Raises:
            RuntimeFailed: an input is missing or does not fit.
        """
        return self._bound(self._compiled.create_infer_request(), feeds)

    def bind_all(self, feeds: Feeds, results: Sequence[Any]) -> Callable[[], None]:
        """Fix the inputs, and the dense arrays that outputs are written to.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or an output does not fit.
        """
        request = self._compiled.create_infer_request()
        run = self._bound(request, feeds)
        tensors = []
        try:
            for number, array in enumerate(results):
                tensor = self._tensor(array, shared_memory=True)
                request.set_output_tensor(number, tensor)
                tensors.append((array, tensor))
        except Exception as error:
            raise _failure("OpenVINO cannot write the outputs", error) from error

        def call(_keep: object = tensors) -> None:
            run()

        return call

    def _bound(self, request: Any, feeds: Feeds) -> Callable[[], None]:
        values = []
        for value in self._inputs:
            if value.name not in feeds:
                raise RuntimeFailed(f"no value is given for input {value.name!r}")
            array = np.asarray(feeds[value.name])
            # OpenVINO would accept similar shapes, such as a vector of one element for a scalar.
            if array.dtype != _dtype(value) or not _fits(array.shape, value):
                raise RuntimeFailed(
                    f"input {value.name!r} does not take {array.dtype}{list(array.shape)}"
                )
            # OpenVINO shares the memory of an input, which therefore has to be writable.
            is_fit = array.flags.c_contiguous and array.flags.writeable
            values.append(array if is_fit else array.copy(order="C"))
        try:
            for value, array in zip(self._inputs, values, strict=True):
                if value.name in self._ports:
                    tensor = self._tensor(array, shared_memory=True)
                    request.set_tensor(self._ports[value.name], tensor)
        except Exception as error:
            raise _failure("OpenVINO cannot take the inputs", error) from error

        def call(_keep: object = values) -> None:  # the tensors point into the arrays
            try:
                request.start_async()
                request.wait()
            except Exception as error:
                raise _failure("OpenVINO failed while running the model", error) from error

        return call


@cache
def _version() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return ""


def _loaded() -> Any:
    """Import the package, without its telemetry unless that is already loaded."""
    is_ours = _TELEMETRY not in sys.modules
    if is_ours:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # makes its import fail
    try:
        import openvino
    except Exception as error:  # a missing library is not an ImportError everywhere
        raise _failure("OpenVINO cannot be loaded", error) from error
    finally:
        if is_ours:
            del sys.modules[_TELEMETRY]
    return openvino


def _source(model: ModelSource) -> str | bytes:
    if isinstance(model, onnx.ModelProto):
        return bytes(model.SerializeToString())
    return model if isinstance(model, bytes) else os.fspath(model)


def _ports(
    ports: Sequence[Any], values: Sequence[onnx.ValueInfoProto], what: str, in_order: bool = False
) -> dict[str, Any]:
    """Return OpenVINO's inputs or outputs by the names of the model.

    Raises:
        RuntimeFailed: their names or ranks differ from those of the model.
    """
    names = [value.name for value in values]
    found: dict[str, Any] = {}
    for i, port in enumerate(ports):
        known = [names[i]] if in_order and i < len(names) else names
        name = next((one for one in known if one in port.get_names()), None)
        if name is None:
            theirs = ", ".join("/".join(sorted(port.get_names())) for port in ports)
            raise RuntimeFailed(f"OpenVINO has the {what} {theirs} instead of {', '.join(names)}")
        found[name] = port
    if in_order and len(found) != len(names):
        raise RuntimeFailed(f"OpenVINO has {len(found)} {what} instead of {len(names)}")
    for value in values:
        type_ = value.type.tensor_type
        if value.name in found and type_.HasField("shape"):
            rank, theirs = len(type_.shape.dim), found[value.name].get_partial_shape().rank
            if theirs.is_dynamic or theirs.get_length() != rank:
                raise RuntimeFailed(f"OpenVINO has {value.name!r} of rank {theirs} and not {rank}")
    return found


def _dtype(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    return onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


def _fits(shape: Sequence[int], value: onnx.ValueInfoProto) -> bool:
    """Return whether a shape fits the one that the model declares."""
    if not value.type.tensor_type.HasField("shape"):
        return True
    dims = value.type.tensor_type.shape.dim
    return len(dims) == len(shape) and all(
        not dim.HasField("dim_value") or dim.dim_value in (size, -1)
        for dim, size in zip(dims, shape, strict=True)
    )


def _failure(what: str, error: Exception) -> RuntimeFailed:
    detail = printable(str(error)) or type(error).__name__
    if len(detail) > _MOST_DETAIL:
        detail = detail[: _MOST_DETAIL - 1] + "…"
    return RuntimeFailed(f"{what}: {detail}")
