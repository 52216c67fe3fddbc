"""The embedded executor: one whole-graph onnxruntime session on the CPU."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import onnx
import onnxruntime

from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import OptionError, RuntimeFailed, printable
from eqsat_opt.runtime.backends.ort.values import RAW_TYPES, from_ort_value, to_ort_value
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner

__all__ = [
    "READS_CONFIG",
    "OpenSession",
    "OptimizationLevel",
    "OrtOptions",
    "OrtSession",
    "ort_optimized",
    "ort_version",
    "require_custom_ops",
]

OptimizationLevel: TypeAlias = Literal["all", "extended", "basic", "disabled"]

_LEVELS = {
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
READS_CONFIG = "ORT_LOAD_CONFIG_FROM_MODEL"
"""Environment variable that lets onnxruntime take its options from a model's metadata."""

_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
# Errors come back as exceptions as well, so even these need not reach standard error.
_LOG_FATAL_ONLY = 4
# onnxruntime's error code, and the C++ source line and signature that it puts before the message.
_ERROR_CLUTTER = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : "
    r"|/onnxruntime_src/\S+:\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?:::<lambda\(\S*\)>)? "
)
_MAX_DETAIL = 400


@dataclass(frozen=True)
class OrtOptions:
    """Options with which onnxruntime runs a graph.

    Attributes:
        threads: the threads within an operator; operators run one after another.
        level: the level of onnxruntime's own graph optimisation.
        disabled_optimizers: the names of graph transformers of onnxruntime to leave out.
        spinning: whether idle threads wait actively: faster alone on a machine, slower on a busy
            one.
        prepacking: whether kernels keep copies of weights in their own layout; without copies,
            weights of a file stay mapped, which is enough for a session that never runs.
        custom_ops: libraries of a user's own operators.
        data_folder: the folder of the external weights of a model in memory; the working directory
            if empty.

    Raises:
        OptionError: there are no threads, or the level is unknown.
    """

    threads: int
    level: OptimizationLevel = "all"
    disabled_optimizers: tuple[str, ...] = ()
    spinning: bool = True
    prepacking: bool = True
    custom_ops: tuple[str, ...] = ()
    data_folder: str = ""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise OptionError(f"threads must be 1 or more, not {self.threads}")
        if self.level not in _LEVELS:
            levels = ", ".join(get_args(OptimizationLevel))
            raise OptionError(f"no optimisation level {self.level!r}; choose one of {levels}")

    def beside(self, model: ModelSource) -> OrtOptions:
        """Return options with which a changed copy of a model finds the data of its file."""
        if isinstance(model, onnx.ModelProto | bytes):
            return self
        return replace(self, data_folder=os.path.dirname(os.path.abspath(os.fspath(model))))


class OrtSession:
    """A model loaded into onnxruntime.

    A model given as a path is loaded by path, so external weights stay mapped. A session keeps no
    reference to the given model. With ``profile_prefix`` every run is profiled into a file whose
    name begins with that prefix. `native.end_profiling` closes the file and returns its name.

    Raises:
        RuntimeFailed: onnxruntime refuses the model.
        OptionError: a library of operators cannot be loaded.
    """

    def __init__(
        self, model: ModelSource, options: OrtOptions, *, profile_prefix: str = ""
    ) -> None:
        self.options = options
        session_options = _session_options(options)
        if profile_prefix:
            session_options.enable_profiling = True
            session_options.profile_file_prefix = profile_prefix
        self._session = _load(model, options, session_options)
        self._input_types = {value.name: value.type for value in self._session.get_inputs()}
        self._output_types = {value.name: value.type for value in self._session.get_outputs()}

    @property
    def native(self) -> onnxruntime.InferenceSession:
        """Onnxruntime's own session."""
        return self._session

    @property
    def input_names(self) -> Sequence[str]:
        """Inputs that have to be fed, in the model's order."""
        return tuple(self._input_types)

    @property
    def output_names(self) -> Sequence[str]:
        """Outputs, in the model's order."""
        return tuple(self._output_types)

    def run(self, feeds: Feeds) -> list[Any]:
        """Compute all outputs, in order, as fresh arrays.

        Sequences are lists, and absent optionals are None.

        Raises:
            RuntimeFailed: an input is missing or does not fit, or a kernel failed.
        """
        types = {*self._input_types.values(), *self._output_types.values()}
        try:
            if types.isdisjoint(RAW_TYPES):
                values = {name: _without_scalars(value) for name, value in feeds.items()}
                return list(self._session.run(None, values))
            values = {name: self._ort_value(name, value) for name, value in feeds.items()}
            results = self._session.run_with_ort_values(None, values)
            return [from_ort_value(result) for result in results]
        except Exception as error:  # onnxruntime raises unrelated types
            raise _failure("onnxruntime failed while running the model", error) from error

    def bind(self, feeds: Feeds) -> Callable[[], None]:
        """Fix the inputs, for runs that cost only a few µs of dispatch and return nothing.

        Strings, sequences and optionals cannot be bound; such a model is run the plain way.

        Returns:
            A callable that runs on these inputs, and raises `RuntimeFailed` if a kernel fails.

        Raises:
            RuntimeFailed: an input is missing or does not fit.
        """
        types = (*self._input_types.values(), *self._output_types.values())
        if all(type_.startswith("tensor(") and type_ != "tensor(string)" for type_ in types):
            return self._bind_memory(feeds)
        return partial(self._run_and_drop, dict(feeds))

    def _run_and_drop(self, feeds: Feeds) -> None:
        self.run(feeds)

    def _bind_memory(self, feeds: Feeds) -> Callable[[], None]:
        missing = [name for name in self._input_types if name not in feeds]
        if missing:
            raise RuntimeFailed(f"no value is given for input {missing[0]!r}")
        binding = self._session.io_binding()
        try:
            values = {name: self._ort_value(name, feeds[name]) for name in self._input_types}
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            _bind_outputs(binding, self._output_types)
        except Exception as error:
            raise _failure("onnxruntime cannot take the inputs", error) from error
        return _BoundRuns(self._session, binding, tuple(self._output_types), values)

    def _ort_value(self, name: str, value: Any) -> Any:
        return to_ort_value(np.asarray(value), self._input_types.get(name, ""))


class _BoundRuns:
    """Runs of a session on fixed inputs.

    It is no closure that calls itself: such a cycle would keep the session, with all weights, until
    Python collects garbage.
    """

    def __init__(self, session: Any, binding: Any, outputs: Sequence[str], values: object) -> None:
        """Keep the inputs: the binding points into the memory of `values` without owning it."""
        self._run = session.run_with_iobinding
        self._binding, self._outputs, self._values = binding, outputs, values
        self._runs, self._is_rebound = 0, False

    def __call__(self) -> None:
        try:
            if self._is_rebound:
                _bind_outputs(self._binding, self._outputs)
            self._run(self._binding)
        except Exception as error:
            if self._is_rebound or not self._runs:
                raise _failure("onnxruntime failed while running the model", error) from error
            # A run refuses the memory that an earlier run left for an output, if the output has
            # another rank than the model declares.
            self._is_rebound = True
            self()
        self._runs += 1


def _bind_outputs(binding: Any, names: Iterable[str]) -> None:
    for name in names:
        binding.bind_output(name, "cpu")


OpenSession: TypeAlias = Callable[[ModelSource, OrtOptions], Runner]
"""Function that loads a model: into this process, as :class:`OrtSession`, or into a sandbox."""


def ort_version() -> str:
    """Return the version of the installed onnxruntime, as profile keys contain it."""
    return str(onnxruntime.__version__)


def ort_optimized(model: ModelSource, options: OrtOptions) -> onnx.ModelProto:
    """Return the graph that onnxruntime really runs, specific to this machine.

    Raises:
        RuntimeFailed: onnxruntime refuses the model or cannot write the result.
    """
    with Scratch() as folder:
        path = Path(folder) / "optimized.onnx"
        session_options = _session_options(options)
        session_options.optimized_model_filepath = str(path)
        _load(model, options, session_options)
        try:
            return onnx.load_model(path)
        except Exception as error:
            raise _failure("cannot read back onnxruntime's optimised model", error) from error


def require_custom_ops(libraries: Iterable[str]) -> None:
    """Load libraries of operators once, so that a wrong one is known before any work is done.

    Kernels are registered only when a session opens, so a session is opened with a model of one
    node. An error must then come from the libraries.

    Raises:
        OptionError: a file is missing, is not a library of operators for this machine, or has an
            operator that another library has too.
    """
    options = OrtOptions(threads=1, custom_ops=tuple(libraries))
    if not options.custom_ops:
        return
    session_options = _session_options(options)
    try:
        onnxruntime.InferenceSession(
            _smallest().SerializeToString(), session_options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        names = ", ".join(map(repr, options.custom_ops))
        raise OptionError(
            f"onnxruntime refuses the custom operators of {names}: {_detail(error)}"
        ) from error


def _smallest() -> onnx.ModelProto:
    value = onnx.TypeProto()
    value.tensor_type.elem_type = onnx.TensorProto.FLOAT
    ends = [onnx.ValueInfoProto(name=name, type=value) for name in "xy"]
    node = onnx.NodeProto(op_type="Identity", input=["x"], output=["y"])
    graph = onnx.GraphProto(name="smallest", node=[node], input=ends[:1], output=ends[1:])
    return onnx.ModelProto(
        ir_version=8, graph=graph, opset_import=[onnx.OperatorSetIdProto(version=13)]
    )


def _register(libraries: Iterable[str], session_options: onnxruntime.SessionOptions) -> None:
    for path in libraries:
        if not os.path.isfile(path):
            raise OptionError(f"no custom operator library {path!r}: there is no such file")
        try:
            # A name without a folder would be looked for on the system's search path.
            session_options.register_custom_ops_library(os.path.abspath(path))
        except Exception as error:
            reason = _detail(error)
            raise OptionError(f"cannot load custom operator library {path!r}: {reason}") from error


def _session_options(options: OrtOptions) -> onnxruntime.SessionOptions:
    result = onnxruntime.SessionOptions()
    result.log_severity_level = _LOG_FATAL_ONLY
    result.intra_op_num_threads = options.threads
    result.inter_op_num_threads = 1
    result.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    result.graph_optimization_level = _LEVELS[options.level]
    result.add_session_config_entry(
        "session.intra_op.allow_spinning", "1" if options.spinning else "0"
    )
    if not options.prepacking:
        result.add_session_config_entry("session.disable_prepacking", "1")
    _register(options.custom_ops, result)
    if options.data_folder:
        result.add_session_config_entry(_DATA_FOLDER, options.data_folder)
    return result


def _load(
    model: ModelSource, options: OrtOptions, session_options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    try:
        if isinstance(model, onnx.ModelProto):
            source: str | bytes = model.SerializeToString()
        else:
            source = model if isinstance(model, bytes) else os.fspath(model)
        with _options_as_given():
            return onnxruntime.InferenceSession(
                source,
                session_options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=list(options.disabled_optimizers) or None,
            )
    except Exception as error:
        raise _failure("onnxruntime refuses the model", error) from error


@contextmanager
def _options_as_given() -> Iterator[None]:
    """Keep onnxruntime from replacing all session options by those in the model's metadata."""
    asked = os.environ.pop(READS_CONFIG, None)
    try:
        yield
    finally:
        if asked is not None:
            os.environ[READS_CONFIG] = asked


def _without_scalars(value: Any) -> Any:
    # onnxruntime does not accept a NumPy scalar as an array.
    return np.asarray(value) if isinstance(value, np.generic) else value


def _failure(what: str, error: Exception) -> RuntimeFailed:
    return RuntimeFailed(f"{what}: {_detail(error)}")


def _detail(error: Exception) -> str:
    detail = printable(_ERROR_CLUTTER.sub("", str(error))) or type(error).__name__
    return detail if len(detail) <= _MAX_DETAIL else detail[: _MAX_DETAIL - 1] + "…"
