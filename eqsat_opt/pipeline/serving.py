"""Sessions that run a model as it was raced, without importing the search."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.native.library import library_path
from eqsat_opt.runtime.backends.native.region_library import region_library
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, require_custom_ops
from eqsat_opt.runtime.backends.tuned_file import open_tuned, tuned_threads
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, read_structure

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["RuntimeSession", "RuntimeValue", "native_library", "session"]


def session(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model,
    *,
    threads: int | None = None,
    custom_ops: tuple[str, ...] = (),
) -> onnxruntime.InferenceSession:
    """Open a session that runs ``model`` as `optimize` raced it.

    It is a session of onnxruntime, unless the model is a tuned one that another runtime runs
    fastest: then it is a `RuntimeSession`, which is called in the same way. Its graph optimisation
    level is the one in the model's metadata, which a default session ignores; operators run one
    after another, on the CPU. A tuned model runs in its tuned form where this fits the machine and
    the number of threads; elsewhere the portable model in it runs, with a warning.

    Args:
        model: a file, a model in memory, or its serialised bytes.
        threads: number of threads within an operator; 0 means all usable cores. ``None`` means the
            number that a tuned model is tuned for, and all usable cores for any other model.
        custom_ops: libraries of operators of your own.

    Raises:
        ModelError: there is no such file, or it is not a model.
        OptionError: the number of threads has no meaning, or a library cannot be loaded.
        RuntimeFailed: onnxruntime refuses the model.
    """
    if isinstance(model, str | os.PathLike | bytes | onnx.ModelProto):
        return _opened(model, threads, custom_ops)
    import onnx_ir

    from eqsat_opt.runtime.staging import Staging

    if not isinstance(model, onnx_ir.Model):
        raise ModelError(
            f"a value of type {type(model).__name__} is not a model; give a path, an "
            "onnx.ModelProto or an onnx_ir.Model"
        )
    with Staging(model, model) as staging:  # the session keeps its mapped files after their removal
        found = _opened(staging.original, threads, custom_ops)
        if isinstance(found, RuntimeSession):
            found.open_instead()
        return found


def _opened(
    model: ModelSource, threads: int | None, custom_ops: tuple[str, ...]
) -> onnxruntime.InferenceSession:
    wanted = threads
    if wanted is None:
        wanted = tuned_threads(model)
        if wanted > (os.cpu_count() or 1):  # it was tuned on another machine
            wanted = 0
    options = Options(threads=wanted, custom_ops=custom_ops)
    require_custom_ops(options.custom_ops)
    settings = OrtOptions(options.threads, custom_ops=options.custom_ops)
    runner, runtime = open_tuned(model, settings)
    if isinstance(runner, OrtSession):
        return runner.native
    # RuntimeSession has the methods of an InferenceSession that are used.
    other: Any = RuntimeSession(runner, model, runtime, instead=lambda: OrtSession(model, settings))
    return other


@dataclass(frozen=True)
class RuntimeValue:
    """An input or output, described like those of onnxruntime's own sessions.

    Attributes:
        name: name of the value.
        shape: size or name of each dimension; ``None`` for a dimension without either.
        type: type of the value, such as ``tensor(float)``.
    """

    name: str
    shape: list[int | str | None]
    type: str

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> RuntimeValue:
        """Return the description of an input or output of a graph."""
        tensor = value.type.tensor_type
        sizes: list[int | str | None] = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in tensor.shape.dim
        ]
        element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        return cls(value.name, sizes, f"tensor({element})")


class RuntimeSession:
    """A model in another runtime, with the commonly used methods of an onnxruntime session.

    Some runtimes fail on tensors that are empty or smaller than a window. Such inputs are passed to
    onnxruntime, which loads the model when it gets the first of them.

    Attributes:
        runtime: name of the runtime.
    """

    def __init__(
        self,
        runner: Runner,
        model: ModelSource,
        runtime: str,
        instead: Callable[[], Runner] | None = None,
    ) -> None:
        self.runtime = runtime
        self._open_instead = instead
        self._instead: Runner | None = None
        self._runner = runner
        structure = read_structure(model)
        values = {v.name: v for v in (*structure.graph.input, *structure.graph.output)}
        self._inputs, self._outputs = (
            [RuntimeValue.of(values[name]) for name in names]
            for names in (runner.input_names, runner.output_names)
        )

    def open_instead(self) -> None:
        """Load the model in onnxruntime now, as its file may be gone when it is needed."""
        if self._instead is None and self._open_instead is not None:
            self._instead = self._open_instead()

    def get_inputs(self) -> list[RuntimeValue]:
        """Return the inputs that have to be fed, in the model's order."""
        return self._inputs

    def get_outputs(self) -> list[RuntimeValue]:
        """Return the outputs, in the model's order."""
        return self._outputs

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feeds,
        run_options: Any = None,
    ) -> list[Any]:
        """Return the named outputs, or all; options of onnxruntime are ignored.

        Raises:
            RuntimeFailed: an input does not fit, a kernel failed, or there is no such output.
        """
        del run_options
        try:
            found = self._by(self._runner, input_feed)
        except RuntimeFailed:
            self.open_instead()
            if self._instead is None:
                raise
            found = self._by(self._instead, input_feed)
        try:
            return [found[name] for name in output_names or found]
        except KeyError as error:
            raise RuntimeFailed(f"the model has no output {error}") from error

    @staticmethod
    def _by(runner: Runner, feeds: Feeds) -> dict[str, Any]:
        return dict(zip(runner.output_names, runner.run(feeds), strict=True))


def native_library(model: str | os.PathLike[str] | onnx.ModelProto | None = None) -> str:
    """Return the path of a library of kernels for tuned models.

    A server that has only onnxruntime loads a tuned model after it has registered the library with
    `register_custom_ops_library`, at the graph optimisation level ``disabled``. `session` does
    both.

    Args:
        model: a tuned model, for the library of the kernels that are generated for it alone, which
            is compiled unless the user's cache folder has it; ``None`` for the library that all
            tuned models share. A model with generated kernels needs both.

    Raises:
        ModelError: the model cannot be read, or its descriptions of kernels are damaged.
        RuntimeFailed: there are no kernels for this machine, or the model has none of its own.
    """
    if model is None:
        return library_path()
    library = region_library(read_structure(model).graph.node)
    if not library:
        raise RuntimeFailed(
            "the model has no generated kernels; native_library() without a model names the "
            "library of all others"
        )
    return library
