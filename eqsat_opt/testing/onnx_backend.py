"""`onnx.backend.base.Backend` over any executor, so that ONNX's own test suite can drive it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Runner
from eqsat_opt.testing.reference import ReferenceSession

__all__ = ["OrtBackend", "ReferenceBackend", "RunnerBackend", "RunnerRep"]


class RunnerRep(BackendRep):
    """A prepared model: positional inputs in, a named tuple of outputs out."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run on a sequence in the order of the model's inputs, a mapping, or the only input.

        Raises:
            RuntimeFailed: the number of inputs is wrong, or the executor fails.
        """
        if kwargs:
            raise TypeError(f"unknown argument {next(iter(kwargs))!r}")
        names = self.runner.input_names
        if isinstance(inputs, dict):
            feeds = inputs
        else:
            values = inputs if isinstance(inputs, list | tuple) else [inputs]
            if len(values) != len(names):
                raise RuntimeFailed(
                    f"the model takes {len(names)} inputs and was given {len(values)}"
                )
            feeds = dict(zip(names, values, strict=True))
        make = namedtupledict("Outputs", list(self.runner.output_names))
        return make(*self.runner.run(feeds))


class RunnerBackend(Backend):
    """Backend of an executor; a subclass says how to build one.

    Attributes:
        devices: names of the devices that it runs on.
    """

    devices: ClassVar[Sequence[str]] = ("CPU",)

    @classmethod
    def runner(cls, model: onnx.ModelProto, **options: Any) -> Runner:
        """Make `model` executable."""
        raise NotImplementedError

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can be prepared for a device such as "CPU" or "CUDA:1"."""
        return device.split(":")[0] in cls.devices

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> RunnerRep:
        """Load a model for repeated runs; other arguments are options of the executor.

        Raises:
            ModelError: the model is not valid.
            RuntimeFailed: the executor does not run on `device`, or refuses the model.
        """
        if not cls.supports_device(device):
            raise RuntimeFailed(f"no {device} here; use one of {', '.join(cls.devices)}")
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError as error:
            raise ModelError(f"not a valid model: {str(error).splitlines()[0]}") from error
        return RunnerRep(cls.runner(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator on arrays.

        Args:
            node: the operator.
            inputs: arrays for its inputs that are not left out.
            device: device to run on.
            outputs_info: dtype and shape of each output; otherwise the executor infers them.
            kwargs: `opset_version`, and options of the executor.
        """
        opset = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
        names = [name for name in node.input if name]
        arrays = [np.asarray(value) for value in inputs]
        if len(arrays) != len(names):
            raise RuntimeFailed(f"{node.op_type} takes {len(names)} inputs, not {len(arrays)}")
        feeds = dict(zip(names, arrays, strict=True))
        outputs = [name for name in node.output if name]
        graph = helper.make_graph(
            [node],
            "node",
            [_tensor_info(name, array.dtype, array.shape) for name, array in feeds.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs]
            if outputs_info is None
            else [
                _tensor_info(name, np.dtype(dtype), shape)
                for name, (dtype, shape) in zip(outputs, outputs_info, strict=True)
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        model.ir_version = helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
        if not cls.supports_device(device):
            raise RuntimeFailed(f"no {device} here; use one of {', '.join(cls.devices)}")
        return RunnerRep(cls.runner(model, **kwargs)).run(feeds)


class OrtBackend(RunnerBackend):
    """onnxruntime on the CPU, with all usable cores unless `threads` is given."""

    @classmethod
    def runner(cls, model: onnx.ModelProto, **options: Any) -> Runner:
        """Make `model` executable; `options` are those of `OrtOptions`."""
        options.setdefault("threads", _usable_cores())
        return OrtSession(model, OrtOptions(**options))


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _tensor_info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), list(shape))


class ReferenceBackend(RunnerBackend):
    """NumPy on the CPU; it has no options."""

    @classmethod
    def runner(cls, model: onnx.ModelProto, **options: Any) -> Runner:
        """Make `model` executable."""
        if options:
            raise TypeError(f"unknown argument {next(iter(options))!r}")
        return ReferenceSession(model)
